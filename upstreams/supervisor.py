"""Keeps one connection to an upstream open, or ready to be opened."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import anyio
import structlog
from anyio.abc import TaskStatus

from manifests.portal_manifest import StdioUpstream, UpstreamSection
from upstreams import errors
from upstreams.connection import Connection
from upstreams.connector import Connector
from upstreams.health import CircuitBreaker
from upstreams.notifications import OFFERINGS, TOOLS
from upstreams.redaction import Redaction
from upstreams.session import Session
from upstreams.tools import CurrentListing, UpstreamListing

log = structlog.get_logger()

STABLE_SECONDS: Final = 10.0
STABLE_HTTP_SECONDS: Final = 1.0
"""A connection that lasted this long, or answered a call, is not a failure. Proxies may cut HTTP ones early."""

RELIST_PAUSE_SECONDS: Final = 1.0
"""Pause between two listings of an upstream whose tools keep changing."""

PROBE_SECONDS: Final = 10.0
"""After a call timed out, an upstream without any answer for this long (at most `call_seconds`) is reconnected."""


@dataclass(eq=False)
class Supervisor:
    """Connects and reconnects: `run` does so in its own task, and calls use the current session of `connection`."""

    name: str
    spec: UpstreamSection
    redact: Redaction
    connector: Connector
    connection: Connection
    circuit: CircuitBreaker
    listing: CurrentListing
    on_listing_change: Callable[[], None]
    """Called when the tools have changed on an open connection."""
    on_offering_change: Callable[[], None]
    """Called when its resources or prompts may have changed."""
    idle_stop_seconds: float | None = None
    """Seconds without a call after which it is disconnected; None for never."""
    _has_served: bool = False

    async def run(self) -> None:
        """Connect, serve and reconnect until cancelled or removed."""
        try:
            async with anyio.create_task_group() as connections:
                connections.start_soon(self._end_when_removed, connections.cancel_scope)
                await self.connector.recall()
                if self.spec.start == "lazy" and await self.listing.load():
                    await self._rest()
                ending = _Ending()
                while True:
                    ending = await connections.start(self._connect, ending.was_refused)
                    await self._wait_to_reconnect(ending)
        finally:
            self.connection.stop("the portal is stopping")

    async def _end_when_removed(self, scope: anyio.CancelScope) -> None:
        while not self.connection.is_stopped or self.connection.users:  # each has its deadline
            await self.connection.changed()
        scope.cancel()

    async def _rest(self) -> None:
        """Idle until a connection is requested."""
        lifecycle = self.connection.lifecycle
        if not lifecycle.is_wanted:
            self.connection.note("rested")
            while not lifecycle.is_wanted:
                await self.connection.changed()
        self.connection.note("reopened")

    async def _connect(self, after_refusal: bool, *, task_status: TaskStatus["_Ending"]) -> None:
        """Hold one connection. Reports its ending once the next may be opened; if retired, before its calls end."""
        began = self.connection.now()
        self.connection.lifecycle.begin_attempt()
        ending = _Ending()
        is_reported = False
        try:
            async with self.connector.open(
                self.listing.foreign_tools, after_refusal=after_refusal
            ) as session:
                ending = _Ending(session=session, began=began)
                await self._update_listing(session)
                listing, ms = self.listing.latest, round((self.connection.now() - began) * 1000)
                tools = len(listing.tools)
                log.info("upstream_connected", upstream=self.name, server=listing.server, tools=tools, ms=ms)
                # The upstream may have been connected only for its listing.
                if self.spec.start != "lazy" or self._has_served or self.connection.lifecycle.is_wanted:
                    ending = replace(ending, reason=await self._serve(session))
                if is_reported := session.retirement.is_retired:
                    task_status.started(ending)
                    await session.last_call()
        # The SDK or a transport may raise anything over untrusted input. It ends this connection only, and must not
        # cancel the other upstreams in the task group.
        except Exception as error:  # noqa: BLE001
            cause = errors.cause_of(error)
            ending = replace(ending, reason=errors.describe(cause), cause=cause)
        if not is_reported:
            task_status.started(ending)

    async def _wait_to_reconnect(self, ending: "_Ending") -> None:
        """Wait until the next connection should be opened."""
        if ending.cause is not None and self.connector.handshake.failed(ending.cause):
            return
        if ending.reason is None:
            await self._rest()
            return
        lifecycle = self.connection.lifecycle
        before = lifecycle.state
        reason, remedy = (
            self.redact.start(ending.reason),
            self.redact.start(getattr(ending.cause, "remedy", "")),
        )
        pause_seconds = lifecycle.lose(
            reason,
            remedy,
            was_open=ending.session is not None,
            was_stable=self._was_stable(ending),
            needs_login=isinstance(ending.cause, errors.UpstreamNeedsLoginError),
            jitter=random.uniform(0.5, 1.0),
        )
        if lifecycle.state is not before:  # logged once, not at every attempt
            event = "upstream_lost" if ending.session else "upstream_not_reached"
            log.warning(event, upstream=self.name, reason=reason, **({"remedy": remedy} if remedy else {}))
        self.connection.publish()
        with anyio.move_on_after(pause_seconds):
            while pause_seconds and not lifecycle.is_wanted:
                await self.connection.changed()

    def _was_stable(self, ending: "_Ending") -> bool:
        stable_seconds = STABLE_SECONDS if isinstance(self.spec, StdioUpstream) else STABLE_HTTP_SECONDS
        lasted = ending.session is not None and self.connection.now() - ending.began >= stable_seconds
        return lasted or (ending.session is not None and ending.session.answers > 0)

    async def _serve(self, session: Session) -> str | None:
        """Use the session until it ends. Returns why it ended, None if it was idle."""
        self._has_served = True
        self.connection.serve(session, self.redact.start(self.circuit.reason))
        try:
            return await self._follow(session)
        finally:
            self.connection.withdraw()
            if session.wire.cut_off_reason:
                self.circuit.trip(f"it {session.wire.cut_off_reason}")

    async def _follow(self, session: Session) -> str | None:
        reason: str | None = None

        async def stop_when_idle(seconds: float) -> None:
            idle_seconds = 0.0
            while idle_seconds < seconds:
                await anyio.sleep(seconds - idle_seconds)
                idle_seconds = self.connection.idle_seconds
            self.connection.withdraw()  # before any other task runs: no further call may use it
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
            tasks.start_soon(session.watch, min(PROBE_SECONDS, self.spec.call_seconds))
            if self.idle_stop_seconds is not None:
                tasks.start_soon(stop_when_idle, self.idle_stop_seconds)
            tasks.start_soon(stop_when_ended)
        return reason

    async def _follow_changes(self, session: Session) -> None:
        while True:
            await session.notifications.change(TOOLS)
            await self._relist(session)
            await anyio.sleep(RELIST_PAUSE_SECONDS)

    async def _relist(self, session: Session) -> None:
        if (tools := self.listing.foreign_tools) is not None:
            session.take(tools)
            return
        diagnostics = self.connector.diagnostics
        try:
            with anyio.fail_after(self.spec.connect_seconds):
                await session.list_tools(diagnostics)
        except (errors.UpstreamError, TimeoutError) as error:
            diagnostics.note(f"its changed tools could not be listed: {error}")
            return
        if session.tools != self.listing.latest.tools:
            await self._update_listing(session)
            log.info("upstream_tools_changed", upstream=self.name, tools=len(session.tools))
            self.on_listing_change()

    async def _update_listing(self, session: Session) -> None:
        own = session.listing
        await self.listing.update(UpstreamListing(own.tools, self.redact.start(own.server), own.instructions))

    async def _follow_offerings(self, session: Session) -> None:
        while True:
            # Also at the start: only now can the server be asked.
            self.on_offering_change()
            await anyio.sleep(RELIST_PAUSE_SECONDS)
            await session.notifications.change(OFFERINGS)


@dataclass(frozen=True)
class _Ending:
    """How a connection ended: `reason` is None if it was idle, `cause` is the exception."""

    reason: str | None = None
    cause: BaseException | None = None
    session: Session | None = None
    """None if it never opened."""
    began: float = 0.0

    @property
    def was_refused(self) -> bool:
        return self.session is not None and self.session.retirement.was_refused
