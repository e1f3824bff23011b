"""Which login a call uses: the portal's, or that of the person who calls.

Rule 1: a person's login and connection are for runs of that person alone, told apart by `Caller.run_owner`.
Rule 2: who did not sign in is nobody. Only without `server.auth`, and over stdio, the portal's own login stands for the
one person there is.
"""

import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio
from cryptography.fernet import InvalidToken

from manifests.manifest import Manifest
from manifests.portal_manifest import HttpUpstream
from portal.accounts.logins import PersonLogins
from portal.audit.audit import NO_AUDIT, Audit
from portal.passthrough.notifications import NO_CLIENT, ClientChannel
from portal.sessions import LOCAL, Caller
from portal.store.records import fernet_of
from portal.store.writer import RunStore
from upstreams.errors import (
    UpstreamCallerError,
    UpstreamNeedsLoginError,
    UpstreamSignInError,
    UpstreamUnavailableError,
)
from upstreams.fleet import Fleet
from upstreams.oauth.authorization_server import OAuthError
from upstreams.people import Person
from upstreams.upstream import Upstream

LINK_SECONDS: Final = 3_600
"""How long a link to sign in may be opened."""

PATH: Final = "/oauth/sign-in"
_POLL_SECONDS: Final = 0.5


class SignInSeal:
    """Makes the texts in URLs that only the portals with this `runs.key` can make and read."""

    def __init__(self, key: str) -> None:
        self._fernet = fernet_of(key, "sign-in")

    def close(self, step: str, *parts: str) -> str:
        return self._fernet.encrypt(json.dumps([step, *parts]).encode()).decode().rstrip("=")

    def open(self, text: str, step: str, seconds: int) -> list[str] | None:
        """What was sealed for this step at most so many seconds ago; None for anything else."""
        try:
            content = self._fernet.decrypt(f"{text}{'=' * (-len(text) % 4)}".encode(), ttl=seconds)
        except (InvalidToken, UnicodeEncodeError):
            return None
        sealed, *parts = json.loads(content)
        return parts if sealed == step else None


class Accounts:
    """The accounts of people at the upstreams of one portal."""

    def __init__(
        self, manifest: Manifest, fleet: Fleet, store: RunStore | None, audit: Audit = NO_AUDIT
    ) -> None:
        self.auth = manifest.portal.server.auth
        self.fleet = fleet
        self.store = store
        self.audit = audit
        key = manifest.portal.runs.key
        self.seal = SignInSeal(key.get_secret_value()) if key else None

    def spec(self, upstream: str) -> HttpUpstream | None:
        """The section of an upstream at which people sign in; None for any other name."""
        spec = self.fleet.spec(upstream)
        return spec if isinstance(spec, HttpUpstream) and spec.is_per_caller else None

    def person(self, upstream: str, caller: Caller) -> Person | None:
        """Whose credentials the call of an upstream uses; None for the portal's. Raises UpstreamCallerError."""
        is_named = self.fleet.people.names_callers(upstream)
        if self.spec(upstream) is None and not is_named:
            return None
        if caller.claims is not None:
            return Person(caller.run_owner, dict(caller.claims))
        if self.auth is None or (caller == LOCAL and not is_named):
            return None
        raise UpstreamCallerError(
            f"upstream {upstream!r} needs to know which person calls, and nobody signed in"
        )

    def logins(self, upstream: str, owner: str) -> PersonLogins:
        """The person's login. Raises UpstreamUnavailableError: there is no store for it, or nobody signs in there."""
        if self.store is None:
            why = "logins of people need the store of runs, which cannot be used; the portal's log says why"
            raise UpstreamUnavailableError(f"upstream {upstream!r}: {why}")
        spec = self.spec(upstream)
        if spec is None:  # a reload has changed it
            raise UpstreamUnavailableError(f"upstream {upstream!r}: nobody signs in there any more")
        return PersonLogins(self.store, upstream, spec.url, owner)

    def link(self, upstream: str, owner: str) -> str:
        """Where this person signs in at an upstream. It is of no use to anybody else."""
        assert self.auth is not None and self.seal is not None, "the manifest was refused otherwise"
        return f"{self.auth.base_url}{PATH}/start/{self.seal.close('link', upstream, owner)}"


@dataclass(eq=False)
class CallerUpstreams:
    """The upstreams as the caller of one run has them."""

    accounts: Accounts
    caller: Caller = LOCAL
    channel: ClientChannel = NO_CLIENT
    most_seconds: float = math.inf
    """How long a sign-in may take at most: the script has to go on, or to be told of the link, within its time."""
    _asking: dict[str, anyio.Lock] = field(default_factory=dict)
    _asked: set[str] = field(default_factory=set)
    """Upstreams about which the person was asked: once for each run."""

    @property
    def fleet(self) -> Fleet:
        """The portal's own."""
        return self.accounts.fleet

    def are_persons(self, name: str) -> bool:
        """Whether an upstream answers the caller as one person among others. Raises UpstreamCallerError."""
        return self.accounts.person(name, self.caller) is not None

    async def ready(self, name: str, *, may_ask: bool = True) -> None:
        """Return when the caller may call an upstream. Asks the person to sign in, and waits at most `call_seconds`,
        unless it may not ask.

        Raises UpstreamError: there is no login, or no such person.
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

    @asynccontextmanager
    async def of(self, name: str) -> AsyncIterator[Upstream]:
        """The caller's upstream, for one request; asks nobody. Raises UpstreamError: as `ready`."""
        person = self.accounts.person(name, self.caller)
        if person is None:
            yield self.fleet[name]
            return
        try:
            async with self.fleet.people.of(name, person) as upstream:
                yield upstream
        except UpstreamNeedsLoginError as error:
            if self.accounts.spec(name) is None:  # only its headers name the person
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
                    if await self.channel.ask_to_sign_in(name, link):
                        # Polled, because another replica may serve the pages.
                        while not await self._has_login(name, person):  # noqa: ASYNC110
                            await anyio.sleep(_POLL_SECONDS)
            if not await self._has_login(name, person):
                raise self._sign_in_error(name, person)

    def _sign_in_error(self, name: str, person: Person) -> UpstreamSignInError:
        link = self.accounts.link(name, person.owner)
        return UpstreamSignInError(f"upstream {name!r}: you have to sign in there first, at {link}")
