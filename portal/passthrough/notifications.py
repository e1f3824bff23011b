"""The channel to a waiting client: progress, log messages of upstreams, and questions.

Source: MCP 2026-07-28, basic/utilities/progress and server/utilities/logging.
"""

import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeAlias

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.server.context import ServerRequestContext
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp_types import (
    LOG_LEVEL_META_KEY,
    LoggingLevel,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from manifests.json_value import Json
from manifests.portal_manifest import UpstreamSection
from portal.budget.tokens import compact
from portal.ledger import Entry, Ledger
from portal.passthrough.clean_json import Scrub, clean_json, clean_text, is_larger, one_line, printable
from portal.passthrough.questions import CallQuestions, Questions
from portal.sessions import caller_of
from upstreams.notifications import LEVELS, LogHandler, LogMessage
from upstreams.transports.wire import ProgressHandler
from upstreams.upstream import Upstream

FLUSH_SECONDS: Final = 1.0
"""Time that an answer waits for a client that does not read its notifications."""

MAX_PROGRESS_CHARACTERS: Final = 200
MAX_NAMED_CALLS: Final = 3
"""Open calls that a progress message names; more are counted."""

MAX_LOG_CHARACTERS: Final = 4_000
"""Length of one log message as JSON. Of a longer one, the beginning of its JSON is sent as text."""

MAX_READ_CHARACTERS: Final = 20_000
"""A log message with more characters and values is dropped."""

MAX_LOG_MESSAGES: Final = 1_000
"""Log messages per request; more are counted."""

MAX_LOGGER_CHARACTERS: Final = 100
MAX_SESSIONS: Final = 10_000
"""Clients whose log level is stored. Beyond that, the oldest get the default again."""

DEFAULT_LEVEL: Final[LoggingLevel] = "info"
OWN_LOGGER: Final = "mcp-code-portal"

Context: TypeAlias = ServerRequestContext[Any, Any]
Notification: TypeAlias = Callable[[], Awaitable[None]]
"""Sends one notification."""


class NotificationQueue:
    """Sends notifications in order, limited by a token bucket: `burst` at once, then `per_second`.

    Faster ones are dropped, so that nobody waits for a client that does not read.
    """

    def __init__(self, tasks: TaskGroup, *, burst: int, per_second: float) -> None:
        self._burst = burst
        self._interval = 1 / per_second
        self._due = 0.0
        self._is_closed = False
        self._waiting, queue = anyio.create_memory_object_stream[Notification](math.inf)
        tasks.start_soon(self._send, queue)

    @property
    def is_full(self) -> bool:
        return self._is_closed or self._due > anyio.current_time()

    def put(self, notification: Notification) -> None:
        if not self.is_full:
            self._due = max(self._due, anyio.current_time() - self._burst * self._interval) + self._interval
            self._waiting.send_nowait(notification)

    def close(self, last: Notification | None = None) -> None:
        """Stop accepting notifications, after `last`."""
        if last is not None:
            self._waiting.send_nowait(last)
        self._is_closed = True
        self._waiting.close()

    async def _send(self, queue: MemoryObjectReceiveStream[Notification]) -> None:
        with queue:
            async for notification in queue:
                await notification()


class Progress:
    """The progress of one request. Its number is the elapsed seconds; its message says what it waits for.

    Progress of upstreams becomes a message with the call's name. Its number is not the portal's: concurrent calls have
    several, and MCP requires one that grows.
    """

    def __init__(
        self, report: ProgressFnT, ledger: Ledger, tasks: TaskGroup, keep_alive_seconds: float
    ) -> None:
        self.stage = "working"
        """What the request waits for if it waits for no call."""
        self._queue = NotificationQueue(tasks, burst=20, per_second=5)
        self._is_open = anyio.CancelScope()
        self._report = report
        self._ledger = ledger
        self._began = anyio.current_time()
        self._last = 0.0
        tasks.start_soon(self._keep_alive, keep_alive_seconds)

    def close(self) -> None:
        self._is_open.cancel()
        self._queue.close()

    def note(
        self, entry: Entry, scrub: Scrub, progress: float, total: float | None, message: str | None
    ) -> None:
        """Queue an upstream's progress with a call."""
        numbers = _number(progress) + (f" of {_number(total)}" if total is not None else "")
        words = clean_text(message or "", one_line(scrub), MAX_PROGRESS_CHARACTERS)
        text = f"{entry.function}: {numbers}: {words}" if words else f"{entry.function}: {numbers}"
        self._queue.put(partial(self._send, text))

    async def _keep_alive(self, seconds: float) -> None:
        """Every `seconds`, send what the request waits for, even if no upstream reports progress."""
        with self._is_open:
            while True:
                await anyio.sleep(seconds)
                self._queue.put(partial(self._send, self._waited_for()))

    async def _send(self, message: str) -> None:
        seconds = round(anyio.current_time() - self._began, 3)
        self._last = max(seconds, round(self._last + 0.001, 3))
        await self._report(self._last, None, message[:MAX_PROGRESS_CHARACTERS])

    def _waited_for(self) -> str:
        waiting = [entry.function for entry in self._ledger.entries.values() if entry.ended is None]
        if not waiting:
            return self.stage
        names = list(dict.fromkeys(waiting))
        more = ", ..." if len(names) > MAX_NAMED_CALLS else ""
        calls = f"{len(waiting)} call{'s' * (len(waiting) > 1)}"
        return f"waiting for {calls}: {', '.join(names[:MAX_NAMED_CALLS])}{more}"


def _number(value: float) -> str:
    return f"{value:,.10g}" if math.isfinite(value) else "?"


class LogRelay:
    """Forwards log messages of upstreams from `level` on: limited, without secrets, under the upstream's name."""

    def __init__(self, context: Context, level: LoggingLevel, tasks: TaskGroup) -> None:
        self.level = level
        self._queue = NotificationQueue(tasks, burst=50, per_second=20)
        self._context = context
        self._sent = 0
        self._dropped = 0

    def close(self) -> None:
        """Send what is queued, and the number of dropped messages."""
        text = f"{self._dropped} log messages of upstreams were dropped"
        self._queue.close(partial(self._send, "warning", OWN_LOGGER, text) if self._dropped else None)

    async def _send(self, level: LoggingLevel, logger: str, data: Json) -> None:
        params = LoggingMessageNotificationParams(level=level, logger=logger, data=data)
        notification = LoggingMessageNotification(params=params)
        await self._context.session.send_notification(notification, self._context.request_id)

    def note(self, upstream: Upstream, message: LogMessage) -> None:
        # Check the limits first: a dropped message should cost almost nothing.
        is_dropped = self._sent >= MAX_LOG_MESSAGES or self._queue.is_full
        data = None if is_dropped else _shown(message.data, printable(upstream.scrubbed))
        if data is None:
            self._dropped += 1
            return
        self._sent += 1
        logger = clean_text(message.logger, one_line(upstream.scrubbed), MAX_LOGGER_CHARACTERS)
        named = f"{upstream.name}/{logger}" if logger else upstream.name
        self._queue.put(partial(self._send, message.level, named, data))


def _shown(data: Json, scrub: Scrub) -> Json:
    """The data without secrets, cut to MAX_LOG_CHARACTERS; None if it is too large to read."""
    if is_larger(data, MAX_READ_CHARACTERS):
        return None
    clean = clean_json(data, scrub, MAX_LOG_CHARACTERS)
    try:
        text = clean if isinstance(clean, str) else compact(clean)
    except ValueError:  # an integer with more digits than Python formats
        return None
    return clean if len(text) <= MAX_LOG_CHARACTERS else text[: MAX_LOG_CHARACTERS - 1] + "…"


class LogLevels:
    """The level from which clients want log messages of upstreams.

    In older revisions a client sets it for its session. Since 2026-07-28 each request sets it; without it, it gets
    none.
    """

    def __init__(self) -> None:
        self._levels: OrderedDict[str, LoggingLevel] = OrderedDict()

    def set(self, context: Context, level: LoggingLevel) -> None:
        owner = caller_of(context).owner
        if not owner:  # the client cannot be recognised again
            return
        self._levels[owner] = level
        self._levels.move_to_end(owner)
        if len(self._levels) > MAX_SESSIONS:
            self._levels.popitem(last=False)

    def of(self, context: Context) -> LoggingLevel | None:
        """The level of one request; None if its client wants no log messages."""
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return self._levels.get(caller_of(context).owner, DEFAULT_LEVEL)
        asked = (context.meta or {}).get(LOG_LEVEL_META_KEY)
        return next((level for level in LEVELS if level == asked), None)


class ClientChannel:
    """The channel to the client of one request while it waits for the answer.

    It is closed between two rounds of a request (MCP 2026-07-28, basic/patterns/mrtr).
    """

    def __init__(self, questions: Questions | None = None) -> None:
        self._progress: Progress | None = None
        self._logs: LogRelay | None = None
        self._questions = questions
        self._log_handlers: dict[str, LogHandler] = {}

    @asynccontextmanager
    async def open(
        self, context: Context, ledger: Ledger, log_level: LoggingLevel | None, keep_alive_seconds: float
    ) -> AsyncIterator[None]:
        """Keep the channel open while the request waits. `log_level` is None if the client wants no log messages."""
        async with anyio.create_task_group() as tasks:
            progress: Progress | None = None
            logs: LogRelay | None = None
            if progress_token_from_params(context.params) is not None:
                progress = Progress(context.session.report_progress, ledger, tasks, keep_alive_seconds)
            if log_level is not None and self._questions is not None:
                logs = LogRelay(context, log_level, tasks)
            self._progress, self._logs = progress, logs
            try:
                yield
            finally:
                self._progress = self._logs = None
            # Send queued notifications before the answer, unless the client does not read.
            tasks.cancel_scope.deadline = anyio.current_time() + FLUSH_SECONDS
            for each in (progress, logs):
                if each is not None:
                    each.close()

    def stage(self, stage: str) -> None:
        """Set what the request waits for from now on, other than calls."""
        if self._progress is not None:
            self._progress.stage = stage

    def progress_of(self, entry: Entry, upstream: Upstream) -> ProgressHandler | None:
        """A handler for the progress of one call; None if the client wants none, so that the upstream sends none."""

        def handle(progress: float, total: float | None, message: str | None) -> None:
            if self._progress is not None and entry.ended is None:
                self._progress.note(entry, upstream.scrubbed, progress, total, message)

        return None if self._progress is None else handle

    def log_handler(self, upstream: Upstream) -> LogHandler | None:
        """A handler for log messages. All calls of the request share it, so that each message is sent once."""
        if upstream.name not in self._log_handlers and self._logs is not None and self._questions is not None:
            handler = LogHandler(self._questions.owner, self._logs.level, partial(self._handle_log, upstream))
            self._log_handlers[upstream.name] = handler
        return self._log_handlers.get(upstream.name)

    def questions_of(self, upstream: Upstream, spec: UpstreamSection) -> CallQuestions | None:
        """The questions that the upstream may ask during one call; None if there is no client."""
        return None if self._questions is None else CallQuestions(self._questions, upstream, spec)

    def _handle_log(self, upstream: Upstream, message: LogMessage) -> None:
        if self._logs is not None:
            self._logs.note(upstream, message)


NO_CLIENT: Final = ClientChannel()
"""Drops all notifications and cannot be asked."""
