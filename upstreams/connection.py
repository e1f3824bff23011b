"""The connection to an upstream, as its calls share it: they take its session, or wait here while there is none."""

import asyncio
from collections.abc import Callable
from math import inf

import anyio

from upstreams.lifecycle import Event, Lifecycle
from upstreams.session import Session


class Connection:
    """The state of one connection after another, and the session that is open. `on_change` hears of each state."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self.lifecycle = Lifecycle(self.now)
        self.session: Session | None = None
        self.users = 0
        """Calls that use a session of this connection, or wait for one."""
        self._last_used = self.now()
        self._successor: Connection | None = None
        self._on_change = on_change
        self._published = self.lifecycle.state
        self._news = anyio.Event()

    def now(self) -> float:
        """The loop's time in seconds."""
        return self._loop.time()

    @property
    def is_stopped(self) -> bool:
        return self.lifecycle.state.status == "stopped"

    @property
    def idle_seconds(self) -> float:
        """How long no call has used it."""
        return 0.0 if self.users else self.now() - self._last_used

    async def take(self, deadline: float, wait_until: float = -inf) -> "tuple[Connection, Session]":
        """The session for one call, and the connection to release it to, which may be a later one.

        Waits while the upstream is starting, and as `Lifecycle.wait_deadline` says.
        Raises UpstreamUnavailableError: there is no session in time.
        """
        self.users += 1
        try:
            self.want()
            while (session := self.session) is None or session.wire.ended.is_set():
                if (successor := self._successor) is not None:
                    break
                left_seconds = min(deadline, self.lifecycle.wait_deadline(wait_until)) - self.now()
                if left_seconds <= 0:
                    raise self.lifecycle.unavailable()
                with anyio.move_on_after(left_seconds):
                    await self._news.wait()
            else:
                return self, session
        except BaseException:
            self.release()
            raise
        # Released first, so that this connection can end while the call waits for its successor.
        self.release()
        return await successor.take(deadline, wait_until)

    def release(self) -> None:
        """A call that took a session has ended."""
        self.users -= 1
        self._last_used = self.now()
        if not self.users and self.is_stopped:
            self._wake()

    def want(self) -> None:
        """Request a connection: ends idling, and the backoff if the last attempt is old enough."""
        if self.session is None and self.lifecycle.want():
            self.publish()

    def serve(self, session: Session, circuit_reason: str) -> None:
        """Give the session to calls. A connection that was removed takes none."""
        self.session = None if self.is_stopped else session
        self.lifecycle.serve(circuit_reason)
        self.publish()

    def withdraw(self) -> None:
        """No further call may use the session."""
        self.session = None

    def stop(self, reason: str, successor: "Connection | None" = None) -> None:
        """Refuse all further calls, or pass them on, and those that wait, to the successor."""
        self._successor = successor or self._successor
        self.session = None
        self.note("removed", reason)

    def note(self, event: Event, detail: str = "") -> None:
        """Apply an event, and tell of the state after it."""
        self.lifecycle.note(event, detail)
        self.publish()

    def publish(self) -> None:
        """Wake all that wait for a change, and tell of a new state."""
        self._wake()
        if self.lifecycle.state is not self._published:
            self._published = self.lifecycle.state
            self._on_change()

    async def changed(self) -> None:
        """Wait for the next change."""
        await self._news.wait()

    def _wake(self) -> None:
        self._news.set()
        self._news = anyio.Event()
