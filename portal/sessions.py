"""Callers, their sessions, and the tool that each name means in a session."""

import hashlib
import math
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import anyio
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request

from manifests.json_value import Json
from manifests.portal_manifest import ServerSettings
from portal.library.function import Function
from portal.library.library import Library, Namespace
from portal.store.records import ambiguous
from sandbox_runtime.calls import CallError
from sandbox_runtime.errors import WorkerStartError
from sandbox_runtime.fair_queue import has_room
from sandbox_runtime.sandbox import Sandbox, Session

_SESSION_HEADER = "mcp-session-id"


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request. `queue_key` identifies it in fair queues; `owner` owns sessions, "" if unknown.

    An address identifies a client well enough for queues, which clients behind one address share. It proves no
    ownership of a session.
    """

    queue_key: str
    owner: str
    profile: str | None = None
    """The profile that its token sets."""
    tenant: str | None = None
    """The tenant that its token sets."""
    is_one_client: bool = True
    """Whether all of its requests come from one client. If not, they must not see each other's data."""
    run_owner: str = "local"
    """Owns runs and kept results: everybody without one of `server.tokens`, or one of those with its tenant and
    profile."""
    claims: tuple[tuple[str, str], ...] | None = None
    """Of a person who signed in: the claims that headers of upstreams name. None for everybody else."""

    @property
    def label(self) -> str:
        """Its name for people. Anyone who knows the id of an MCP session can join it, so that is a hash here."""
        kind, _, identifier = self.queue_key.partition(" ")
        if kind != "session":
            return self.queue_key
        return f"session {hashlib.sha256(identifier.encode()).hexdigest()[:16]}"


BEARER = "mcp_code_portal.bearer"
"""The key in the ASGI scope under which HttpAccessMiddleware stores the Bearer of the token, None for `server.token`.
Without a token there is none."""


@dataclass(frozen=True, slots=True)
class Bearer:
    """The owner of one of `server.tokens`, or a person who signed in; `name` identifies it."""

    name: str
    profile: str | None
    tenant: str | None = None
    run_owner: str = "local"
    ends: float = math.inf
    """When the token expires, in seconds since 1970."""
    claims: tuple[tuple[str, str], ...] | None = None
    token_claims: Mapping[str, Json] = field(default_factory=dict, compare=False, repr=False)
    """All claims of its token."""
    entry: str = ""
    """`token:NAME`, if the token has a name."""

    @classmethod
    def of(
        cls, name: str, identity: bytes, profile: str | None, tenant: str | None, ends: float = math.inf
    ) -> Self:
        """The bearer that `identity` tells from all others, and who owns runs in this tenant with this profile."""
        owner = (tenant or "", profile or "", hashlib.sha256(identity).hexdigest())
        return cls(name, profile, tenant, "/".join(owner), ends)


def tenant_of(run_owner: str) -> str:
    """The tenant of an owner of runs; "" without one."""
    return run_owner.rpartition("/")[0].partition("/")[0]


def identity_of(run_owner: str) -> str:
    """What an owner of runs has in common with the same person in another tenant or with another profile."""
    return run_owner.rpartition("/")[2]


LOCAL = Caller("local", "local")
"""The one client of a process: over stdio, or the command line."""

WITHOUT_TOKEN: Final = "http"
"""Owns the runs of everybody who reaches a port that wants no token: not those of the client over stdio. An id of these
runs and of what they keep is a secret, of which no part is enough."""


def caller_of(context: ServerRequestContext[Any, Any]) -> Caller:
    """The caller of one request.

    Over HTTP it is identified by the MCP session, if there is one. The portal issued the session id, and the SDK has
    checked it. Without one, as since revision 2026-07-28, it is identified by address, and its owner is unknown.
    The bearer of one of `server.tokens` is separate from all others and gets the token's profile.

    Source: MCP 2025-11-25, basic/transports#session-management; MCP 2026-07-28 has no sessions.
    """
    request = context.request
    if not isinstance(request, Request):
        return LOCAL
    return http_caller(request, _session(context, request))


