"""Keeps one connection to an upstream open, or ready to be opened, whatever happens to it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from math import inf
from typing import Final, Literal

import anyio
import structlog
from anyio.abc import TaskStatus

from manifests.upstream_sections import StdioUpstream, UpstreamSection
from upstreams.attempts import Attempts
from upstreams.backoff import Backoff
from upstreams.cause import cause_of, described
from upstreams.circuit import Circuit
from upstreams.connection import Connection
from upstreams.diagnostics import Diagnostics
from upstreams.errors import (
    UpstreamDownError,
    UpstreamError,
    UpstreamNeedsLoginError,
    UpstreamUnavailableError,
)
from upstreams.listing_store import ListingStore, StoredListing
from upstreams.negotiation import HandshakeFirstError
from upstreams.offerings import OfferingChanges
from upstreams.opening import WireOpener, open_connection
from upstreams.questions import QuestionDesk
from upstreams.recorded_tool import RecordedTool
from upstreams.scrubber import Scrubber
from upstreams.starts import Starts
from upstreams.state import StateHistory, Status, UpstreamState
from upstreams.usage import Usage

log = structlog.get_logger()

STABLE_SECONDS: Final = 10.0
"""A connection that held this long, or answered a call, was no failure."""

RELIST_PAUSE_SECONDS: Final = 1.0
RELIST_PAUSE_TIMES: Final = 10
LONGEST_RELIST_PAUSE_SECONDS: Final = 60.0
"""An upstream that keeps saying its tools changed is listed again after a second, or after ten times what the last
listing took, up to a minute: for much of that time nobody else is served."""

PROBE_SECONDS: Final = 10.0
"""After a call met its deadline, an upstream that answers nothing at all for this long, or for as long as a call may
take, is connected anew."""


class Supervisor:
    """Connects, notices the end, connects again; `run` does it in a task of its own, calls use what it has.

    A lazy upstream whose tools are known is connected by its first call, and one with `idle_stop_seconds` again after
    each stop.
    """

    def __init__(
        self,
        name: str,
        spec: UpstreamSection,
        open_wire: WireOpener,
        scrub: Scrubber,
        circuit: Circuit,
        starts: Starts,
        listings: ListingStore | None,
        on_change: Callable[[], None],
    ) -> None:
        self.tools: tuple[RecordedTool, ...] = ()
        self.instructions: str | None = None
        self.server = ""
        self.offering_changes = OfferingChanges()
        self._name = name
        self._spec = spec
        self._open_wire = open_wire
        self._scrub = scrub
        self._connect_seconds = spec.connect_seconds
        self._probe_seconds = min(PROBE_SECONDS, spec.call_seconds)
        self._is_lazy = spec.start == "lazy"
        self._idle_seconds = spec.idle_stop_seconds if isinstance(spec, StdioUpstream) else None
        self._circuit = circuit
        self._starts = starts
        self._listings = listings if self._is_lazy else None
        self._on_change = on_change
        self._states = StateHistory("starting")
        self._diagnostics = Diagnostics(scrub)
        self._connection: Connection | None = None
        self._backoff = Backoff()
        self._handshake_first = False
        self._attempts = Attempts(anyio.current_time, spec.connect_seconds)
        self._usage = Usage()
        self._was_refused = False
        self._has_served = False
        self._wanted = anyio.Event()
        self._changed = anyio.Event()

    @property
    def state(self) -> UpstreamState:
        return self._states.now

    @property
    def prospect(self) -> str:
        """When it is tried again, if it is down; else empty."""
        return self._attempts.prospect if self.state.status == "down" else ""

    @property
    def diagnostics(self) -> tuple[str, ...]:
        """Remarks about the current connection: malformed tools, noise on stdout."""
        return self._diagnostics.remarks

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
        if self._connection is not None:
            return
        if self._is_unreached and not self._attempts.begin_for_call():
            return
        if self.state.status == "idle":
            self._become("starting", self.state.detail)
        self._wanted.set()

    @asynccontextmanager
    async def connection(self, deadline: float, patient_until: float = -inf) -> AsyncIterator[Connection]:
        """The connection for one call: open now or, while starting, soon.

        After an attempt has failed, the next is waited for no longer than a moment (`Attempts.patience_end`), but by
        whoever is patient until some later time, however many fail.

        Raises:
            UpstreamUnavailableError: There is none until `deadline`, or none to hope for.
        """
        with self._usage.one_call():
            yield await self._connected(deadline, patient_until)
            self._backoff.succeeded()

    async def _connected(self, deadline: float, patient_until: float) -> Connection:
        self.want()
        while (connection := self._connection) is None or connection.has_ended:
            left_seconds = min(deadline, self._patience_end(patient_until)) - anyio.current_time()
            if self.state.status == "stopped" or left_seconds <= 0:
                raise self._unavailable()
            changed = self._changed
            with anyio.move_on_after(left_seconds):
                await changed.wait()
        return connection

    def _patience_end(self, patient_until: float) -> float:
        """Until when a call waits, whatever its deadline is. Nobody waits for a person to sign in."""
        if not self._is_unreached:
            return inf
        if self.state.status == "needs_login":
            return self._attempts.patience_end
        return max(self._attempts.patience_end, patient_until)

    def _unavailable(self) -> UpstreamUnavailableError:
        state = self.state
        if state.status == "needs_login":
            return UpstreamNeedsLoginError(state.detail)
        detail = f": {state.detail}" if state.detail else ""
        told = f"{state.status} since {state.since:%Y-%m-%d %H:%M:%S} UTC{detail}"
        if state.status == "down":
            return UpstreamDownError(f"{told}; {self.prospect}")
        if state.status == "stopped":
            return UpstreamDownError(told)
        return UpstreamUnavailableError(f"still {told}")

    def tell_health(self) -> None:
        """Have the state say what the circuit says."""
        if self._connection is not None and self._circuit.is_open:
            self._become("failing", self._scrub.start(self._circuit.reason))
        elif self.state.status == "failing":
            self._become("ready", "")

    async def run(self) -> None:
        """Connect, serve, and after every end connect again; until cancelled."""
        try:
            if await self._recall():
                await self._rest()
            async with anyio.create_task_group() as connections:
                while True:
                    await self._go_on_after(await connections.start(self._connect))
        finally:
            self._connection = None
            self._become("stopped", "the portal is stopping")

    async def _recall(self) -> bool:
        """Whether it is known what the upstream offers, although it was not asked yet."""
        listing = await self._listings.load() if self._listings else None
        if listing is None:
            return False
        self.tools, self.server, self.instructions = listing.tools, listing.server, listing.instructions
        return True

    async def _rest(self) -> None:
        """Return when the upstream is wanted."""
        if not self._wanted.is_set():
            self._become("idle", "")
            await self._wanted.wait()
        self._become("starting", "")

    async def _connect(self, *, task_status: TaskStatus["_Ending"]) -> None:
        """Hold one connection; says how it ended when the next may be opened: if retired, before its calls end."""
        turn = await self._starts.begin()
        self._attempts.begin_turn()
        began = anyio.current_time()
        self._diagnostics = Diagnostics(self._scrub)
        ending = _Ending(None)
        was_retired = False
        try:
            async with open_connection(
                self._open_wire,
                self._diagnostics,
                QuestionDesk(self._spec),
                seconds=self._connect_seconds,
                handshake_first=self._handshake_first,
            ) as connection:
                turn.end()
                self._attempts.succeed()
                ending = _Ending(None, began)
                await self._learn(connection, anyio.current_time() - began)
                ending = _Ending(await self._serve(connection) if self._is_wanted() else None, began)
                if was_retired := connection.is_retired:
                    task_status.started(ending)
                    await connection.last_call()
        # Whatever the SDK or a transport raises over what a stranger sent: it is this upstream's end, and
        # must not be the end of the others in the task group.
        except Exception as error:  # noqa: BLE001
            ending = replace(ending, reason=described(cause_of(error)), cause=cause_of(error))
        finally:
            turn.end()
        if not was_retired:
            task_status.started(ending)

    async def _go_on_after(self, ending: "_Ending") -> None:
        """Return when the next connection should be opened."""
        if ending.cause is not None:
            is_probe_victim = isinstance(ending.cause, HandshakeFirstError)
            retry_now = is_probe_victim and not self._handshake_first
            self._handshake_first = is_probe_victim
            if retry_now:
                return
        if ending.reason is None:
            await self._rest()
            return
        if ending.began is not None and anyio.current_time() - ending.began >= STABLE_SECONDS:
            self._backoff.succeeded()
        is_login = isinstance(ending.cause, UpstreamNeedsLoginError)
        await self._pause(
            self._scrub.start(ending.reason),
            was_ready=ending.began is not None,
            status="needs_login" if is_login else "down",
        )

    async def _learn(self, connection: Connection, seconds: float) -> None:
        self._handshake_first = not connection.is_modern
        self.server = self._scrub.start(connection.server)
        self.instructions = connection.instructions
        self.tools = connection.tools
        log.info(
            "upstream_connected",
            upstream=self._name,
            server=self.server,
            tools=len(self.tools),
            ms=round(seconds * 1000),
        )
        await self._remember()

    def _is_wanted(self) -> bool:
        """Whether it was connected for more than to be listed."""
        return not self._is_lazy or self._has_served or self._wanted.is_set()

    async def _serve(self, connection: Connection) -> str | None:
        """Follow the upstream until the connection ends; why it did, None if nobody used it."""
        self._connection, self._has_served, self._wanted = connection, True, anyio.Event()
        if self._was_refused:
            connection.replaces_refused()
        self._become("failing" if self._circuit.is_open else "ready", self._scrub.start(self._circuit.reason))
        try:
            return await self._follow(connection)
        finally:
            self._connection = None
            self._was_refused = connection.was_refused

    async def _follow(self, connection: Connection) -> str | None:
        reason: str | None = None

        async def stop_when_idle(seconds: float) -> None:
            await self._usage.idleness(seconds)
            self._connection = None  # before anything else runs: no call may get it any more
            tasks.cancel_scope.cancel()

        async def stop_when_ended() -> None:
            nonlocal reason
            reason = await connection.wait_until_ended()
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.listen)
            tasks.start_soon(connection.keep_log_level)
            tasks.start_soon(self._follow_changes, connection)
            tasks.start_soon(self._follow_offerings, connection)
            tasks.start_soon(self._probe_when_doubted, connection)
            if self._idle_seconds is not None:
                tasks.start_soon(stop_when_idle, self._idle_seconds)
            tasks.start_soon(stop_when_ended)
        return reason

    async def _probe_when_doubted(self, connection: Connection) -> None:
        while True:
            await self._usage.doubt()
            answers = self._usage.answers
            # A server that does one thing at a time may be too busy for a ping, and yet answer calls.
            if not await connection.is_alive(self._probe_seconds) and self._usage.answers == answers:
                connection.give_up(
                    f"answered nothing for {self._probe_seconds:g} s after a call had met its deadline"
                )

    async def _follow_changes(self, connection: Connection) -> None:
        while True:
            await connection.wait_for_change()
            began = anyio.current_time()
            try:
                with anyio.fail_after(self._connect_seconds):
                    await connection.list_tools()
            except (UpstreamError, TimeoutError) as error:
                self._diagnostics.note(f"its changed tools could not be listed: {error}")
            else:
                if connection.tools != self.tools:
                    self.tools = connection.tools
                    log.info("upstream_tools_changed", upstream=self._name, tools=len(self.tools))
                    self._on_change()
                    await self._remember()
            await anyio.sleep(relist_pause(anyio.current_time() - began))

    async def _follow_offerings(self, connection: Connection) -> None:
        while True:
            # Also at first: there is a server now that can be asked.
            self.offering_changes.note()
            await anyio.sleep(RELIST_PAUSE_SECONDS)
            await connection.wait_for_offerings()

    async def _remember(self) -> None:
        if self._listings is not None:
            await self._listings.save(StoredListing(self.tools, self.server, self.instructions))

    async def _pause(self, reason: str, *, was_ready: bool, status: Literal["needs_login", "down"]) -> None:
        """Wait before the next attempt; a connection that had been well is opened again at once."""
        was_well = was_ready and self._backoff.failures == 0
        seconds = self._backoff.failed()
        if (self.state.status, self.state.detail) != (status, reason):  # said once, not at every attempt
            log.warning(
                "upstream_lost" if was_ready else "upstream_not_reached", upstream=self._name, reason=reason
            )
        if was_well:
            self._become("starting", reason)
            return
        self._attempts.rest(seconds, was_reached=was_ready)
        self._wanted = anyio.Event()
        self._become(status, reason)
        self._wake_calls()  # also those that hear the same reason again
        with anyio.move_on_after(seconds):
            await self._wanted.wait()
        self._attempts.begin()

    def _become(self, status: Status, detail: str) -> None:
        if self._states.become(status, detail):
            self._wake_calls()
            self._on_change()

    def _wake_calls(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


def relist_pause(seconds: float) -> float:
    """After a listing that took so long."""
    return min(max(RELIST_PAUSE_SECONDS, RELIST_PAUSE_TIMES * seconds), LONGEST_RELIST_PAUSE_SECONDS)


@dataclass(frozen=True)
class _Ending:
    """How a connection ended: `reason` is None if nobody used it, `cause` what was raised."""

    reason: str | None
    began: float | None = None
    """When it was being opened, if it ever was open."""
    cause: BaseException | None = None
