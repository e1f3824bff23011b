"""The upstreams with the logins and connections of one run's caller."""

import math
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Final

import anyio

from manifests.manifest import Manifest
from portal.base.caller import LOCAL, Caller
from portal.calls.channel import NO_CLIENT, ClientChannel
from portal.identity.accounts import Accounts
from upstreams.errors import UpstreamNeedsLoginError, UpstreamSignInError, UpstreamUnavailableError
from upstreams.fleet import Fleet
from upstreams.oauth.authorization_server import OAuthError
from upstreams.people import Person
from upstreams.upstream import Upstream

_POLL_SECONDS: Final = 0.5


@dataclass(eq=False)
class CallerUpstreams:
    """The upstreams of one run. Those that people sign in to are reached with the caller's own login."""

    accounts: Accounts
    manifest: Manifest
    """As the run found it: a script goes on to name upstreams as it began."""
    caller: Caller = LOCAL
    channel: ClientChannel = NO_CLIENT
    most_seconds: float = math.inf
    """The longest wait for a sign-in, so that the script still has time to continue, or to report the link."""
    _asking: dict[str, anyio.Lock] = field(default_factory=dict)
    _asked: set[str] = field(default_factory=set)
    """Upstreams that the person was already asked to sign in to in this run."""

    @property
    def fleet(self) -> Fleet:
        """The portal's own upstreams."""
        return self.accounts.fleet

    async def ready(self, name: str, *, may_ask: bool = True) -> None:
        """Return when the caller may call an upstream. With `may_ask`, asks the person to sign in, and waits for at
        most `call_seconds`.

        Raises UpstreamError: the login is missing, or the caller is not a known person.
        """
        person = self.accounts.person(name, self.caller)
        if person is None:
            return
        self.fleet.people.headers(name, person.claims)
        if self.accounts.spec(name) is None or await self._has_login(name, person):
            return
        if not may_ask:
            raise self._sign_in_error(name, person)
        await self._sign_in(name, person)

    def of(self, name: str) -> AbstractAsyncContextManager[Upstream]:
        """The caller's upstream, for one request. Does not ask anyone. Raises UpstreamError, like `ready`."""
        person = self.accounts.person(name, self.caller)
        return nullcontext(self.fleet[name]) if person is None else self._of_person(name, person)

    @asynccontextmanager
    async def _of_person(self, name: str, person: Person) -> AsyncIterator[Upstream]:
        try:
            async with self.fleet.people.of(name, person) as upstream:
                yield upstream
        except UpstreamNeedsLoginError as error:
            if self.accounts.spec(name) is None:  # people do not sign in there, only headers name them
                raise
            raise self._sign_in_error(name, person) from error

    async def _has_login(self, name: str, person: Person) -> bool:
        try:
            login = await self.accounts.logins(name, person.owner).load()
        except OAuthError as error:
            raise UpstreamUnavailableError(f"upstream {name!r}: {error}") from error
        return login is not None and (login.refresh_token is not None or not login.wants_renewal())

    async def _sign_in(self, name: str, person: Person) -> None:
        async with self._asking.setdefault(name, anyio.Lock()):
            if name not in self._asked:
                self._asked.add(name)
                with anyio.move_on_after(min(self.fleet[name].spec.call_seconds, self.most_seconds)):
                    link = self.accounts.link(name, person.owner)
                    asked = f"A script calls {name}, which needs your own login. Open the page and sign in."
                    # Whoever cannot be asked gets the link in the answer: the error -32042 would hide what was done.
                    if await self.channel.open_page(link, asked):
                        # Polled, because another replica may serve the pages.
                        while not await self._has_login(name, person):  # noqa: ASYNC110
                            await anyio.sleep(_POLL_SECONDS)
            if not await self._has_login(name, person):
                raise self._sign_in_error(name, person)

    def _sign_in_error(self, name: str, person: Person) -> UpstreamSignInError:
        link = self.accounts.link(name, person.owner)
        return UpstreamSignInError(f"upstream {name!r}: you have to sign in there first, at {link}")
