"""What a call needs from its run, and the portal's own functions, grouped by the module that answers them."""

from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from manifests.grants import FETCH
from manifests.json_value import Json
from manifests.kernels import KernelName
from manifests.manifest import Manifest
from portal.calls.broker import Broker
from portal.calls.caller_upstreams import CallerUpstreams
from portal.calls.fetch import Fetchers
from portal.catalog.authority import ApprovalNeeded, Authorization, Permit
from portal.catalog.docs_search import DocsSearch
from portal.catalog.snapshot import Snapshot
from portal.identity.accounts import Accounts
from portal.library.function import Function
from portal.library.library import Library
from portal.library.observed import Observations
from portal.middleware import Middleware
from portal.records.audit.audit import RunAudit
from portal.records.ledger import Entry, Ledger
from portal.records.telemetry.instruments import NO_TELEMETRY, Telemetry
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
"""Answered by portal/calls/pipeline.py."""
LISTED: Final = frozenset({RESOURCES, READ_RESOURCE, PROMPTS, GET_PROMPT})
"""Answered by portal/calls/resources.py."""
WAITED: Final = frozenset({SLEEP, EVENT, EVENT_URL, APPROVE, RECALL, SEARCH_TEXT})
"""Answered by portal/runs/waits.py. Signatures and documentation of all are in portal/library/library.py."""

_MAX_CHARACTERS: Final = 100
"""Characters of a tool's name in a message."""

MAX_NEAREST: Final = 10
"""Unknown functions per run for which the nearest names are searched. A search blocks the event loop."""


@dataclass(eq=False)
class SessionHistory:
    """What earlier runs of a session may have left in its variables: results and imported functions.

    A kept function calls its tool by name. The upstream's later listings may give that name to another tool, so the
    history holds the tool that each name meant first.
    """

    sources: set[str] = field(default_factory=set)
    """The keys of the upstreams that were called, and NETWORK: variables may contain their results."""
    _tools: dict[str, str] = field(default_factory=dict)

    def record_namespaces(self, library: Library, namespaces: Set[str]) -> None:
        """Record the tools of the namespaces from which a run may import."""
        for name in library.namespaces.keys() & namespaces:
            for function in library.namespaces[name].functions.values():
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

    def known_outcome(self, entry: Entry) -> Outcome | None: ...

    async def is_decided(self, seq: int, function: str) -> bool: ...

    async def call(self, entry: Entry, work: Callable[[], Awaitable[Outcome]]) -> Outcome: ...

    async def intend(self, seq: int, function: str) -> CallError | None: ...

    def is_held(self, seq: int) -> bool: ...


class CallWaits(Protocol):
    """Answers the functions in WAITED, and asks people about calls; portal/runs/waits.py."""

    async def __call__(self, call: ToolCall, entry: Entry) -> Outcome: ...

    async def approval(
        self, call: ToolCall, needed: ApprovalNeeded, digest_now: Callable[[], str]
    ) -> dict[str, Json] | CallError: ...


@dataclass(frozen=True)
class Gateway:
    """What the calls of all runs of a portal share. `middleware` is the operator's own, outermost first."""

    accounts: Accounts
    fetchers: Fetchers
    observations: Observations
    middleware: Sequence[Middleware] = ()
    telemetry: Telemetry = NO_TELEMETRY


class CallNotices(dict[str, tuple[str, int]]):
    """What a run's answer says about its calls: the first text of each kind of notice, and how often it came.

    So a loop over a hundred items gives one text.
    """

    def note(self, kind: str, text: str) -> None:
        first, count = self.get(kind, (text, 0))
        self[kind] = first, count + 1

    def lines(self) -> list[str]:
        return [f"{first} ({n} times)" if n > 1 else first for first, n in self.values()]


@dataclass(eq=False)
class RunContext:
    """What the steps of a call (portal/calls/pipeline.py) share with the other calls of its run.

    `snapshot` holds the library that the script was checked against. `own` gives the upstreams with the caller's
    logins, and the channel to the client. `history` holds the functions that earlier runs of the session could call.
    `waits` answers what a script waits for besides its calls. Without a `journal` a run does not survive the portal.
    """

    gateway: Gateway
    snapshot: Snapshot
    authorization: Authorization
    own: CallerUpstreams
    ledger: Ledger
    broker: Broker
    docs_search: DocsSearch | None = None
    history: SessionHistory = field(default_factory=SessionHistory)
    journal: CallJournal | None = None
    waits: CallWaits | None = None
    notices: CallNotices = field(default_factory=CallNotices)
    _absent: int = 0

    @property
    def manifest(self) -> Manifest:
        """The manifest that is in effect."""
        return self.authorization.authority.manifest

    @property
    def kernel(self) -> KernelName:
        return self.broker.kernel

    @property
    def audit(self) -> RunAudit:
        return self.authorization.audit

    def is_readonly(self, function: Function) -> bool:
        """Whether the function's tool declares now that it only reads."""
        policy, listed = self.authorization.authority.policy, self.own.fleet[function.upstream].tools
        return policy.about_function(function, listed)[1].readonly

    def known_function(self, name: str) -> str | None:
        """The name from a script, if such a function exists; None otherwise."""
        known = LISTED, {FETCH}, self.snapshot.library.functions, self.snapshot.denied
        return name if any(name in each for each in known) else None

    def absence(self, function: str, entry: Entry) -> CallError:
        """The error for a missing function. The first few of a run also get the nearest names."""
        self._absent += 1
        # The error says why an upstream is down, perhaps in the upstream's own words.
        silent = {*self.snapshot.silent} & {function.partition(".")[0]}
        about = [name for name, namespace in self.manifest.namespaces.items() if namespace in silent]
        # If a reload removed the upstream, its words count as those of any source.
        entry.sources |= self.authorization.carry(about if about or not silent else None)
        is_early = self._absent <= MAX_NEAREST
        return self.snapshot.absence(function, with_nearest=is_early, kernel=self.kernel)


@dataclass(eq=False, slots=True)
class Attempt:
    """One attempt to answer a call: as the script made it, as middleware changed it, or by a fallback.

    `function` is None for the portal's own functions, and for names that scripts do not see.
    """

    call: ToolCall
    entry: Entry
    function: Function | None
    decided: Permit | ApprovalNeeded | None = None

    @property
    def permitted(self) -> Permit:
        """The permit, without which nothing goes further."""
        assert isinstance(self.decided, Permit), "the call was not authorized"
        return self.decided


Steps: TypeAlias = "tuple[Step, ...]"
Step: TypeAlias = Callable[[RunContext, Attempt, Steps], Awaitable[Outcome]]
"""`async def step(run, attempt, rest)`. It answers the call itself, or passes it on to the `rest` of the steps."""


def pass_on(run: RunContext, attempt: Attempt, rest: Steps) -> Awaitable[Outcome]:
    """Take the next step."""
    return rest[0](run, attempt, rest[1:])
