"""What a call needs of the run that makes it."""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from manifests.json_value import Json
from portal.catalog.authority import ApprovalNeeded
from portal.records.ledger import Entry
from sandbox_runtime.call_port import CallError, Outcome, ToolCall

SLEEP: Final = "portal.sleep"
EVENT: Final = "portal.event"
EVENT_URL: Final = "portal.event_url"
APPROVE: Final = "portal.approve"
RECALL: Final = "portal.recall"
SEARCH_TEXT: Final = "portal.search_text"
WAITED: Final = frozenset({SLEEP, EVENT, EVENT_URL, APPROVE, RECALL, SEARCH_TEXT})


class CallJournal(Protocol):
    """Writes what must be known before a call is made, and what came of it; portal/runs/journal.py."""

    def opened(self, entry: Entry) -> None: ...

    async def call(self, entry: Entry, work: Callable[[], Awaitable[Outcome]]) -> Outcome: ...

    async def intend(self, seq: int, function: str) -> CallError | None: ...


class CallWaits(Protocol):
    """Answers the functions of WAITED, and asks people about calls; portal/runs/waits.py."""

    async def __call__(self, call: ToolCall, entry: Entry) -> Outcome: ...

    async def approval(
        self, call: ToolCall, needed: ApprovalNeeded, upstream: str, digest_now: Callable[[], str]
    ) -> dict[str, Json] | CallError: ...
