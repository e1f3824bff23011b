"""What the portal can tell and ask the client of a request while it works on it."""

from functools import partial
from typing import Final

from manifests.upstream_sections import UpstreamSection
from portal.ledger import Entry
from portal.passthrough.notifications import LogRelay, Progress
from portal.passthrough.questions import CallQuestions, Questions
from upstreams.notifications import LogHearer, LogMessage
from upstreams.upstream import Upstream
from upstreams.wire import ProgressHearer


class BackChannel:
    """The client of one request.

    `progress` and `logs` are there while it waits for the answer and wants them, `questions` if it can be asked.
    Between two rounds of a request (MCP 2026-07-28, basic/patterns/mrtr) nobody waits.
    """

    def __init__(self, questions: Questions | None = None) -> None:
        self.progress: Progress | None = None
        self.logs: LogRelay | None = None
        self._questions = questions
        self._hearers: dict[str, LogHearer] = {}

    @property
    def hears_logs(self) -> bool:
        """Whether it makes calls that upstreams may log about."""
        return self._questions is not None

    def stage(self, stage: str) -> None:
        """What the request waits for from now on, as far as it is no call."""
        if self.progress is not None:
            self.progress.stage = stage

    def progress_of(self, entry: Entry, upstream: Upstream) -> ProgressHearer | None:
        """What hears of the progress of one call; None if nobody does, so that the upstream need not tell."""

        def hear(progress: float, total: float | None, message: str | None) -> None:
            if self.progress is not None and entry.ended is None:
                self.progress.note(entry, upstream.scrubbed, progress, total, message)

        return None if self.progress is None else hear

    def log_hearer(self, upstream: Upstream) -> LogHearer | None:
        """The same for all calls of the request, so that they hear a message once."""
        if upstream.name not in self._hearers and self.logs is not None and self._questions is not None:
            hearer = LogHearer(self._questions.owner, self.logs.level, partial(self._hear_log, upstream))
            self._hearers[upstream.name] = hearer
        return self._hearers.get(upstream.name)

    def questions_of(self, upstream: Upstream, spec: UpstreamSection) -> CallQuestions | None:
        """What the upstream may ask about one call; None if there is no client."""
        return None if self._questions is None else CallQuestions(self._questions, upstream, spec)

    def _hear_log(self, upstream: Upstream, message: LogMessage | None) -> None:
        if self.logs is not None:
            self.logs.note(upstream, message)


NO_CLIENT: Final = BackChannel()
"""Hears nothing, and cannot be asked."""
