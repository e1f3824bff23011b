"""Keeps one connection to an upstream open, or ready to be opened."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import anyio
import structlog
from anyio.abc import TaskStatus

from manifests.portal_manifest import StdioUpstream
from upstreams import errors
from upstreams.connector import Connector
from upstreams.health import CircuitBreaker, Event, Lifecycle
from upstreams.session import Session
from upstreams.transports.notifications import OFFERINGS, TOOLS

log = structlog.get_logger()

STABLE_SECONDS: Final = 10.0
STABLE_HTTP_SECONDS: Final = 1.0
"""A connection that lasted this long, or answered a call, is not a failure. Proxies may cut HTTP ones early."""

RELIST_PAUSE_SECONDS: Final = 1.0
"""Pause between two listings of an upstream whose tools keep changing."""

RELIST_SECONDS: Final = 600.0
"""Listed again after that: a stateless server cannot say that a newer one took its place, and others do not."""

PROBE_SECONDS: Final = 10.0
"""After a call timed out, an upstream without any answer for this long (at most `call_seconds`) is reconnected."""


@dataclass(eq=False)
class Supervisor:
    """Connects and reconnects: `run` does so in its own task, and calls use the session of `availability`."""

    connector: Connector
    availability: "Availability"
    circuit: CircuitBreaker
    on_offering_change: Callable[[], None]
    idle_stop_seconds: float | None
    _has_served: bool = False
    _was_refused: bool = False
    """Whether the last connection that served was refused; an attempt that failed since changes nothing."""

    async def run(self) -> None:
        """Connect, serve and reconnect until cancelled or removed."""
        try:
            async with anyio.create_task_group() as connections:
                connections.start_soon(self._end_when_removed, connections.cancel_scope)
                if await self.connector.recall():
                    await self._rest()
                while True:
                    await self._wait_to_reconnect(await connections.start(self._connect))
        finally:
            self.availability.stop("the portal is stopping")

    async def _end_when_removed(self, scope: anyio.CancelScope) -> None:
        while not self.availability.is_stopped or self.availability.users:  # each has its deadline
            await self.availability.changed()
        scope.cancel()

    async def _rest(self) -> None:
        """Idle until a connection is requested."""
        if not self.availability.lifecycle.is_wanted:
            self.availability.note("rested")
            while not self.availability.lifecycle.is_wanted:
                await self.availability.changed()
        self.availability.note("reopened")

    async def _connect(self, *, task_status: TaskStatus["_Ending"]) -> None:
        """Hold one connection. Reports its ending once the next may be opened; if retired, before its calls end."""
        began = self.availability.now()
        self.availability.lifecycle.begin_attempt()
        ending = _Ending()
        is_reported = False
        try:
            async with self.connector.open() as session:
                ending.session = session
                one, ms = self.connector.listed, round((self.availability.now() - began) * 1000)
                told = {"server": one.server, "tools": len(one.tools), "ms": ms}
                log.info("upstream_connected", upstream=one.name, **told)
                is_only_listed = self.connector.spec.start == "lazy" and not self._has_served
                if not is_only_listed or self.availability.lifecycle.is_wanted:
                    ending.reason = await self._serve(session)
                if is_reported := session.retirement.is_retired:
                    task_status.started(ending)
                    await session.questions.last_call()
        # The SDK or a transport may raise anything over untrusted input. It ends this connection only, and must not
        # cancel the other upstreams in the task group.
        except Exception as error:  # noqa: BLE001
            cause = errors.cause_of(error)
            ending = _Ending(errors.describe(cause), cause, ending.session)
        if not is_reported:
            task_status.started(ending)

    async def _wait_to_reconnect(self, ending: "_Ending") -> None:
        if ending.cause is not None and self.connector.handshake.failed(ending.cause):
            return
        if ending.reason is None:
            await self._rest()
            return
        life, mask = self.availability.lifecycle, self.connector.redact.start
        before, stable_seconds = life.state, None
        if ending.session is not None:
            is_child = isinstance(self.connector.spec, StdioUpstream)
            lasting_seconds = STABLE_SECONDS if is_child else STABLE_HTTP_SECONDS
            stable_seconds = 0.0 if ending.session.answers else lasting_seconds
        needs_login = isinstance(ending.cause, errors.UpstreamNeedsLoginError)
        reason, remedy = mask(ending.reason), mask(getattr(ending.cause, "remedy", ""))
        jitter = random.uniform(0.5, 1.0)
        pause_seconds = life.lose(
            reason, remedy, stable_seconds=stable_seconds, needs_login=needs_login, jitter=jitter
        )
        if life.state is not before:  # logged once, not at every attempt
            event = "upstream_lost" if ending.session else "upstream_not_reached"
            told = {"reason": reason, **({"remedy": remedy} if remedy else {})}
            log.warning(event, upstream=self.connector.listed.name, **told)
        self.availability.publish()
        with anyio.move_on_after(pause_seconds):
            while pause_seconds and not life.is_wanted:
                await self.availability.changed()

    async def _serve(self, session: Session) -> str | None:
        """Use the session until it ends. Returns why it ended, None if it was idle."""
        self._has_served = True
        if self._was_refused:
            session.retirement.begin_grace(self.availability.now())
        self.availability.serve(session, self.connector.redact.start(self.circuit.reason))
        try:
            return await self._follow(session)
        finally:
            self.availability.withdraw()
            self._was_refused = session.retirement.was_refused
            if session.wire.ending.cut_off_reason:
                self.circuit.trip(f"it {session.wire.ending.cut_off_reason}")

    async def _follow(self, session: Session) -> str | None:
        reason: str | None = None
        wire, probe_seconds = session.wire, min(PROBE_SECONDS, self.connector.spec.call_seconds)
        async with anyio.create_task_group() as tasks:
            if session.revision.is_modern:  # others notify without a subscription
                tasks.start_soon(wire.notifications.listen, session.client, wire.ending.give_up)
            tasks.start_soon(self._follow_changes, session)
            tasks.start_soon(self._follow_offerings, session)
            tasks.start_soon(session.watch, probe_seconds)
            if self.idle_stop_seconds is not None:
                tasks.start_soon(self._stop_when_idle, self.idle_stop_seconds, tasks.cancel_scope)
            await wire.ending.ended.wait()
            reason = await wire.ending.explain()
            tasks.cancel_scope.cancel()
        return reason

    async def _stop_when_idle(self, seconds: float, scope: anyio.CancelScope) -> None:
        left_seconds = seconds
        while left_seconds > 0:
            await anyio.sleep(left_seconds)
            left_seconds = seconds - self.availability.idle_seconds
        self.availability.withdraw()  # before any other task runs: no further call may use it
        scope.cancel()

    async def _follow_changes(self, session: Session) -> None:
        while True:
            with anyio.move_on_after(RELIST_SECONDS):
                await session.wire.notifications.change(TOOLS)
            if await self.connector.relist(session):
                one = self.connector.listed
                log.info("upstream_tools_changed", upstream=one.name, tools=len(one.tools))
                self.availability.on_change()
            await anyio.sleep(RELIST_PAUSE_SECONDS)

    async def _follow_offerings(self, session: Session) -> None:
        while True:
            # Also at the start: only now can the server be asked.
            self.on_offering_change()
            await anyio.sleep(RELIST_PAUSE_SECONDS)
            await session.wire.notifications.change(OFFERINGS)


@dataclass
class _Ending:
    """How a connection ended: `reason` is None if it was idle, `cause` is the exception."""

    reason: str | None = None
    cause: BaseException | None = None
    session: Session | None = None
    """None if it never opened."""


class Availability:
    """Whether an upstream can be called: its state, and the session that is open. `on_change` hears of each state."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.now = asyncio.get_running_loop().time
        self.lifecycle = Lifecycle(self.now)
        self.session: Session | None = None
        self.users = 0
        """Calls that use a session taken here, or wait for one."""
        self._last_used = self.now()
        self._successor: Availability | None = None
        self.on_change = on_change
        self._published = self.lifecycle.state
        self._news = anyio.Event()

    @property
    def is_stopped(self) -> bool:
        return self.lifecycle.state.status == "stopped"

    @property
    def idle_seconds(self) -> float:
        """How long no call has used it."""
        return 0.0 if self.users else self.now() - self._last_used

    async def take(self, deadline: float, wait_until: float) -> "tuple[Availability, Session]":
        """The session for one call, and where to release it, which may be the successor.

        Waits while the upstream is starting, and as `Lifecycle.wait_deadline` says.
        Raises UpstreamUnavailableError: there is no session in time.
        """
        self.users += 1
        try:
            self.want()
            while (session := self.session) is None or session.wire.ending.ended.is_set():
                if (successor := self._successor) is not None:
                    break
                left_seconds = min(deadline, self.lifecycle.wait_deadline(wait_until)) - self.now()
                if left_seconds <= 0:
                    raise self.lifecycle.unavailable()
                with anyio.move_on_after(left_seconds):
                    await self._news.wait()
            else:
                self.users += 1  # until the call releases it
                return self, session
        finally:
            self.release()  # so that this one can end while the call waits for its successor
        return await successor.take(deadline, wait_until)

    def release(self) -> None:
        self.users -= 1
        self._last_used = self.now()
        if not self.users and self.is_stopped:
            self.publish()

    def want(self) -> None:
        """Request a connection: ends idling, and the backoff if the last attempt is old enough."""
        if self.session is None and self.lifecycle.want():
            self.publish()

    def serve(self, session: Session, circuit_reason: str) -> None:
        """Give the session to calls. An upstream that was removed takes none."""
        self.session = None if self.is_stopped else session
        self.note("circuit_opened" if circuit_reason else "served", circuit_reason)

    def withdraw(self) -> None:
        """No further call may use the session."""
        self.session = None

    def stop(self, reason: str, successor: "Availability | None" = None) -> None:
        """Refuse all further calls, or pass them on, and those that wait, to the successor."""
        self._successor = successor or self._successor
        self.withdraw()
        self.note("removed", reason)

    def note(self, event: Event, detail: str = "") -> None:
        """Apply an event, and tell of the state after it."""
        self.lifecycle.note(event, detail)
        self.publish()

    def publish(self) -> None:
        """Wake all that wait for a change, and tell of a new state."""
        self._news.set()
        self._news = anyio.Event()
        if self.lifecycle.state is not self._published:
            self._published = self.lifecycle.state
            self.on_change()

    async def changed(self) -> None:
        await self._news.wait()