def http_caller(request: Request, session: Caller | None = None) -> Caller:
    """The caller of a request over HTTP. `session` is its MCP session, if there is one."""
    caller = session or Caller(
        f"address {request.client.host if request.client else ''}", "", is_one_client=False
    )
    bearer = request.scope.get(BEARER)
    if not isinstance(bearer, Bearer):
        return caller if BEARER in request.scope else replace(caller, run_owner=WITHOUT_TOKEN)
    # A session belongs to one token: other tokens cannot use it. All sessions of a token share one queue.
    owner = f"{bearer.run_owner} {caller.owner}"
    # Without an MCP session, clients with the same token cannot be distinguished.
    own = bearer.profile, bearer.tenant, caller.is_one_client, bearer.run_owner, bearer.claims
    return Caller(bearer.name, owner, *own)


def _session(context: ServerRequestContext[Any, Any], request: Request) -> Caller | None:
    # The newer era ignores the header: any client could send one.
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS and _SESSION_HEADER in request.headers:
        session = f"session {request.headers[_SESSION_HEADER]}"
        return Caller(session, session)
    return None


_MAX_CHARACTERS: Final = 100
"""A message shows at most this much of a tool's name."""


@dataclass(eq=False)
class SessionHistory:
    """What earlier runs of a session may have left in its variables: results and imported functions.

    A kept function calls its tool by name. If the upstream later lists a tool of that very name, the name means another
    tool. So the history holds the tool that each name meant first.
    """

    sources: set[str] = field(default_factory=set)
    """The upstreams that were called, by key, and NETWORK: their results may be in variables."""
    _tools: dict[str, str] = field(default_factory=dict)
    _known: dict[str, Namespace] = field(default_factory=dict)

    def record_namespaces(self, library: Library, namespaces: Iterable[str]) -> None:
        """Record the tools of the namespaces from which a run may import."""
        for name in namespaces:
            namespace = library.namespaces.get(name)
            if namespace is not None and self._known.get(name) is not namespace:
                self._known[name] = namespace
                for function in namespace.functions.values():
                    self._tools.setdefault(function.qualified, function.tool)

    def tool_change(self, function: Function) -> CallError | None:
        """The error if the function's name meant another tool earlier in the session, else None."""
        before = self._tools.setdefault(function.qualified, function.tool)
        if before == function.tool:
            return None
        now, was = repr(function.tool[:_MAX_CHARACTERS]), repr(before[:_MAX_CHARACTERS])
        return CallError(
            "tool_changed",
            f"{function.qualified} now means the tool {now}; earlier in this session it meant {was}",
            'Nothing was sent. Variables of this session may refer to either tool. Start another with session="new".',
        )


NEW = "new"
"""What a caller passes to start a session."""


