"""Personal connections to upstreams: with the person's own tokens, or with headers that name the person.

Rule 1: each person has a connection of their own. An upstream binds a session to the person who began it.
Rule 2: an unused connection ends when it is idle or cannot be opened. It is never retried without a caller.
"""

import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio

from manifests.references import CallerHeader
from upstreams.errors import UpstreamClaimError, UpstreamUnavailableError
from upstreams.upstream import Upstream

if TYPE_CHECKING:
    from upstreams.oauth.tokens import Logins

IDLE_SECONDS: Final = 300.0
MAX_CONNECTIONS: Final = 1_000
"""Personal connections to all upstreams. One more ends the least recently used one."""

MAX_CLAIM_CHARACTERS: Final = 1_024
_CLAIM: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
"""Printable ASCII: servers do not agree on what other characters in a header mean."""


@dataclass(frozen=True)
class Person:
    """A caller who signed in. `owner` identifies the person; `claims` are those that headers may name."""

    owner: str
    claims: Mapping[str, str] = field(default_factory=dict, repr=False)


Headers: TypeAlias = Mapping[str, str]
OnChange: TypeAlias = Callable[[Upstream], None]
OpenOwn: TypeAlias = Callable[[str, Headers, Person, OnChange], Upstream]
"""Opens the upstream of this name with these headers and the person's login. The callback is its `on_change`."""

PORTAL: Final = ""
"""The owner of the portal's own logins."""

LoginsOf: TypeAlias = Callable[[str, str, str], "Logins"]
"""Return the login for an upstream's name and URL, and a person's `owner` or PORTAL."""


@dataclass(eq=False)
class _Connection:
    upstream: Upstream
    users: int = 0
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    @property
    def is_over(self) -> bool:
        return self.users == 0 and self.upstream.state.status not in ("starting", "ready", "failing")

    async def run(self) -> None:
        with self.scope:
            await self.upstream.supervisor.run()


@dataclass(eq=False)
class PeoplesUpstreams:
    """The connections of people. `caller_headers` gives the headers of an upstream that name claims."""

    open_own: OpenOwn
    caller_headers: Callable[[str], Mapping[str, CallerHeader]]
    start: Callable[..., object]
    _connections: OrderedDict[tuple[str, str, str], _Connection] = field(default_factory=OrderedDict)
    """By upstream, owner and headers; least recently used first."""

    def __len__(self) -> int:
        return len(self._connections)

    def headers(self, upstream: str, claims: Mapping[str, str]) -> Headers:
        """The headers that name the person. Raises UpstreamClaimError: a claim is missing, or not valid in a header."""
        return {
            name: "".join(
                part if isinstance(part, str) else _claim(upstream, name, part.claim, claims)
                for part in parts
            )
            for name, parts in self.caller_headers(upstream).items()
        }

    @asynccontextmanager
    async def of(self, upstream: str, person: Person) -> AsyncIterator[Upstream]:
        """The person's upstream, for as long as the context is open.

        Raises UpstreamClaimError, and UpstreamUnavailableError: `MAX_CONNECTIONS` are in use.
        """
        headers = self.headers(upstream, person.claims)
        key = upstream, person.owner, repr(headers)
        connection = self._connections.get(key) or self._opened(key, headers, person)
        self._connections.move_to_end(key)
        connection.users += 1
        try:
            yield connection.upstream
        finally:
            connection.users -= 1
            self._end_if_over(key, connection)

    def remove(self, upstream: str, reason: str, owner: str | None = None) -> None:
        """End the connections to an upstream, of this owner or of all, after their calls in flight."""
        for key in [key for key in self._connections if key[0] == upstream and owner in (None, key[1])]:
            self._connections.pop(key).upstream.remove(reason)

    def _opened(self, key: tuple[str, str, str], headers: Headers, person: Person) -> _Connection:
        if len(self._connections) >= MAX_CONNECTIONS:
            unused = next((each for each, held in self._connections.items() if not held.users), None)
            if unused is None:
                message = f"all {MAX_CONNECTIONS:,} connections of people are in use"
                raise UpstreamUnavailableError(f"upstream {key[0]!r}: {message}")
            self._connections.pop(unused).scope.cancel()
        connection = _Connection(
            self.open_own(key[0], headers, person, lambda upstream: self._end_if_over(key, connection))
        )
        self._connections[key] = connection
        self.start(connection.run)
        return connection

    def _end_if_over(self, key: tuple[str, str, str], connection: _Connection) -> None:
        if connection.is_over and self._connections.get(key) is connection:
            del self._connections[key]
            connection.scope.cancel()


def _claim(upstream: str, header: str, claim: str, claims: Mapping[str, str]) -> str:
    value = claims.get(claim)
    if value is None:
        why = "which the caller lacks"
    elif len(value) > MAX_CLAIM_CHARACTERS or not _CLAIM.fullmatch(value):
        why = f"whose value is not 1 to {MAX_CLAIM_CHARACTERS:,} characters of printable ASCII"
    else:
        return value
    raise UpstreamClaimError(f"upstream {upstream!r}: its header {header} needs the claim {claim!r}, {why}")
