"""The client of one request, who hears of it while it is under way."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from mcp.server.context import ServerRequestContext
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp_types import LoggingLevel, LoggingMessageNotification, LoggingMessageNotificationParams

from manifests.json_value import Json
from portal.ledger import Entry, Ledger
from portal.passthrough.log_relay import LogRelay
from portal.passthrough.progress import Progress
from upstreams.log_messages import LogHearer
from upstreams.upstream import Upstream

FLUSH_SECONDS: Final = 1.0
"""How long an answer waits for a client that does not read what it was told before."""


class Audience:
    """What the parts of the portal that work on a request tell its client meanwhile. `NOBODY` hears nothing."""

    def __init__(self, progress: Progress | None, logs: LogRelay | None) -> None:
        self._progress = progress
        self._logs = logs

    def waits_for(self, stage: str) -> None:
        """What the request waits for from now on, as far as it is no call."""
        if self._progress is not None:
            self._progress.stage = stage

    def progress_of(self, entry: Entry, upstream: Upstream) -> ProgressFnT | None:
        """What hears of the progress of one call; None if nobody does, so that the upstream need not tell."""
        return None if self._progress is None else self._progress.of_call(entry, upstream.scrubbed)

    def log_hearer(self, upstream: Upstream) -> LogHearer | None:
        return None if self._logs is None else self._logs.hearer(upstream.name, upstream.scrubbed)


NOBODY: Final = Audience(None, None)


@asynccontextmanager
async def audience_of(
    context: ServerRequestContext[Any, Any],
    ledger: Ledger,
    *,
    owner: str,
    log_level: LoggingLevel | None,
    keep_alive_seconds: float,
) -> AsyncIterator[Audience]:
    """The client of a request, told of it as long as this is open: of its progress, if it gave a token for that."""
    session, related = context.session, context.request_id

    async def log(level: LoggingLevel, logger: str, data: Json) -> None:
        params = LoggingMessageNotificationParams(level=level, logger=logger, data=data)
        await session.send_notification(LoggingMessageNotification(params=params), related)

    progress = logs = None
    if progress_token_from_params(context.params) is not None:
        progress = Progress(session.report_progress, ledger, keep_alive_seconds)
    if log_level is not None:
        logs = LogRelay(log, owner, log_level)
    if progress is None and logs is None:
        yield NOBODY
        return
    async with anyio.create_task_group() as tasks:
        if progress is not None:
            tasks.start_soon(progress.outbox.deliver)
            tasks.start_soon(progress.keep_alive)
        if logs is not None:
            tasks.start_soon(logs.outbox.deliver)
        yield Audience(progress, logs)
        # What was heard before the end is told before the end; to a client that does not read, not at all.
        tasks.cancel_scope.deadline = anyio.current_time() + FLUSH_SECONDS
        if progress is not None:
            progress.outbox.close()
        if logs is not None:
            logs.close()
