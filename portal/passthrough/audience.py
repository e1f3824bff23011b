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
from manifests.upstream_sections import UpstreamSection
from portal.ledger import Entry, Ledger
from portal.passthrough.asking import AskedByUpstream, Asking
from portal.passthrough.log_relay import LogRelay
from portal.passthrough.progress import Progress
from upstreams.notifications import LogHearer, LogMessage, reaches
from upstreams.upstream import Upstream

FLUSH_SECONDS: Final = 1.0
"""How long an answer waits for a client that does not read what it was told before."""


class Audience:
    """What the parts of the portal that work on a request tell its client meanwhile, and ask it.

    `NOBODY` hears nothing, and cannot be asked.
    """

    def __init__(
        self, progress: Progress | None, logs: LogRelay | None, asking: Asking | None = None
    ) -> None:
        self._progress = progress
        self._logs = logs
        self._asking = asking

    def follow(self, ledger: Ledger) -> None:
        """Tell of the calls in this ledger from now on."""
        if self._progress is not None:
            self._progress.ledger = ledger

    def waits_for(self, stage: str) -> None:
        """What the request waits for from now on, as far as it is no call."""
        if self._progress is not None:
            self._progress.stage = stage

    def progress_of(self, entry: Entry, upstream: Upstream) -> ProgressFnT | None:
        """What hears of the progress of one call; None if nobody does, so that the upstream need not tell."""
        return None if self._progress is None else self._progress.of_call(entry, upstream.scrubbed)

    def log_hearer(self, upstream: Upstream) -> LogHearer | None:
        return None if self._logs is None else self._logs.hearer(upstream.name, upstream.scrubbed)

    def asked_by(self, upstream: Upstream, spec: UpstreamSection) -> AskedByUpstream | None:
        """What the upstream may ask about one call; None if there is no client."""
        return None if self._asking is None else self._asking.of_call(upstream, spec)


NOBODY: Final = Audience(None, None)


class Relay(Audience):
    """The clients of one request that comes in rounds: whoever is `current`. Between two rounds nobody is."""

    def __init__(self, asking: Asking) -> None:
        super().__init__(None, None, asking)
        self.current = NOBODY
        self._owner = asking.owner
        self._hearers: dict[str, LogHearer] = {}

    def waits_for(self, stage: str) -> None:
        self.current.waits_for(stage)

    def progress_of(self, entry: Entry, upstream: Upstream) -> ProgressFnT | None:
        async def heard(progress: float, total: float | None, message: str | None) -> None:
            if (now := self.current.progress_of(entry, upstream)) is not None:
                await now(progress, total, message)

        return None if self.current.progress_of(entry, upstream) is None else heard

    def log_hearer(self, upstream: Upstream) -> LogHearer | None:
        """The same for all calls, so that they hear a message once."""
        now = self.current.log_hearer(upstream)
        if upstream.name in self._hearers or now is None:
            return self._hearers.get(upstream.name)

        def heard(message: LogMessage | None) -> None:
            hearer = self.current.log_hearer(upstream)
            if hearer is None:
                return
            if message is None or reaches(message.level, hearer.level):
                hearer.hear(message)

        self._hearers[upstream.name] = LogHearer(self._owner, now.level, heard)
        return self._hearers[upstream.name]


@asynccontextmanager
async def audience_of(
    context: ServerRequestContext[Any, Any],
    ledger: Ledger,
    *,
    owner: str,
    log_level: LoggingLevel | None,
    keep_alive_seconds: float,
    asking: Asking | None = None,
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
        yield NOBODY if asking is None else Audience(None, None, asking)
        return
    async with anyio.create_task_group() as tasks:
        if progress is not None:
            progress.outbox.open(tasks)
            tasks.start_soon(progress.keep_alive)
        if logs is not None:
            logs.outbox.open(tasks)
        yield Audience(progress, logs, asking)
        # What was heard before the end is told before the end; to a client that does not read, not at all.
        tasks.cancel_scope.deadline = anyio.current_time() + FLUSH_SECONDS
        if progress is not None:
            progress.outbox.close()
        if logs is not None:
            logs.close()