class SessionError(Exception):
    """There is no session for the script. Nothing ran.

    `code` is unknown_session, ambiguous_session, session_busy or sandbox_busy.
    """

    def __init__(self, code: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint


@dataclass(frozen=True, slots=True)
class IdleSession:
    session: Session
    caller: Caller
    ends: float


class Sessions:
    """At most `server.sessions` sessions, each a worker process of a few megabytes.

    A session ends after `server.session_idle_seconds` without use. To make room, the caller with the most sessions
    loses the least recently used idle one, but nobody does to a caller with more. If all of others are busy, a caller
    with less than an equal share gets a further one, up to twice `server.sessions`. A session belongs to the caller who
    started it, if the caller is known. Ids begin with `home`.
    """

    def __init__(self, settings: ServerSettings, home: str = "") -> None:
        self._home = home
        self._capacity = settings.sessions
        self._idle_seconds = settings.session_idle_seconds
        self._idle: dict[str, IdleSession] = {}
        """By id, least recently used first."""
        self._busy: dict[object, Caller] = {}
        """By id those that run a script, and those that are starting."""

    @asynccontextmanager
    async def use(
        self, sandbox: Sandbox, identifier: str | None, caller: Caller
    ) -> AsyncIterator[Session | None]:
        """Yield the session of one run: None without `identifier`, a new one for NEW, else the caller's own.

        After the run it is idle again, if it is still alive.

        Raises:
            SessionError: The caller has no session with that id, another run uses it, `server.sessions` are all busy,
                or a new one could not be started.
        """
        if identifier is None:
            yield None
            return
        self._drop_expired()
        if identifier == NEW:
            session, owner = await self._begin(sandbox, caller), caller
        else:
            session, owner = self._resume(identifier, caller)
        self._busy[session.id] = owner
        try:
            yield session
        finally:
            del self._busy[session.id]
            if session.alive:
                ends = anyio.current_time() + self._idle_seconds
                self._idle[session.id] = IdleSession(session, owner, ends)

    async def keep(self) -> None:
        """Drop each idle session when it expires, until cancelled."""
        while True:
            oldest = next(iter(self._idle.values()), None)
            seconds = oldest.ends - anyio.current_time() if oldest else self._idle_seconds
            await anyio.sleep(max(seconds, 0))
            self._drop_expired()

    def _drop_expired(self) -> None:
        now = anyio.current_time()
        for identifier, idle in list(self._idle.items()):
            if idle.ends <= now or not idle.session.alive:
                self._drop(identifier)

    def _drop(self, identifier: str) -> None:
        self._idle.pop(identifier).session.close()

    async def _begin(self, sandbox: Sandbox, caller: Caller) -> Session:
        if not self._make_room(caller.queue_key):
            raise SessionError(
                "session_busy",
                f"all {self._capacity} sessions (server.sessions) are running scripts",
                "Wait until one of them ends, or run the script without a session.",
            )
        start = object()
        self._busy[start] = caller
        try:
            session = await sandbox.open_session()
        except WorkerStartError as error:
            message = f"no session could be started: {error}"
            raise SessionError("sandbox_busy", message, "Try again in a moment.") from error
        finally:
            del self._busy[start]
        session.id = self._home + session.id
        return session

    def _make_room(self, key: str) -> bool:
        """Drop idle sessions until the caller can start another. Returns whether it can."""
        while True:
            callers = *self._busy.values(), *(idle.caller for idle in self._idle.values())
            if len(callers) < self._capacity:
                return True
            held = Counter(each.queue_key for each in callers)
            may_exceed = has_room(held, key, self._capacity, 2 * self._capacity)
            held[key] += 1  # with the one that it wants
            # Of equal ones the first is taken, the one that was idle longest.
            holders = {name: held[idle.caller.queue_key] for name, idle in self._idle.items()}
            largest = max(holders, key=holders.__getitem__, default="")
            spare = holders.get(largest, 0) - held[key]
            if spare <= 0 and may_exceed:
                return True
            if spare < 0:
                return False
            self._drop(largest)

    def _full_id(self, written: str, caller: Caller) -> str:
        """The id of the caller's only session that begins so, if the caller is known; else what is written."""
        digits = written.removeprefix(self._home)
        held = *self._busy.items(), *((each, idle.caller) for each, idle in self._idle.items())
        own = [str(each) for each, holder in held if holder.owner == caller.owner != ""]
        found = [each for each in own if len(digits) >= 4 and each.startswith(self._home + digits)]
        if len(found) > 1:
            raise SessionError(*ambiguous("session", written, found))
        return found[0] if found else written

    def _resume(self, identifier: str, caller: Caller) -> tuple[Session, Caller]:
        identifier = self._full_id(identifier, caller)
        busy = self._busy.get(identifier)
        if busy is not None and busy.owner == caller.owner:
            message = f"session {identifier[:40]!r} is running another script"
            raise SessionError("session_busy", message, "Wait for its answer, or start another session.")
        idle = self._idle.get(identifier)
        if idle is None or idle.caller.owner != caller.owner:
            raise SessionError(
                "unknown_session",
                f"session {identifier[:40]!r} does not exist. It ended, was idle for more than "
                f"{self._idle_seconds:g} s, made room for another, or belongs to another connection",
                'Pass session="new" to start one, and define again what the script needs.',
            )
        del self._idle[identifier]
        return idle.session, idle.caller
