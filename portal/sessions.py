"""Sessions: variables, imports and definitions kept between runs, for callers that ask for it."""

from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from manifests.models import ServerSettings
from sandbox_runtime.sandbox import Sandbox
from sandbox_runtime.session import Session

NEW = "new"
"""What a caller passes to begin a session."""


class UnknownSessionError(Exception):
    """The session is not there (any more); nothing of the script ran."""

    code = "unknown_session"
    hint = 'Pass session="new" to begin one, and define again what the script needs.'


class SessionBusyError(UnknownSessionError):
    """Another run of the session is going on; nothing of the script ran."""

    code = "session_busy"
    hint = "Wait for its answer, or begin another session."


class NoSessionFreeError(UnknownSessionError):
    """As many sessions as there may be are running scripts; nothing of this one ran."""

    code = "session_busy"
    hint = "Wait for one of their answers, or run the script without a session."


class Sessions:
    """At most `server.sessions` of them: the one used least recently goes first, an idle one after
    `server.session_idle_seconds`. Each holds a worker process of a few megabytes.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._capacity = settings.sessions
        self._idle_seconds = settings.session_idle_seconds
        self._parked: OrderedDict[str, tuple[Session, float]] = OrderedDict()
        self._busy: set[str] = set()
        self._starting = 0

    @asynccontextmanager
    async def use(self, sandbox: Sandbox, identifier: str | None) -> AsyncIterator[Session | None]:
        """The session of one run: None for none, a new one for NEW, else the one with that id.

        It is parked again when the run ended and it is still alive.

        Raises:
            UnknownSessionError: There is none with that id, or it has ended.
            SessionBusyError: Another run uses it now.
            NoSessionFreeError: A new one would be one too many, and none is idle.
            WorkerStartError: A new one could not be started.
        """
        if identifier is None:
            yield None
            return
        self.drop_idle()
        session = await self._begin(sandbox) if identifier == NEW else self._taken(identifier)
        self._busy.add(session.id)
        try:
            yield session
        finally:
            self._busy.discard(session.id)
            self._park(session)

    def drop_idle(self) -> None:
        """End the sessions that nobody used for `server.session_idle_seconds`."""
        latest = anyio.current_time() - self._idle_seconds
        for identifier, (session, parked_at) in list(self._parked.items()):
            if parked_at < latest or not session.alive:
                del self._parked[identifier]
                session.close()

    async def _begin(self, sandbox: Sandbox) -> Session:
        while self._parked and self._size >= self._capacity:
            _, (oldest, _) = self._parked.popitem(last=False)
            oldest.close()
        if self._size >= self._capacity:
            raise NoSessionFreeError(
                f"all {self._capacity} sessions (server.sessions) are running scripts now"
            )
        self._starting += 1
        try:
            return await sandbox.open_session()
        finally:
            self._starting -= 1

    @property
    def _size(self) -> int:
        return len(self._parked) + len(self._busy) + self._starting

    def _taken(self, identifier: str) -> Session:
        if identifier in self._busy:
            raise SessionBusyError(f"session {identifier[:40]!r} is running another script")
        session, _ = self._parked.pop(identifier, (None, 0.0))
        if session is None or not session.alive:
            raise UnknownSessionError(
                f"there is no session {identifier[:40]!r}: it ended, was idle for longer than "
                f"{self._idle_seconds:g} s, made room for another, or never was"
            )
        return session

    def _park(self, session: Session) -> None:
        if session.alive:
            self._parked[session.id] = (session, anyio.current_time())
