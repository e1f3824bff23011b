"""What a call needs from its run, and the portal's own functions, grouped by the module that answers them."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from manifests.json_value import Json
from portal.catalog.authority import ApprovalNeeded
from portal.library.function import Function
from portal.library.library import Library, Namespace
from portal.records.ledger import Entry
from sandbox_runtime.call_port import CallError, Outcome, ToolCall

SEARCH: Final = "portal.search"
DESCRIBE: Final = "portal.describe"
RESOURCES: Final = "portal.resources"
READ_RESOURCE: Final = "portal.read_resource"
PROMPTS: Final = "portal.prompts"
GET_PROMPT: Final = "portal.get_prompt"
SLEEP: Final = "portal.sleep"
EVENT: Final = "portal.event"
EVENT_URL: Final = "portal.event_url"
APPROVE: Final = "portal.approve"
RECALL: Final = "portal.recall"
SEARCH_TEXT: Final = "portal.search_text"
SEARCHED: Final = frozenset({SEARCH, DESCRIBE})
"""Answered by portal/calls/script_search.py."""
LISTED: Final = frozenset({RESOURCES, READ_RESOURCE, PROMPTS, GET_PROMPT})
"""Answered by portal/calls/resources.py."""
WAITED: Final = frozenset({SLEEP, EVENT, EVENT_URL, APPROVE, RECALL, SEARCH_TEXT})
"""Answered by portal/runs/waits.py. Signatures and documentation of all are in portal/library/library.py."""

_MAX_CHARACTERS: Final = 100
"""Characters of a tool's name in a message."""


@dataclass(eq=False)
class SessionHistory:
    """What earlier runs of a session may have left in its variables: results and imported functions.

    A kept function calls its tool by name. The upstream's later listings may give that name to another tool, so the
    history holds the tool that each name meant first.
    """

    sources: set[str] = field(default_factory=set)
    """The keys of the upstreams that were called, and NETWORK: variables may contain their results."""
    _tools: dict[str, str] = field(default_factory=dict)
    _known: dict[str, Namespace] = field(default_factory=dict)

    def record_namespaces(self, library: Library, namespaces: Iterable[str]) -> None:
        """Record the tools of the namespaces from which a run may import."""
        for name in namespaces:
            namespace = library.namespaces.get(name)
            if namespace is not None and self._known.get(name) is not namespace:
                self._known[name] = namespace
                for function in namespace.functions.values():
                    self._tools.setdefault(function.qualified, function.tool)

    def tool_change(self, function: Function) -> CallError | None:
        """The error if the function's name meant another tool earlier in the session, else None."""
        before = self._tools.setdefault(function.qualified, function.tool)
        if before == function.tool:
            return None
        now, was = repr(function.tool[:_MAX_CHARACTERS]), repr(before[:_MAX_CHARACTERS])
        return CallError(
            "tool_changed",
            f"{function.qualified} now means the tool {now}; earlier in this session it meant {was}",
            'Nothing was sent. Variables of this session may refer to either tool. Start another with session="new".',
        )


class CallJournal(Protocol):
    """Journals a call's intent before it is made, and its outcome; portal/runs/journal.py."""

    def opened(self, entry: Entry) -> None: ...

    async def call(self, entry: Entry, work: Callable[[], Awaitable[Outcome]]) -> Outcome: ...

    async def intend(self, seq: int, function: str) -> CallError | None: ...


class CallWaits(Protocol):
    """Answers the functions in WAITED, and asks people about calls; portal/runs/waits.py."""

    async def __call__(self, call: ToolCall, entry: Entry) -> Outcome: ...

    async def approval(
        self, call: ToolCall, needed: ApprovalNeeded, upstream: str, digest_now: Callable[[], str]
    ) -> dict[str, Json] | CallError: ...
