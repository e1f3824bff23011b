"""Keeps one connection to an upstream open, or ready to be opened."""

import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import ceil, inf
from typing import Any, Final, Literal, TypeAlias

import anyio
import structlog
from anyio.abc import TaskStatus

from manifests.portal_manifest import StdioUpstream, UpstreamSection
from upstreams import errors
from upstreams.health import CircuitBreaker, Diagnostics, Status, UpstreamState
from upstreams.notifications import OFFERINGS, TOOLS
from upstreams.questions import ServerRequestRouter
from upstreams.redaction import Redaction
from upstreams.session import HandshakeFirstError, HandshakeUnansweredError, Session, WireOpener, open_session
from upstreams.tools import ListedUpstream, ListingStore, UpstreamListing

log = structlog.get_logger()

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 30.0
"""Backoff between two attempts to connect; doubles, with jitter."""

STABLE_SECONDS: Final = 10.0
STABLE_HTTP_SECONDS: Final = 1.0
"""A connection that lasted this long, or answered a call, is not a failure. Proxies may cut HTTP ones early."""

RETRY_ON_CALL_SECONDS: Final = 5.0
"""If the last attempt failed longer ago than this, a call starts the next one at once."""

RECONNECT_WAIT_SECONDS: Final = 10.0
"""How long calls wait for an attempt that follows a failed one, from the start of that attempt."""

MAX_CONNECTING: Final = max(16, 8 * (os.cpu_count() or 1))
"""Upstreams that connect at once: a server needs about a second of CPU to start."""

RELIST_PAUSE_SECONDS: Final = 1.0
"""Pause between two listings of an upstream whose tools keep changing."""

PROBE_SECONDS: Final = 10.0
"""After a call timed out, an upstream without any answer for this long (at most `call_seconds`) is reconnected."""


RequestObserver: TypeAlias = Callable[
    ["Supervisor", Session, str, str, Callable[[], Awaitable[Any]]], Awaitable[Any]
]
"""Sends a request by its last argument, and observes it: the upstream, its session, the method, and the tool or ""."""


