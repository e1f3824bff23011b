"""The sessions of callers: variables that are kept from one script to the next."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import anyio

from manifests.kernels import KernelName
from manifests.portal_manifest import ServerSettings
from portal.base.caller import Caller
from portal.base.errors import RunsError
from portal.calls.run import SessionHistory
from portal.records.store.records import ambiguous
from sandbox_runtime.errors import WorkerStartError
from sandbox_runtime.fair_queue import has_room
from sandbox_runtime.sandbox import Sandbox, Session

NEW = "new"
"""The value that a caller passes to start a session."""


class SessionError(RunsError):
    """There is no session for the script. Nothing ran.

    `code` is unknown_session, ambiguous_session, session_busy, other_kernel or sandbox_busy.
    """


@dataclass(frozen=True, slots=True)
class IdleSession:
    session: Session
    kernel: KernelName
    caller: Caller
    ends: float


@dataclass(eq=False)
class Sessions:
    """At most `server.sessions` sessions, each a worker process of a few megabytes.

    A session ends after `server.session_idle_seconds` without use. To make room, the caller with the most sessions
    loses the least recently used idle one, but never to a caller with more. If all sessions of others are busy, a
    caller with less than an equal share gets a further one, up to twice `server.sessions`. A session belongs to the
    caller who started it, if the caller is known. Ids begin with `home`.
    """

    settings: ServerSettings
    home: str = ""
    _idle: dict[str, IdleSession] = field(default_factory=dict)
    """By id, least recently used first."""
    _busy: dict[object, Caller] = field(default_factory=dict)
    """By id, the sessions that run a script, and those that are starting."""
    _histories: WeakKeyDictionary[Session, SessionHistory] = field(default_factory=WeakKeyDictionary)

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
            session, owner = self._resume(identifier, caller, sandbox.kernel.name)
        self._busy[session.id] = owner
        try:
            yield session
        finally:
            del self._busy[session.id]
            if session.alive:
                ends = anyio.current_time() + self.settings.session_idle_seconds
                self._idle[session.id] = IdleSession(session, sandbox.kernel.name, owner, ends)

    def history(self, session: Session | None) -> SessionHistory:
        """What earlier runs left in a session's variables; nothing without a session."""
        return SessionHistory() if session is None else self._histories.setdefault(session, SessionHistory())

    async def keep(self) -> None:
        """Drop each idle session when it expires, until cancelled."""
        while True:
            oldest = next(iter(self._idle.values()), None)
            seconds = oldest.ends - anyio.current_time() if oldest else self.settings.session_idle_seconds
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
                f"all {self.settings.sessions} sessions (server.sessions) are running scripts",
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
        session.id = self.home + session.id
        return session

    def _make_room(self, key: str) -> bool:
        """Drop idle sessions until the caller can start another. Returns whether it can."""
        while True:
            callers = *self._busy.values(), *(idle.caller for idle in self._idle.values())
            if len(callers) < self.settings.sessions:
                return True
            held = Counter(each.queue_key for each in callers)
            may_exceed = has_room(held, key, self.settings.sessions, 2 * self.settings.sessions)
            held[key] += 1  # counting the one that it wants
            # Among equals the first is dropped, which was idle longest.
            holders = {name: held[idle.caller.queue_key] for name, idle in self._idle.items()}
            largest = max(holders, key=holders.__getitem__, default="")
            spare = holders.get(largest, 0) - held[key]
            if spare <= 0 and may_exceed:
                return True
            if spare < 0:
                return False
            self._drop(largest)

    def _resume(self, identifier: str, caller: Caller, kernel: KernelName) -> tuple[Session, Caller]:
        """Take the caller's idle session with this id; if the caller is known, a unique prefix will do."""
        start = self.home + identifier.removeprefix(self.home)
        held = *self._busy.items(), *((each, idle.caller) for each, idle in self._idle.items())
        own = [each for each, holder in held if isinstance(each, str) and holder.owner == caller.owner]
        may_be_short = caller.owner and len(start) - len(self.home) >= 4
        found = [each for each in own if each == identifier or (may_be_short and each.startswith(start))]
        if len(found) > 1:
            raise SessionError(*ambiguous("session", identifier, found))
        if not found:
            raise SessionError(
                "unknown_session",
                f"session {identifier[:40]!r} does not exist. It ended, was idle for more than "
                f"{self.settings.session_idle_seconds:g} s, made room for another, or belongs to another connection",
                'Pass session="new" to start one, and define again what the script needs.',
            )
        if found[0] in self._busy:
            message = f"session {found[0][:40]!r} is running another script"
            raise SessionError("session_busy", message, "Wait for its answer, or start another session.")
        idle = self._idle[found[0]]
        if idle.kernel != kernel:
            message = f"session {found[0][:40]!r} has the kernel {idle.kernel}, and this script {kernel}"
            hint = f'Pass kernel="{idle.kernel}", or session="new".'
            raise SessionError("other_kernel", message, hint)
        del self._idle[found[0]]
        return idle.session, idle.caller
