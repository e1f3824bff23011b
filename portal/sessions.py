"""Callers, the sessions that belong to them, and which tool a name means in each."""

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request

from manifests.portal_manifest import ServerSettings
from portal.library.function import Function
from portal.library.library import Library, Namespace
from sandbox_runtime.calls import CallError
from sandbox_runtime.errors import WorkerStartError
from sandbox_runtime.sandbox import Sandbox, Session

_SESSION_HEADER = "mcp-session-id"


@dataclass(frozen=True, slots=True)
class Caller:
    """`share` tells callers apart who take turns; `owner` is whom a session belongs to, "" where nobody is known.

    The two differ because a guess is good enough for the first and not for the second: clients behind one address
    share their turns, but nobody gets or loses a session by an address.
    """

    share: str
    owner: str
    profile: str | None = None
    """The profile that its token binds it to."""
    tenant: str | None = None
    """Whom its token is said to belong to."""
    is_one_client: bool = True
    """Whether all of its requests come from one client, so that what belongs to one of them may be told to another."""


BEARER = "mcp_code_portal.bearer"
"""The key in a request's ASGI scope under which the gate leaves the Bearer of its token."""


@dataclass(frozen=True, slots=True)
class Bearer:
    """Whoever sent one of `server.tokens`; `name` tells the tokens apart."""

    name: str
    profile: str | None
    tenant: str | None = None


LOCAL = Caller("local", "local")
"""The one client of a process: over stdio, or the command line."""


def caller_of(context: ServerRequestContext[Any, Any]) -> Caller:
    """The caller of one request.

    Over HTTP that is the MCP session where there is one: its id is the portal's own, and the SDK has looked it up
    before. Without one, as since revision 2026-07-28, it is the client's address, which is nobody in particular.
    Bearers of one of `server.tokens` are told apart from all others, and bound to its profile.

    Source: MCP 2025-11-25, basic/transports#session-management; MCP 2026-07-28 has no sessions.
    """
    request = context.request
    if not isinstance(request, Request):
        return LOCAL
    caller = _client(context, request)
    bearer = request.scope.get(BEARER)
    if not isinstance(bearer, Bearer):
        return caller
    # No session of theirs is anybody's who came with another token, or with none.
    # However many sessions they open, they take turns as one.
    owner = f"{bearer.name} {caller.owner}"
    # Without a session nothing tells apart the clients that have one token.
    return Caller(bearer.name, owner, bearer.profile, bearer.tenant, caller.is_one_client)


def _client(context: ServerRequestContext[Any, Any], request: Request) -> Caller:
    # The header means nothing in the newer era, where whoever likes may send one.
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS and _SESSION_HEADER in request.headers:
        session = f"session {request.headers[_SESSION_HEADER]}"
        return Caller(session, session)
    return Caller(f"address {request.client.host if request.client else ''}", "", is_one_client=False)


_MAX_CHARACTERS: Final = 100
"""Of a tool's name no more is told."""


@dataclass(eq=False)
class SessionPast:
    """What the runs of a session so far may have left for its next one: results, and functions that they imported.

    Functions that a session keeps call by name, and a name may become another tool's once the upstream lists one that
    is called just that: so the tools that names meant first are kept.
    """

    sources: set[str] = field(default_factory=set)
    """Where their calls went: what came back may be in its variables."""
    _tools: dict[str, str] = field(default_factory=dict)
    _known: dict[str, Namespace] = field(default_factory=dict)

    def note(self, library: Library, namespaces: Iterable[str]) -> None:
        """A run may import from these namespaces."""
        for name in namespaces:
            namespace = library.namespaces.get(name)
            if namespace is not None and self._known.get(name) is not namespace:
                self._known[name] = namespace
                for function in namespace.functions.values():
                    self._tools.setdefault(function.qualified, function.tool)

    def change(self, function: Function) -> CallError | None:
        """Why a function is not called by its name, which meant another tool before."""
        before = self._tools.setdefault(function.qualified, function.tool)
        if before == function.tool:
            return None
        now, was = repr(function.tool[:_MAX_CHARACTERS]), repr(before[:_MAX_CHARACTERS])
        return CallError(
            "tool_changed",
            f"{function.qualified} is the tool {now} now, and was {was} before in this session",
            'Nothing was sent. What the session kept may mean either: begin another one with session="new".',
        )