@dataclass(eq=False)
class Supervisor(ListedUpstream):
    """Connects and reconnects: `run` does so in its own task, and calls use the current session."""

    spec: UpstreamSection
    open_wire: WireOpener
    redact: Redaction
    on_change: Callable[[Any], None]
    """Called with the upstream after its state or its tools changed."""
    listings: ListingStore | None = None
    """The listing that an earlier portal stored. A lazy upstream starts with it."""
    connecting: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(MAX_CONNECTING))
    """Limits how many upstreams connect at once."""
    on_offering_change: Callable[[], None] = lambda: None
    """Called when its resources or prompts may have changed."""
    idle_stop_seconds: float | None = None
    """Seconds without a call after which it is disconnected; None for never."""
    listed_by: "Supervisor | None" = None
    """Another connection to the same server, whose tools are used instead of an own listing."""
    observe: RequestObserver | None = None
    """If set, sends and observes each request."""
    connections: int = 0
    """Connections that were opened since the portal started."""
    _down_since: datetime | None = None
    _changed: anyio.Event = field(default_factory=anyio.Event)
    _session: Session | None = None
    _handshake_first: bool = False
    _died_of_probe: bool = False
    _was_refused: bool = False
    _has_served: bool = False
    _wanted: anyio.Event = field(default_factory=anyio.Event)
    _failures: int = 0
    """Failed attempts to connect since the last success."""
    _attempt_began: float = field(default_factory=anyio.current_time)
    _pause_began: float | None = None
    _pause_seconds: float = 0.0
    _users: int = 0
    _last_used: float = field(default_factory=anyio.current_time)
    _answers: int = 0
    _removed: anyio.Event = field(default_factory=anyio.Event)
    _unused: anyio.Event = field(default_factory=anyio.Event)
    _successor: "Supervisor | None" = None
    _probe_requested: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        if isinstance(self.spec, StdioUpstream):
            self.idle_stop_seconds = self.spec.idle_stop_seconds
        super().__post_init__()
        self._circuit = CircuitBreaker(anyio.current_time)
        self.state = UpstreamState("starting", "", datetime.now(UTC))
        self._diagnostics = Diagnostics(self.redact)

    def replace(self, former: "Supervisor", reason: str) -> None:
        """Take over from `former`: the calls that it has not sent, and its listing until there is a new one."""
        self.apply(UpstreamListing(former.tools, former.server, former.instructions))
        former._successor = self
        former.remove(reason)

    def remove(self, reason: str) -> None:
        """Refuse all further calls. `run` ends after those in flight, which have their own deadlines."""
        self._session = None
        self._set_state("stopped", reason)
        self._removed.set()

    @property
    def retry_status(self) -> str:
        if self.state.status != "down":
            return ""
        now = anyio.current_time()
        if self._pause_began is None:
            return f"an attempt has been running for {now - self._attempt_began:.0f} s"
        due_seconds = max(ceil(self._pause_began + self._pause_seconds - now), 1)
        return f"the next attempt is in {due_seconds} s"

    @property
    def diagnostics(self) -> tuple[str, ...]:
        """Remarks about the current connection: malformed tools, noise on stdout."""
        return self._diagnostics.remarks

    def stderr_tail(self) -> str:
        """The last lines of a stdio server's stderr, at most 50; "" for HTTP."""
        return "\n".join(self._diagnostics.stderr())

    @property
    def _is_unreached(self) -> bool:
        """Whether the last attempt to connect failed."""
        return self.state.status in ("down", "needs_login")

    async def started(self) -> None:
        """Wait until it is no longer starting."""
        while self.state.status == "starting":
            await self._changed.wait()

    def want(self) -> None:
        """Request a connection: ends idling, and the backoff if the last attempt is old enough."""
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
        """The session for one call, which waits while the upstream is starting.

        After a failed attempt it waits for the next one until `RECONNECT_WAIT_SECONDS` after that began. With
        `wait_until` it waits until that time, however many attempts fail.
        Raises UpstreamUnavailableError: there is no session in time.
        """
        self._users += 1
        try:
            session = await self._connected(deadline, wait_until)
            if session is not None:
                yield session
                self._failures = 0
                self._answers += 1
        except errors.UpstreamTimeoutError:
            self._probe_requested.set()
            raise
        finally:
            self._users -= 1
            self._last_used = anyio.current_time()
            if not self._users:
                self._unused.set()
        # Outside of the try, so that this upstream can end while the call waits for its successor.
        if session is None and self._successor is not None:
            async with self._successor.session(deadline, wait_until) as later:
                yield later

    async def _connected(self, deadline: float, wait_until: float) -> Session | None:
        """The session; None if this upstream has been replaced."""
        self.want()
        while self._removed.is_set() or (session := self._session) is None or session.wire.ended.is_set():
            if self._successor is not None:
                return None
            left_seconds = min(deadline, self._wait_deadline(wait_until)) - anyio.current_time()
            if self.state.status == "stopped" or left_seconds <= 0:
                raise self._unavailable()
            changed = self._changed
            with anyio.move_on_after(left_seconds):
                await changed.wait()
        return session

    def _wait_deadline(self, wait_until: float) -> float:
        """The time until which a call waits for a connection, besides its deadline. It never waits for a sign-in."""
        if not self._is_unreached:
            return inf
        end = -inf if self._pause_began is not None else self._attempt_began + RECONNECT_WAIT_SECONDS
        return end if self.state.status == "needs_login" else max(end, wait_until)

    def _unavailable(self) -> errors.UpstreamUnavailableError:
        state = self.state
        if state.status == "needs_login":
            return errors.UpstreamNeedsLoginError(state.detail)
        detail = f": {state.detail}" if state.detail else ""
        message = f"{state.status} since {state.since:%Y-%m-%d %H:%M:%S} UTC{detail}"
        if state.status == "down":
            return errors.UpstreamDownError(f"{message}; {self.retry_status}")
        if state.status == "stopped":
            return errors.UpstreamDownError(message)
        return errors.UpstreamUnavailableError(f"still {message}")

    def update_state(self) -> None:
        """Update the state from the circuit breaker."""
        if self._session is not None and self._circuit.is_open:
            self._set_state("failing", self.redact.start(self._circuit.reason))
        elif self.state.status == "failing":
            self._set_state("ready", "")

    async def run(self) -> None:
        """Connect, serve and reconnect until cancelled or removed."""
        try:
            async with anyio.create_task_group() as connections:
                connections.start_soon(self._end_when_removed, connections.cancel_scope)
                self._handshake_first = bool(self.listings and await self.listings.needs_handshake_first())
                listings = self.listings if self.spec.start == "lazy" else None
                known = await listings.load() if listings else None
                if known is not None:
                    self.apply(known)
                    await self._wait_until_wanted()
                while True:
                    await self._wait_to_reconnect(await connections.start(self._connect))
        finally:
            self._session = None
            self._set_state("stopped", "the portal is stopping")

    async def _end_when_removed(self, scope: anyio.CancelScope) -> None:
        await self._removed.wait()
        while self._users:  # each has its deadline
            self._unused = anyio.Event()
            await self._unused.wait()
        scope.cancel()

    async def _wait_until_wanted(self) -> None:
        """Idle until a connection is requested."""
        if not self._wanted.is_set():
            self._set_state("idle", "")
            await self._wanted.wait()
        self._set_state("starting", "")

    async def _connect(self, *, task_status: TaskStatus["_Ending"]) -> None:
        """Hold one connection. Reports its ending once the next may be opened; if retired, before its calls end."""
        self._attempt_began = began = anyio.current_time()
        former = () if self._died_of_probe else self._diagnostics.stderr()
        self._diagnostics = Diagnostics(self.redact, former)
        ending = _Ending(None)
        was_retired = False
        opening = open_session(
            self.open_wire,
            self._diagnostics,
            ServerRequestRouter(self.spec),
            seconds=self.spec.connect_seconds,
            handshake_first=self._handshake_first,
            tools=None if self.listed_by is None else self.listed_by.tools,
        )
        try:
            async with AsyncExitStack() as stack:
                async with self.connecting:
                    session = await stack.enter_async_context(opening)
                ending = _Ending(None, began)
                self.connections += 1
                self._handshake_first = not session.is_modern
                if self.listings is not None and (session.ignored_probe or self._died_of_probe):
                    await self.listings.keep_handshake_first()
                self._died_of_probe = False
                await self._update_listing(session)
                ms = round((anyio.current_time() - began) * 1000)
                log.info(
                    "upstream_connected", upstream=self.name, server=self.server, tools=len(self.tools), ms=ms
                )
                # The upstream may have been connected only for its listing.
                is_wanted = self.spec.start != "lazy" or self._has_served or self._wanted.is_set()
                ending = _Ending(await self._serve(session) if is_wanted else None, began)
                if was_retired := session.is_retired:
                    task_status.started(ending)
                    await session.last_call()
        # The SDK or a transport may raise anything over untrusted input. It ends this connection only, and must not
        # cancel the other upstreams in the task group.
        except Exception as error:  # noqa: BLE001
            ending = replace(
                ending, reason=errors.describe(errors.cause_of(error)), cause=errors.cause_of(error)
            )
        if not was_retired:
            task_status.started(ending)

    async def _update_listing(self, session: Session) -> None:
        listing = UpstreamListing(session.tools, self.redact.start(session.server), session.instructions)
        self.apply(listing)
        if self.listings is not None:
            await self.listings.save(listing)

    async def _wait_to_reconnect(self, ending: "_Ending") -> None:
        """Wait until the next connection should be opened."""
        if ending.cause is not None:
            self._died_of_probe = isinstance(ending.cause, HandshakeFirstError) and not self._handshake_first
            self._handshake_first = self._died_of_probe
            # The server works, but not with the probe: reconnect at once, with the older handshake.
            if self._died_of_probe and not isinstance(ending.cause, HandshakeUnansweredError):
                return
        if ending.reason is None:
            await self._wait_until_wanted()
            return
        stable_seconds = STABLE_SECONDS if isinstance(self.spec, StdioUpstream) else STABLE_HTTP_SECONDS
        if ending.began is not None and anyio.current_time() - ending.began >= stable_seconds:
            self._failures = 0
        is_login = isinstance(ending.cause, errors.UpstreamNeedsLoginError)
        await self._pause(
            self.redact.start(ending.reason),
            was_ready=ending.began is not None,
            status="needs_login" if is_login else "down",
            remedy=self.redact.start(getattr(ending.cause, "remedy", "")),
        )

    async def _serve(self, session: Session) -> str | None:
        """Use the session until it ends. Returns why it ended, None if it was idle."""
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
            self._session = None  # before any other task runs: no further call may use it
            tasks.cancel_scope.cancel()

        async def stop_when_ended() -> None:
            nonlocal reason
            await session.wire.ended.wait()
            reason = await session.wire.explain_end()
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.listen)
            tasks.start_soon(self._follow_changes, session)
            tasks.start_soon(self._follow_offerings, session)
            tasks.start_soon(self._probe_on_request, session)
            if self.idle_stop_seconds is not None:
                tasks.start_soon(stop_when_idle, self.idle_stop_seconds)
            tasks.start_soon(stop_when_ended)
        return reason

    async def _probe_on_request(self, session: Session) -> None:
        seconds = min(PROBE_SECONDS, self.spec.call_seconds)
        while True:
            await self._probe_requested.wait()
            self._probe_requested = anyio.Event()
            answers = self._answers
            # A single-threaded server may be too busy for a ping, and still answer calls.
            if not await session.is_alive(seconds) and self._answers == answers:
                session.wire.give_up(f"did not answer for {seconds:g} s after a call timed out")

    async def _follow_changes(self, session: Session) -> None:
        while True:
            await session.notifications.change(TOOLS)
            await self._relist(session)
            await anyio.sleep(RELIST_PAUSE_SECONDS)

    async def _relist(self, session: Session) -> None:
        if self.listed_by is not None:
            session.take(self.listed_by.tools)
            return
        try:
            with anyio.fail_after(self.spec.connect_seconds):
                await session.list_tools()
        except (errors.UpstreamError, TimeoutError) as error:
            self._diagnostics.note(f"its changed tools could not be listed: {error}")
            return
        if session.tools != self.tools:
            await self._update_listing(session)
            log.info("upstream_tools_changed", upstream=self.name, tools=len(self.tools))
            self.on_change(self)

    async def _follow_offerings(self, session: Session) -> None:
        while True:
            # Also at the start: only now can the server be asked.
            self.on_offering_change()
            await anyio.sleep(RELIST_PAUSE_SECONDS)
            await session.notifications.change(OFFERINGS)

    async def _pause(
        self, reason: str, *, was_ready: bool, status: Literal["needs_login", "down"], remedy: str
    ) -> None:
        """Back off before the next attempt. A connection that worked is reopened at once."""
        was_well = was_ready and self._failures == 0
        longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures, 10))
        self._failures += 1
        if (self.state.status, self.state.detail) != (status, reason):  # logged once, not at every attempt
            event = "upstream_lost" if was_ready else "upstream_not_reached"
            log.warning(event, upstream=self.name, reason=reason, **({"remedy": remedy} if remedy else {}))
        if was_well:
            self._set_state("starting", reason)
            return
        self._pause_began, self._pause_seconds = anyio.current_time(), longest * random.uniform(0.5, 1.0)
        self._wanted = anyio.Event()
        self._set_state(status, reason, remedy)
        self._wake_calls()  # also if the state did not change
        with anyio.move_on_after(self._pause_seconds):
            await self._wanted.wait()
        self._begin_attempt()

    def _begin_attempt(self) -> None:
        if self._pause_began is not None:
            self._pause_began = None
            self._attempt_began = anyio.current_time()

    def _set_state(self, status: Status, detail: str, remedy: str = "") -> None:
        if self._removed.is_set() or (status, detail) == (self.state.status, self.state.detail):
            return
        since = datetime.now(UTC)
        if status == "ready":
            self._down_since = None
        elif status in ("needs_login", "down"):  # since the first failure, not the last
            since = self._down_since = self._down_since or since
        self.state = UpstreamState(status, detail, since, remedy)
        self._wake_calls()
        self.on_change(self)

    def _wake_calls(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


@dataclass(frozen=True)
class _Ending:
    """How a connection ended: `reason` is None if it was idle, `cause` is the exception."""

    reason: str | None
    began: float | None = None
    """When its opening began; None if it never opened."""
    cause: BaseException | None = None
