"""The channel to a waiting client: progress and questions.

Source: MCP 2026-07-28, basic/utilities/progress.
"""

import math
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.server.context import ServerRequestContext
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp_types import ElicitationCapability, ElicitRequest

from manifests.json_value import Json
from portal.base.clean_json import Scrub, clean_text, one_line
from portal.calls.questions import Questions, can_show_forms, request_of
from portal.identity.approvers import NOBODY
from portal.records.ledger import Entry, Ledger
from upstreams.transports.messages import TokenBucket
from upstreams.transports.wire import ProgressHandler
from upstreams.upstream import Upstream

FLUSH_SECONDS: Final = 1.0
"""How long an answer waits for a client that does not read its notifications."""

BURST: Final = 20
PER_SECOND: Final = 5
"""Messages in a burst, and per second after that. Further ones are dropped: the client may not read them."""

MAX_PROGRESS_CHARACTERS: Final = 200
MAX_NAMED_CALLS: Final = 3
"""Open calls that a progress message names; more are counted."""

Context: TypeAlias = ServerRequestContext[Any, Any]


class Progress:
    """The progress of one request. Its number is the elapsed seconds; its message says what the request waits for.

    Progress of upstreams becomes a message with the call's name. Upstreams' numbers cannot be passed on: concurrent
    calls have several, and MCP requires a number that grows.
    """

    def __init__(
        self, report: ProgressFnT, ledger: Ledger, tasks: TaskGroup, keep_alive_seconds: float
    ) -> None:
        self.stage = "working"
        """What the request waits for when no call is under way."""
        self._rate = TokenBucket(BURST, PER_SECOND)
        self._queue, waiting = anyio.create_memory_object_stream[str](math.inf)
        self._is_open = anyio.CancelScope()
        self._report = report
        self._ledger = ledger
        self._began = anyio.current_time()
        self._last = 0.0
        tasks.start_soon(self._send, waiting)
        tasks.start_soon(self._keep_alive, keep_alive_seconds)

    def close(self) -> None:
        """Take no more messages. Those that are queued are still sent."""
        self._is_open.cancel()
        self._queue.close()

    def note(
        self, entry: Entry, scrub: Scrub, progress: float, total: float | None, message: str | None
    ) -> None:
        """Queue an upstream's progress with a call."""
        numbers = _number(progress) + (f" of {_number(total)}" if total is not None else "")
        words = clean_text(message or "", one_line(scrub), MAX_PROGRESS_CHARACTERS)
        text = f"{entry.function}: {numbers}: {words}" if words else f"{entry.function}: {numbers}"
        self._put(text)

    async def _keep_alive(self, seconds: float) -> None:
        """Every `seconds`, send what the request waits for, even if no upstream reports progress."""
        with self._is_open:
            while True:
                await anyio.sleep(seconds)
                self._put(self._waited_for())

    def _put(self, message: str) -> None:
        if not self._is_open.cancel_called and self._rate.take():
            self._queue.send_nowait(message[:MAX_PROGRESS_CHARACTERS])

    async def _send(self, waiting: MemoryObjectReceiveStream[str]) -> None:
        with waiting:
            async for message in waiting:
                seconds = round(anyio.current_time() - self._began, 3)
                self._last = max(seconds, round(self._last + 0.001, 3))
                await self._report(self._last, None, message)

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


class ClientChannel:
    """The channel to the client of one request while it waits for the answer.

    It is closed between two rounds of a request (MCP 2026-07-28, basic/patterns/mrtr).
    """

    def __init__(self, questions: Questions | None = None) -> None:
        self._progress: Progress | None = None
        self.questions = questions
        self.decider = NOBODY if questions is None else questions.decider
        """The person at the client: whoever answered last."""

    @asynccontextmanager
    async def open(self, context: Context, ledger: Ledger, keep_alive_seconds: float) -> AsyncIterator[None]:
        if progress_token_from_params(context.params) is None:
            yield
            return
        async with anyio.create_task_group() as tasks:
            self._progress = Progress(context.session.report_progress, ledger, tasks, keep_alive_seconds)
            try:
                yield
            finally:
                self._progress.close()
                self._progress = None
            # Send queued notifications before the answer, unless the client does not read.
            tasks.cancel_scope.deadline = anyio.current_time() + FLUSH_SECONDS

    def leave(self) -> None:
        """The client has left: nothing asks it any more, also if its run goes on."""
        self.questions = None

    def stage(self, stage: str) -> None:
        """Set what the request waits for, other than calls."""
        if self._progress is not None:
            self._progress.stage = stage

    def progress_of(self, entry: Entry, upstream: Upstream) -> ProgressHandler | None:
        """A handler for the progress of one call; None if the client wants no progress, so the upstream sends none."""

        def handle(progress: float, total: float | None, message: str | None) -> None:
            if self._progress is not None and entry.ended is None:
                self._progress.note(entry, upstream.redact.start, progress, total, message)

        return None if self._progress is None else handle

    @property
    def can_ask_person(self) -> bool:
        can = self._elicitation
        return can is not None and can_show_forms(can)

    @property
    def can_open_pages(self) -> bool:
        can = self._elicitation
        return can is not None and can.url is not None

    @property
    def _elicitation(self) -> ElicitationCapability | None:
        can = self.questions.capabilities if self.questions is not None else None
        return None if can is None else can.elicitation

    async def ask_person(self, form: ElicitRequest) -> dict[str, Json] | None:
        """The person's answer to a form; None without an answer."""
        return None if self.questions is None else await self.questions.form(form)

    async def open_page(self, url: str, message: str) -> bool:
        """Ask the person to open a page of the portal. Returns whether they agreed.

        Source: MCP 2025-11-25, client/elicitation#url-mode-elicitation-requests.
        """
        page = {"mode": "url", "url": url, "elicitationId": secrets.token_hex(8), "message": message}
        answer = await self.ask_person(request_of(page)) if self.can_open_pages else None
        return answer is not None and answer["action"] == "accept"


NO_CLIENT: Final = ClientChannel()
"""Drops all notifications and cannot be asked."""
