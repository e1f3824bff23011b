"""Keeps one connection to an upstream open, or ready to be opened, whatever happens to it."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import ceil, inf
from typing import Any, Final, Literal

import anyio
import structlog
from anyio.abc import TaskStatus

from manifests.portal_manifest import StdioUpstream, UpstreamSection
from upstreams.errors import (
    UpstreamDownError,
    UpstreamError,
    UpstreamNeedsLoginError,
    UpstreamTimeoutError,
    UpstreamUnavailableError,
)
from upstreams.health import CircuitBreaker, Diagnostics, Status, UpstreamState
from upstreams.questions import ServerRequestRouter
from upstreams.redaction import Redaction
from upstreams.session import HandshakeFirstError, Session, WireOpener, open_session
from upstreams.tools import ListingStore, UpstreamListing
from upstreams.transports.http_errors import cause_of, describe

log = structlog.get_logger()

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 30.0
"""Between two attempts to connect; doubles, with jitter."""

STABLE_SECONDS: Final = 10.0
"""A connection that held this long, or answered a call, was no failure."""

RETRY_ON_CALL_SECONDS: Final = 5.0
"""A call to an upstream whose last attempt to connect failed longer ago than this starts the next at once."""

RECONNECT_WAIT_SECONDS: Final = 10.0
"""Calls wait so long for an attempt to connect that follows a failed one, from its beginning."""

RELIST_PAUSE_SECONDS: Final = 1.0
"""Between two listings of an upstream that keeps saying that its tools changed."""

PROBE_SECONDS: Final = 10.0
"""After a call met its deadline, an upstream that answers nothing at all for this long, or for as long as a call may
take, is connected anew."""


@dataclass(eq=False)
class Supervisor:
    """Connects, notices the end, connects again; `run` does it in a task of its own, calls use what it has."""

    name: str
    spec: UpstreamSection
    open_wire: WireOpener
    redact: Redaction
    on_change: Callable[[Any], None]
    """Hears of this when its state or its tools changed."""
    listings: ListingStore | None = None
    on_offering_change: Callable[[], None] = lambda: None
    """Hears that its resources or prompts may have changed."""
    _down_since: datetime | None = None
    _changed: anyio.Event = field(default_factory=anyio.Event)
    _session: Session | None = None
    _handshake_first: bool = False
    _was_refused: bool = False
    _has_served: bool = False
    _wanted: anyio.Event = field(default_factory=anyio.Event)
    _failures: int = 0
    """Attempts to connect that failed since one succeeded."""
    _attempt_began: float = field(default_factory=anyio.current_time)
    _pause_began: float | None = None
    _pause_seconds: float = 0.0
    _users: int = 0
    _last_used: float = field(default_factory=anyio.current_time)
    _answers: int = 0
    _probe_requested: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self._apply(UpstreamListing((), "", None))
        self._store = self.listings if self.spec.start == "lazy" else None
        self._circuit = CircuitBreaker(anyio.current_time)
        self.state = UpstreamState("starting", "", datetime.now(UTC))
        self._diagnostics = Diagnostics(self.redact)

    @property
    def retry_status(self) -> str:
        """When it is tried again, if it is down; else empty."""
        if self.state.status != "down":
            return ""
        now = anyio.current_time()
        if self._pause_began is None:
            return f"an attempt has been under way for {now - self._attempt_began:.0f} s"
        due_seconds = max(ceil(self._pause_began + self._pause_seconds - now), 1)
        return f"the next attempt is in {due_seconds} s"

    @property
    def diagnostics(self) -> tuple[str, ...]:
        """Remarks about the current connection: malformed tools, noise on stdout."""
        return self._diagnostics.remarks

    def stderr_tail(self) -> str:
        """What a stdio server wrote to stderr last, up to fifty lines; "" where there is no stderr."""
        return "\n".join(self._diagnostics.stderr())

    @property
    def _is_unreached(self) -> bool:
        """Whether the last attempt failed."""
        return self.state.status in ("down", "needs_login")

    async def started(self) -> None:
        """Return when it is not starting (any more)."""
        while self.state.status == "starting":
            await self._changed.wait()

    def want(self) -> None:
        """Have it connected soon, if nothing but its rest is in the way."""
        if self._session is not None:
            return
        if self._is_unreached and self._pause_began is not None:
            if anyio.current_time() < self._pause_began + RETRY_ON_CALL_SECONDS:
                return
            self._begin_attempt()
        if self.state.status == "idle":
            self._set_state("starting", self.state.detail)
        self._wanted.set()

    @asynccontextmanager
    async def session(self, deadline: float, wait_until: float = -inf) -> AsyncIterator[Session]:
        """The connection for one call: open now or, while starting, soon.

        After an attempt has failed, the next is waited for no longer than `RECONNECT_WAIT_SECONDS` from its beginning, but by
        whoever is patient until some later time, however many fail.
        Raises UpstreamUnavailableError: there is none until `deadline`, or none to hope for.
        """
        self._users += 1
        try:
            yield await self._connected(deadline, wait_until)
            self._failures = 0
            self._answers += 1
        except UpstreamTimeoutError:
            self._probe_requested.set()
            raise
        finally:
            self._users -= 1
            self._last_used = anyio.current_time()

    async def _connected(self, deadline: float, wait_until: float) -> Session:
        self.want()
        while (session := self._session) is None or session.wire.ended.is_set():
            left_seconds = min(deadline, self._wait_deadline(wait_until)) - anyio.current_time()
            if self.state.status == "stopped" or left_seconds <= 0:
                raise self._unavailable()
            changed = self._changed
            with anyio.move_on_after(left_seconds):
                await changed.wait()
        return session

    def _wait_deadline(self, wait_until: float) -> float:
        """Until when a call waits, whatever its deadline is. Nobody waits for a person to sign in."""
        if not self._is_unreached:
            return inf
        end = -inf if self._pause_began is not None else self._attempt_began + RECONNECT_WAIT_SECONDS
        return end if self.state.status == "needs_login" else max(end, wait_until)

    def _unavailable(self) -> UpstreamUnavailableError:
        state = self.state
        if state.status == "needs_login":
            return UpstreamNeedsLoginError(state.detail)
        detail = f": {state.detail}" if state.detail else ""
        message = f"{state.status} since {state.since:%Y-%m-%d %H:%M:%S} UTC{detail}"
        if state.status == "down":
            return UpstreamDownError(f"{message}; {self.retry_status}")
        if state.status == "stopped":
            return UpstreamDownError(message)
        return UpstreamUnavailableError(f"still {message}")

    def update_state(self) -> None:
        """Have the state say what the circuit says."""
        if self._session is not None and self._circuit.is_open:
            self._set_state("failing", self.redact.start(self._circuit.reason))
        elif self.state.status == "failing":
            self._set_state("ready", "")

    async def run(self) -> None:
        """Connect, serve, and after every end connect again; until cancelled."""
        try:
            known = await self._store.load() if self._store else None
            if known is not None:
                self._apply(known)
                await self._wait_until_wanted()
            async with anyio.create_task_group() as connections:
                while True:
                    await self._wait_to_reconnect(await connections.start(self._connect))
        finally:
            self._session = None
            self._set_state("stopped", "the portal is stopping")

    async def _wait_until_wanted(self) -> None:
        """Return when the upstream is wanted."""
        if not self._wanted.is_set():
            self._set_state("idle", "")
            await self._wanted.wait()
        self._set_state("starting", "")

    async def _connect(self, *, task_status: TaskStatus["_Ending"]) -> None:
        """Hold one connection; says how it ended when the next may be opened: if retired, before its calls end."""
        self._attempt_began = began = anyio.current_time()
        self._diagnostics = Diagnostics(self.redact)
        ending = _Ending(None)
        was_retired = False
        try:
            async with open_session(
                self.open_wire,
                self._diagnostics,
                ServerRequestRouter(self.spec),
                seconds=self.spec.connect_seconds,
                handshake_first=self._handshake_first,
            ) as session:
                ending = _Ending(None, began)
                self._handshake_first = not session.is_modern
                await self._update_listing(session)
                ms = round((anyio.current_time() - began) * 1000)
                log.info(
                    "upstream_connected", upstream=self.name, server=self.server, tools=len(self.tools), ms=ms
                )
                # It may have been connected only to be listed.
                is_wanted = self.spec.start != "lazy" or self._has_served or self._wanted.is_set()
                ending = _Ending(await self._serve(session) if is_wanted else None, began)
                if was_retired := session.is_retired:
                    task_status.started(ending)
                    await session.last_call()
        # Whatever the SDK or a transport raises over what a stranger sent: it is this upstream's end, and
        # must not be the end of the others in the task group.
        except Exception as error:  # noqa: BLE001
            ending = replace(ending, reason=describe(cause_of(error)), cause=cause_of(error))
        if not was_retired:
            task_status.started(ending)

    async def _update_listing(self, session: Session) -> None:
        listing = UpstreamListing(session.tools, self.redact.start(session.server), session.instructions)
        self._apply(listing)
        if self._store is not None:
            await self._store.save(listing)

    def _apply(self, listing: UpstreamListing) -> None:
        self.tools, self.server, self.instructions = listing.tools, listing.server, listing.instructions

    async def _wait_to_reconnect(self, ending: "_Ending") -> None:
        """Return when the next connection should be opened."""
        if ending.cause is not None:
            is_probe_victim = isinstance(ending.cause, HandshakeFirstError)
            retry_now = is_probe_victim and not self._handshake_first
            self._handshake_first = is_probe_victim
            if retry_now:
                return
        if ending.reason is None:
            await self._wait_until_wanted()
            return
        if ending.began is not None and anyio.current_time() - ending.began >= STABLE_SECONDS:
            self._failures = 0
        is_login = isinstance(ending.cause, UpstreamNeedsLoginError)
        await self._pause(
            self.redact.start(ending.reason),
            was_ready=ending.began is not None,
            status="needs_login" if is_login else "down",
        )

    async def _serve(self, session: Session) -> str | None:
        """Follow the upstream until the connection ends; why it did, None if nobody used it."""
        self._session, self._has_served, self._wanted = session, True, anyio.Event()
        if self._was_refused:
            session.start_grace_period()
        self._set_state(
            "failing" if self._circuit.is_open else "ready", self.redact.start(self._circuit.reason)
        )
        try:
            return await self._follow(session)
        finally:
            self._session = None
            self._was_refused = session.was_refused
            if session.wire.cut_off_reason:
                self._circuit.trip(f"it {session.wire.cut_off_reason}")

    async def _follow(self, session: Session) -> str | None:
        reason: str | None = None

        async def stop_when_idle(seconds: float) -> None:
            idle_seconds = 0.0
            while idle_seconds < seconds:
                await anyio.sleep(seconds - idle_seconds)
                idle_seconds = 0.0 if self._users else anyio.current_time() - self._last_used
            self._session = None  # before anything else runs: no call may get it any more
            tasks.cancel_scope.cancel()

        async def stop_when_ended() -> None:
            nonlocal reason
            await session.wire.ended.wait()
            reason = await session.wire.explain_end()
            tasks.cancel_scope.cancel()

        idle_seconds = self.spec.idle_stop_seconds if isinstance(self.spec, StdioUpstream) else None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.listen)
            tasks.start_soon(self._follow_changes, session)
            tasks.start_soon(self._follow_offerings, session)
            tasks.start_soon(self._probe_on_request, session)
            if idle_seconds is not None:
                tasks.start_soon(stop_when_idle, idle_seconds)
            tasks.start_soon(stop_when_ended)
        return reason

    async def _probe_on_request(self, session: Session) -> None:
        seconds = min(PROBE_SECONDS, self.spec.call_seconds)
        while True:
            await self._probe_requested.wait()
            self._probe_requested = anyio.Event()
            answers = self._answers
            # A server that does one thing at a time may be too busy for a ping, and yet answer calls.
            if not await session.is_alive(seconds) and self._answers == answers:
                session.wire.give_up(f"answered nothing for {seconds:g} s after a call had met its deadline")

    async def _follow_changes(self, session: Session) -> None:
        while True:
            await session.notifications.tools_change()
            try:
                with anyio.fail_after(self.spec.connect_seconds):
                    await session.list_tools()
            except (UpstreamError, TimeoutError) as error:
                self._diagnostics.note(f"its changed tools could not be listed: {error}")
            else:
                if session.tools != self.tools:
                    await self._update_listing(session)
                    log.info("upstream_tools_changed", upstream=self.name, tools=len(self.tools))
                    self.on_change(self)
            await anyio.sleep(RELIST_PAUSE_SECONDS)

    async def _follow_offerings(self, session: Session) -> None:
        while True:
            # Also at first: there is a server now that can be asked.
            self.on_offering_change()
            await anyio.sleep(RELIST_PAUSE_SECONDS)
            await session.notifications.offerings_change()

    async def _pause(self, reason: str, *, was_ready: bool, status: Literal["needs_login", "down"]) -> None:
        """Wait before the next attempt; a connection that had been well is opened again at once."""
        was_well = was_ready and self._failures == 0
        longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures, 10))
        self._failures += 1
        if (self.state.status, self.state.detail) != (status, reason):  # said once, not at every attempt
            log.warning(
                "upstream_lost" if was_ready else "upstream_not_reached", upstream=self.name, reason=reason
            )
        if was_well:
            self._set_state("starting", reason)
            return
        self._pause_began, self._pause_seconds = anyio.current_time(), longest * random.uniform(0.5, 1.0)
        self._wanted = anyio.Event()
        self._set_state(status, reason)
        self._wake_calls()  # also those that hear the same reason again
        with anyio.move_on_after(self._pause_seconds):
            await self._wanted.wait()
        self._begin_attempt()

    def _begin_attempt(self) -> None:
        if self._pause_began is not None:
            self._pause_began = None
            self._attempt_began = anyio.current_time()

    def _set_state(self, status: Status, detail: str) -> None:
        if (status, detail) == (self.state.status, self.state.detail):
            return
        since = datetime.now(UTC)
        if status == "ready":
            self._down_since = None
        elif status in ("needs_login", "down"):  # since it first was, however often it was tried
            since = self._down_since = self._down_since or since
        self.state = UpstreamState(status, detail, since)
        self._wake_calls()
        self.on_change(self)

    def _wake_calls(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


@dataclass(frozen=True)
class _Ending:
    """How a connection ended: `reason` is None if nobody used it, `cause` what was raised."""

    reason: str | None
    began: float | None = None
    """When it was being opened, if it ever was open."""
    cause: BaseException | None = None