NEW = "new"
"""What a caller passes to begin a session."""


class SessionError(Exception):
    """The script has no session to run in, and nothing of it ran.

    `code` is unknown_session, session_busy or sandbox_busy.
    """

    def __init__(self, code: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


@dataclass(frozen=True, slots=True)
class _Parked:
    session: Session
    caller: Caller
    ends: float


class Sessions:
    """At most `server.sessions` of them, each a worker process of a few megabytes.

    One is dropped when it was idle for `server.session_idle_seconds`, or to make room: then it is the one used
    least recently, of the caller who holds most. Each belongs to the caller who began it, where the caller is known.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._capacity = settings.sessions
        self._idle_seconds = settings.session_idle_seconds
        self._parked: dict[str, _Parked] = {}
        """The one used least recently is first."""
        self._busy: dict[object, Caller] = {}
        """By id those that run a script; and those that are being started."""

    @asynccontextmanager
    async def use(
        self, sandbox: Sandbox, identifier: str | None, caller: Caller
    ) -> AsyncIterator[Session | None]:
        """The session of one run: None for none, a new one for NEW, else the caller's with that id.

        It is parked again when the run ended and it is still alive.

        Raises:
            SessionError: The caller has none with that id (any more), another run uses it, or a new one would be one
                too many or could not be started.
        """
        if identifier is None:
            yield None
            return
        self._drop_idle()
        if identifier == NEW:
            session, owner = await self._begin(sandbox, caller), caller
        else:
            session, owner = self._taken(identifier, caller)
        self._busy[session.id] = owner
        try:
            yield session
        finally:
            del self._busy[session.id]
            if session.alive:
                ends = anyio.current_time() + self._idle_seconds
                self._parked[session.id] = _Parked(session, owner, ends)

    async def keep(self) -> None:
        """Drop each idle session as its time comes, until cancelled."""
        while True:
            oldest = next(iter(self._parked.values()), None)
            seconds = oldest.ends - anyio.current_time() if oldest else self._idle_seconds
            await anyio.sleep(max(seconds, 0))
            self._drop_idle()

    def _drop_idle(self) -> None:
        now = anyio.current_time()
        for identifier, parked in list(self._parked.items()):
            if parked.ends <= now or not parked.session.alive:
                self._drop(identifier)

    def _drop(self, identifier: str) -> None:
        self._parked.pop(identifier).session.close()

    async def _begin(self, sandbox: Sandbox, caller: Caller) -> Session:
        while self._parked and self._size >= self._capacity:
            self._drop(self._least_due(caller))
        if self._size >= self._capacity:
            raise SessionError(
                "session_busy",
                f"all {self._capacity} sessions (server.sessions) are running scripts now",
                "Wait for one of their answers, or run the script without a session.",
            )
        start = object()
        self._busy[start] = caller
        try:
            return await sandbox.open_session()
        except WorkerStartError as error:
            told = f"no session could be started: {error}"
            raise SessionError("sandbox_busy", told, "Try again in a moment.") from error
        finally:
            del self._busy[start]

    @property
    def _size(self) -> int:
        return len(self._parked) + len(self._busy)

    def _least_due(self, caller: Caller) -> str:
        """The idle session that makes room for one more of the caller's."""
        callers = caller, *self._busy.values(), *(parked.caller for parked in self._parked.values())
        held = Counter(each.share for each in callers)
        # The first of several greatest is the one used least recently.
        return max(self._parked, key=lambda identifier: held[self._parked[identifier].caller.share])

    def _taken(self, identifier: str, caller: Caller) -> tuple[Session, Caller]:
        busy = self._busy.get(identifier)
        if busy is not None and busy.owner == caller.owner:
            told = f"session {identifier[:40]!r} is running another script"
            raise SessionError("session_busy", told, "Wait for its answer, or begin another session.")
        parked = self._parked.get(identifier)
        if parked is None or parked.caller.owner != caller.owner:
            raise SessionError(
                "unknown_session",
                f"there is no session {identifier[:40]!r}: it ended, was idle for longer than "
                f"{self._idle_seconds:g} s, made room for another, is of another connection, or never was",
                'Pass session="new" to begin one, and define again what the script needs.',
            )
        del self._parked[identifier]
        return parked.session, parked.caller
