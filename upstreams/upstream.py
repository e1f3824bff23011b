"""One upstream as the portal sees it: its state, its tools, and calls to it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

import anyio
import structlog
from mcp.shared.dispatcher import ProgressFnT

from manifests.json_value import Json
from upstreams.backoff import Backoff
from upstreams.connection import Connection, WireOpener, open_connection
from upstreams.diagnostics import Diagnostics
from upstreams.errors import UpstreamError, UpstreamUnavailableError
from upstreams.negotiation import HandshakeFirstError
from upstreams.recorded_tool import RecordedTool
from upstreams.scrubber import Scrubber
from upstreams.tool_result import ToolResult

log = structlog.get_logger()

Status = Literal["starting", "ready", "down", "stopped"]

RETRY_ON_CALL_SECONDS: Final = 5.0
"""A call to an upstream that has been waiting longer than this for its next attempt starts it."""

STABLE_SECONDS: Final = 10.0
"""A connection that held this long, or answered a call, was no failure."""

RELIST_PAUSE_SECONDS: Final = 1.0
"""An upstream that keeps saying its tools changed is listed at most this often."""


@dataclass(frozen=True)
class UpstreamState:
    """`detail` says why it is not ready, for a human and scrubbed of secrets; `since` is UTC."""

    status: Status
    detail: str
    since: datetime


class Upstream:
    """One MCP server behind the portal, supervised: `run` keeps a connection to it, in a task of its own.

    Calls run in their callers' tasks. So neither a failing connection nor another upstream can cancel a
    caller, and a caller that goes away takes nothing with it.
    """

    def __init__(
        self,
        name: str,
        open_wire: WireOpener,
        scrub: Scrubber,
        *,
        connect_seconds: float,
        on_change: Callable[["Upstream"], None],
    ) -> None:
        self.name = name
        self.state = UpstreamState("starting", "", datetime.now(UTC))
        self.tools: tuple[RecordedTool, ...] = ()
        self.instructions: str | None = None
        self.server = ""
        self._open_wire = open_wire
        self._scrub = scrub
        self._connect_seconds = connect_seconds
        self._on_change = on_change
        self._diagnostics = Diagnostics(scrub)
        self._connection: Connection | None = None
        self._backoff = Backoff()
        self._handshake_first = False
        self._waiting_since: float | None = None
        self._down_since: datetime | None = None
        self._wanted = anyio.Event()
        self._changed = anyio.Event()

    @property
    def diagnostics(self) -> tuple[str, ...]:
        """Remarks about the current connection: malformed tools, noise on stdout."""
        return self._diagnostics.remarks

    async def call(
        self,
        tool: str,
        arguments: dict[str, Json],
        *,
        seconds: float,
        progress: ProgressFnT | None = None,
        on_sent: Callable[[], None] = lambda: None,
    ) -> ToolResult:
        """Call a tool; waits for a starting upstream and for the answer, together at most `seconds`.

        A call that never left, because the connection turned out to be dead, is sent once more on the next.
        `on_sent` is called when the upstream may see the call from then on: a caller that is cancelled before
        knows that nothing happened.

        Raises:
            UpstreamError: With a scrubbed message; the class says what may have happened.
        """
        deadline = anyio.current_time() + seconds
        try:
            connection = await self._connected(deadline)
            on_sent()
            try:
                result = await self._call_on(connection, tool, arguments, deadline, progress)
            except UpstreamUnavailableError:
                connection = await self._connected(deadline, after=connection)
                result = await self._call_on(connection, tool, arguments, deadline, progress)
        except UpstreamError as error:
            # The same error, for the caller: scrubbed, and naming the upstream.
            error.args = (f"upstream {self.name!r}: {self._scrub(str(error))}",)
            raise
        self._backoff.succeeded()
        return result

    async def _call_on(
        self,
        connection: Connection,
        tool: str,
        arguments: dict[str, Json],
        deadline: float,
        progress: ProgressFnT | None,
    ) -> ToolResult:
        seconds = max(0.0, deadline - anyio.current_time())
        return await connection.call(tool, arguments, seconds=seconds, progress=progress)

    async def _connected(self, deadline: float, *, after: Connection | None = None) -> Connection:
        """The connection that is open now or, while starting, soon; a newer one than `after`."""
        self._retry_if_due()
        while self._connection is None or self._connection is after:
            if self.state.status in ("down", "stopped"):
                raise UpstreamUnavailableError(self._unavailability())
            changed = self._changed
            with anyio.move_on_after(deadline - anyio.current_time()) as waiting:
                await changed.wait()
            if waiting.cancelled_caught:
                raise UpstreamUnavailableError(f"still {self._unavailability()}")
        return self._connection

    async def started(self) -> None:
        """Return when it is not starting (any more)."""
        while self.state.status == "starting":
            await self._changed.wait()

    def _unavailability(self) -> str:
        state = self.state
        detail = f": {state.detail}" if state.detail else ""
        return f"{state.status} since {state.since:%Y-%m-%d %H:%M:%S} UTC{detail}"

    def _retry_if_due(self) -> None:
        since = self._waiting_since
        if since is not None and anyio.current_time() - since >= RETRY_ON_CALL_SECONDS:
            self._waiting_since = None
            self._become("starting", self.state.detail)
            self._wanted.set()

    async def run(self) -> None:
        """Connect, serve, and after every end connect again; until cancelled."""
        try:
            while True:
                await self._attempt()
        finally:
            self._connection = None
            self._become("stopped", "the portal is stopping")

    async def _attempt(self) -> None:
        started = anyio.current_time()
        self._diagnostics = Diagnostics(self._scrub)
        was_ready = False
        try:
            async with open_connection(
                self._open_wire,
                self._diagnostics,
                seconds=self._connect_seconds,
                handshake_first=self._handshake_first,
            ) as connection:
                was_ready = True
                self._adopt(connection, anyio.current_time() - started)
                try:
                    reason = await self._serve(connection)
                finally:
                    self._connection = None
        # Whatever the SDK or a transport raises over what a stranger sent: it is this upstream's end, and
        # must not be the end of the others in the task group.
        except Exception as error:  # noqa: BLE001
            cause = _cause(error)
            is_probe_victim = isinstance(cause, HandshakeFirstError)
            retry_now = is_probe_victim and not self._handshake_first
            self._handshake_first = is_probe_victim
            if retry_now:
                return
            reason = _describe(cause)
        if was_ready and anyio.current_time() - started >= STABLE_SECONDS:
            self._backoff.succeeded()
        await self._pause(self._scrub(reason), was_ready=was_ready)

    def _adopt(self, connection: Connection, seconds: float) -> None:
        self._connection = connection
        self._handshake_first = not connection.is_modern
        self.server = connection.server
        self.instructions = connection.instructions
        self.tools = connection.tools
        log.info(
            "upstream_connected",
            upstream=self.name,
            server=self.server,
            tools=len(self.tools),
            ms=round(seconds * 1000),
        )
        self._become("ready", "")

    async def _serve(self, connection: Connection) -> str:
        """Follow the upstream's changes until the connection ends; why it ended."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.listen)
            tasks.start_soon(self._follow_changes, connection)
            reason = await connection.wait_until_ended()
            tasks.cancel_scope.cancel()
        return reason

    async def _follow_changes(self, connection: Connection) -> None:
        while True:
            await connection.wait_for_change()
            try:
                with anyio.fail_after(self._connect_seconds):
                    await connection.list_tools()
            except (UpstreamError, TimeoutError) as error:
                self._diagnostics.note(f"its changed tools could not be listed: {error}")
            else:
                if connection.tools != self.tools:
                    self.tools = connection.tools
                    log.info("upstream_tools_changed", upstream=self.name, tools=len(self.tools))
                    self._on_change(self)
            await anyio.sleep(RELIST_PAUSE_SECONDS)

    async def _pause(self, reason: str, *, was_ready: bool) -> None:
        """Wait before the next attempt; a connection that had been well is opened again at once."""
        was_well = was_ready and self._backoff.failures == 0
        seconds = self._backoff.failed()
        if (self.state.status, self.state.detail) != ("down", reason):  # said once, not at every attempt
            log.warning(
                "upstream_lost" if was_ready else "upstream_not_reached", upstream=self.name, reason=reason
            )
        if was_well:
            self._become("starting", reason)
            return
        self._become("down", reason)
        self._wanted = anyio.Event()
        self._waiting_since = anyio.current_time()
        with anyio.move_on_after(seconds):
            await self._wanted.wait()
        self._waiting_since = None

    def _become(self, status: Status, detail: str) -> None:
        if (status, detail) == (self.state.status, self.state.detail):
            return
        now = datetime.now(UTC)
        if status == "ready":
            self._down_since = None
        elif status == "down":
            self._down_since = self._down_since or now
        since = self._down_since if status == "down" and self._down_since else now
        self.state = UpstreamState(status, detail, since)
        self._changed.set()
        self._changed = anyio.Event()
        self._on_change(self)


def _cause(error: BaseException) -> BaseException:
    """The error that explains a group of them: one of ours if there is one."""
    leaves = list(_leaves(error))
    return next((leaf for leaf in leaves if isinstance(leaf, UpstreamError)), leaves[0])


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _leaves(member)
    else:
        yield error


def _describe(error: BaseException) -> str:
    if isinstance(error, UpstreamError):
        return str(error)
    first_line = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first_line}"
