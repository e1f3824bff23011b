"""`authorize()`: decides whether a script may call a tool, counts budgets, and describes the grants."""

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Final, TypeAlias

import anyio

from manifests.decision import Decision, decide, decide_arguments, decide_fetch, decide_flow
from manifests.errors import KeyPath
from manifests.grants import NETWORK, Hints
from manifests.json_value import Json
from manifests.kernels import PYTHON, KernelName
from manifests.manifest import Budget, Manifest, Rule
from manifests.names import former_of
from manifests.portal_manifest import Capabilities
from portal.base.errors import approval_required, refused
from portal.base.plain_text import some
from portal.library.function import Function
from portal.library.pinning import Pins
from portal.records.audit.audit import NO_RUN_AUDIT, Batch, RunAudit, unrecorded
from portal.records.ledger import Entry
from sandbox_runtime.call_port import CallError
from upstreams.errors import UpstreamWithheldError
from upstreams.tools import RecordedTool

MAX_NAMES = 20
"""Hosts and environment variables that are listed; more are counted."""

_SHARED_BY = {
    "all": "all scripts share them",
    "tenant": "all scripts of one tenant share them",
    "session": "a session keeps them between its runs",
    "run": "they are deleted after the run",
}


def effective_capabilities(manifest: Manifest) -> Capabilities:
    """The capabilities of scripts, without the network if the rules allow no call of `portal.fetch`."""
    fetching, capabilities = decide_fetch(manifest), manifest.portal.capabilities
    if fetching.granted and not any(0 in (budget.calls, budget.per_minute) for budget in fetching.budgets):
        return capabilities
    return capabilities.model_copy(update={"network": None})


def describe_capabilities(capabilities: Capabilities) -> str:
    """The capabilities in a few words, for the definition of `execute_code`."""
    network = "no network" if capabilities.network is None else "network by portal.fetch(url)"
    modes = {"none": "no files", "read": "files to read in /workspace", "write": "files in /workspace"}
    files = modes["none" if capabilities.files is None else capabilities.files.mode]
    return f"{files}, {network}"


def grant_lines(manifest: Manifest, kernel: KernelName = PYTHON) -> Iterator[str]:
    """One line per kind of grant, for scripts of this kernel. Contains no values of variables."""
    capabilities, is_python = effective_capabilities(manifest), kernel == PYTHON
    if (files := capabilities.files) is not None and not is_python:
        yield f"only scripts of the kernel {PYTHON} have the files in /workspace"
    elif files is not None:
        may = "read and write files" if files.mode == "write" else "read the files"
        yield (
            f"scripts {may} in /workspace, their working directory, with open, pathlib, os, csv, sqlite3 and others;"
            f" {_SHARED_BY[files.share]}"
        )
    if (network := capabilities.network) is not None:
        hosts = some([*network.allow, *network.private], MAX_NAMES)
        yield f"scripts fetch from {hosts} with " + (
            "await portal.fetch(url, method=, headers=, params=, json=, body=, timeout=); "
            "its answer has status, ok, headers, text, json() and bytes"
            if is_python
            else "await portal.fetch(url, {method, headers, params, json, body, timeout}); "
            "its answer has status, ok, headers, text(), json() and bytes()"
        )
    if names := sorted(capabilities.environment):
        yield f"scripts see in {'os.environ' if is_python else 'portal.env'}: {some(names, MAX_NAMES)}"


WINDOW_SECONDS: Final = 60.0


class CallRates:
    """Enforces the `per_minute` limits of budgets: a sliding window of 60 seconds."""

    def __init__(self) -> None:
        self._calls: dict[KeyPath, deque[float]] = {}

    def wait_seconds(self, budget: Budget) -> float:
        """Seconds until one more call is allowed; 0 if it is allowed now."""
        if budget.per_minute is None:
            return 0.0
        if budget.per_minute == 0:
            return WINDOW_SECONDS
        calls, now = self._calls.get(budget.keys, deque()), time.monotonic()
        while calls and now - calls[0] >= WINDOW_SECONDS:
            calls.popleft()
        return 0.0 if len(calls) < budget.per_minute else max(calls[0] + WINDOW_SECONDS - now, 0.001)

    def count(self, budget: Budget) -> None:
        if budget.per_minute is not None:
            self._calls.setdefault(budget.keys, deque()).append(time.monotonic())


_Listing: TypeAlias = (
    "tuple[tuple[RecordedTool, ...], Mapping[str, Hints], dict[tuple[str, ...], tuple[Decision, Hints]]]"
)

MAX_REMEMBERED: Final = 50_000
"""Cached decisions about tools."""


class Policy:
    """Decides about tools by one manifest, for all code that shows, checks or calls them. Caches its decisions."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest, self.since = manifest, time.monotonic()
        self.pins = Pins(manifest.lock)
        # Names compare equal whatever their former name, but rules match that, too. So it is a part of the key.
        self._decide = lru_cache(MAX_REMEMBERED)(lambda former, **named: decide(manifest, **named))
        self._listings: dict[str, _Listing] = {}
        """By upstream, the tools it lists, their hints, and what was decided about its functions."""

    def about(self, upstream: str, tool: str, function: str, hints: Hints) -> Decision:
        """Decide about a tool itself, whatever the arguments. `function` is its name in its namespace."""
        return self._decide(former_of(function), upstream=upstream, tool=tool, function=function, hints=hints)

    def about_listed(
        self, upstream: str, tools: tuple[RecordedTool, ...], tool: str, function: str, hints: Hints
    ) -> Decision:
        """Decide about a tool of an upstream that lists `tools` now. A tool that was not accepted is quarantined, even
        if a rule grants it.
        """
        decision = self.about(upstream, tool, function, hints)
        if not decision.granted and not decision.is_shown:
            return decision
        return self.pins.quarantined(upstream, tools).get(tool, decision)

    def about_function(self, function: Function, tools: tuple[RecordedTool, ...]) -> tuple[Decision, Hints]:
        """Decide about a function of an upstream that lists `tools` now.

        Also returns what its tool declares in that listing, or declared when it was last listed.
        """
        upstream, tool, name = function.upstream, function.recorded.name, function.name
        if (known := self._listings.get(upstream)) is None or known[0] is not tools:
            hints = {each.name: Hints.of(each.annotations) for each in tools}
            known = self._listings[upstream] = tools, hints, {}
        _, listed, decided = known
        if (found := decided.get(key := (tool, name, former_of(name)))) is None:
            declared = listed.get(tool) or Hints.of(function.recorded.annotations)
            found = self.about_listed(upstream, tools, tool, name, declared), declared
            if tool in listed:  # else another function may have another recorded tool of this name
                decided[key] = found
        return found


@dataclass(frozen=True, eq=False)
class Authority:
    """Knows the policy that is in effect now for the callers of one profile.

    A reload may replace it at any time, also for running scripts: what is revoked is refused at the next call. Only
    their files, hosts and environment stay. Work in a thread takes `policy` once.
    """

    now: Callable[[], Policy]
    rates: CallRates = field(default_factory=CallRates)

    @classmethod
    def fixed(cls, manifest: Manifest) -> "Authority":
        """The authority of a manifest that nothing reloads."""
        policy = Policy(manifest)
        return cls(lambda: policy)

    @property
    def policy(self) -> Policy:
        return self.now()

    @property
    def manifest(self) -> Manifest:
        return self.now().manifest


class WithheldError(UpstreamWithheldError):
    """The call was permitted, but no longer is at the moment of sending."""

    def __init__(self, call_error: CallError) -> None:
        super().__init__(call_error.message)
        self.call_error = call_error


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A call that a script requests: its destination, the decision about its tool, and its arguments.

    `arguments` is called only if the tool itself is granted. It may raise if they are invalid.
    """

    function: str
    destination: str
    tool: Decision
    arguments: Callable[[], dict[str, Json]]
    seq: int = 0
    """The number of the call in the run."""
    hints: Hints = field(default_factory=Hints)
    """What the tool declares about itself."""


@dataclass(frozen=True, slots=True)
class ApprovalNeeded:
    """The call is permitted, except that a rule asks a person first. Request it again with the person's approval.

    `arguments` are those that would be sent. The asking `rule` is at `where`.
    """

    request: CallRequest
    arguments: dict[str, Json]
    rule: str
    where: str

    @property
    def error(self) -> CallError:
        """The refusal if no one can be asked."""
        return approval_required(self.request.function, self.request.tool)


@dataclass(frozen=True, slots=True)
class Permit:
    """Permission for one call with exactly these arguments."""

    sources: set[str]
    destination: str
    arguments: dict[str, Json]
    conditions: tuple[Sequence[Rule], ...]
    is_recorded: bool
    is_approved: bool
    unwritten: Batch | None = None
    """The batch of the audit log with a recorded call that is not written yet; None if it is written already."""
    is_held: Callable[[], bool] = lambda: True
    """Whether this portal still holds the run, if the call may be sent once only."""

    def sent(self, entry: Entry) -> None:
        """Record that the upstream may see the call, so that its data may reach the script."""
        entry.sent(self.destination)
        self.sources.add(self.destination)


@dataclass(eq=False)
class Authorization:
    """Authorizes the calls of one run. `sources` are the sources of all data in the run and its session so far.

    `counted` has the budgets that each call spent, by `seq`: one entry for each request that was sent for it.
    """

    authority: Authority
    sources: set[str]
    audit: RunAudit = NO_RUN_AUDIT
    counted: dict[int, tuple[Budget, ...]] = field(default_factory=dict)
    turn: anyio.Lock = field(default_factory=partial(anyio.Lock, fast_acquire=True))
    """Held by the call that is decided next, as deciding may take long."""
    _made: Counter[KeyPath] = field(default_factory=Counter)

    def of_function(
        self,
        function: Function,
        listed: tuple[RecordedTool, ...],
        arguments: Callable[[], dict[str, Json]],
        seq: int = 0,
    ) -> CallRequest:
        """The request for a call of a function, with the decision by its upstream's current listing."""
        tool, hints = self.authority.policy.about_function(function, listed)
        return CallRequest(function.qualified, function.upstream, tool, arguments, seq, hints)

    def of_fetch(self, function: str, arguments: Callable[[], dict[str, Json]], seq: int = 0) -> CallRequest:
        """The request for a call of `portal.fetch`. The fetcher checks the host, at every redirect."""
        tool = decide_fetch(self.authority.manifest)
        return CallRequest(function, NETWORK, tool, arguments, seq)

    def authorize(
        self, request: CallRequest, *, is_approved: bool = False, asks: bool = False
    ) -> Permit | CallError | ApprovalNeeded:
        """Decide about one call. A permitted call is audited and counted; an error says why it is refused, and what
        would help. `is_approved`: by a person, with these arguments. `asks`: a person, whatever the rules say.

        Refused calls, and calls that wait for approval, do not count towards budgets.
        """
        decision, manifest = request.tool, self.authority.manifest
        arguments: dict[str, Json] = {}
        if decision.granted:
            arguments = request.arguments()
            decision = decide_arguments(manifest, request.tool, arguments)
        if decision.granted and manifest.rules.flows:
            flow = decide_flow(manifest, self.sources, request.destination)
            decision = decision if flow.granted else flow
        if decision.granted and request.tool.budgets:
            decision = self._within_budgets(decision)
        if not decision.granted:
            return refused(request.function, decision)
        if (asks or request.tool.asks) and not is_approved:
            return ApprovalNeeded(request, arguments, request.tool.asks, request.tool.asks_where)
        is_recorded = self.audit.allowed(request.seq, request.function, decision, arguments)
        if not is_recorded and not request.hints.readonly:
            return unrecorded(request.function)
        self._count(request)
        conditions, batch = request.tool.conditions, self.audit.audit.batch
        return Permit(
            self.sources, request.destination, arguments, conditions, is_recorded, is_approved, batch
        )

    def confirm(self, request: CallRequest, permit: Permit, entry: Entry, *, was_seen: bool) -> None:
        """Decide about a permitted call again at the moment of sending, and record that it is sent.

        It may have waited for a connection, and its tool may have changed. So everything that depends on the tool's
        declarations is decided again: whether it is granted, with which arguments, whether it asks, and whether it may
        be called unrecorded. If an earlier attempt may have arrived, it counts again towards budgets.

        Raises WithheldError: it must not be sent.
        """
        decision = request.tool
        if decision.granted and decision.conditions != permit.conditions:
            decision = decide_arguments(self.authority.manifest, request.tool, permit.arguments)
        if decision.granted and was_seen:
            decision = self._within_budgets(decision)
        if not decision.granted:
            raise WithheldError(refused(request.function, decision))
        if request.tool.asks and not permit.is_approved:
            raise WithheldError(approval_required(request.function, request.tool))
        is_written = permit.unwritten is None or permit.unwritten.is_written
        if not (permit.is_recorded and is_written) and not request.hints.readonly:
            raise WithheldError(unrecorded(request.function))
        if not permit.is_held():
            message = (
                f"{request.function} was not called: meanwhile the portal was cut off from the store of runs"
            )
            raise WithheldError(CallError("journal_failed", message, "Nothing was sent. Try again later."))
        if was_seen:
            self._count(request)
        permit.sent(entry)

    def carry(self, sources: Collection[str] | None) -> set[str]:
        """Add the sources of data that an earlier run left, and return them.

        If they are unknown (None), or the manifest no longer has one of them, all sources count.
        """
        found, known = {*(sources or ())}, {*self.authority.manifest.portal.upstreams, NETWORK}
        if sources is None or not found <= known:
            found |= known
        self.sources |= found
        return found

    def prime(self, seq: int, keys: Collection[KeyPath], sources: Collection[str]) -> None:
        """Restore what a call of an earlier segment counted in its run, without deciding anything.

        `keys` are those of its budgets; one that the manifest no longer has is ignored. `sources` are those of its
        data. The rates are not restored: they count what this process sent.
        """
        self.carry(sources)
        known = {
            budget.keys: budget for section in self.authority.manifest.rules for budget in section.budgets
        }
        self._note(seq, tuple(known[each] for each in keys if each in known))

    def _within_budgets(self, granted: Decision) -> Decision:
        for budget in granted.budgets:
            if budget.calls is not None and self._made[budget.keys] >= budget.calls:
                code = "tool_budget"
                reason = f"this run has made its {budget.calls:,} calls of {budget.glob.pattern}"
                advice = "Do the work in fewer calls, or in several scripts."
            elif seconds := self.authority.rates.wait_seconds(budget):
                code = "rate_limited"
                reason = f"the limit is {budget.per_minute:,} calls of {budget.glob.pattern} per minute for all runs"
                advice = (
                    f"Nothing was sent. Try again in {math.ceil(seconds)} s." if budget.per_minute else ""
                )
            else:
                continue
            rule = f"{'.'.join(map(str, budget.keys[:-1]))}: {reason}"
            where = self.authority.manifest.where(*budget.keys)
            return replace(granted, verdict="deny", code=code, rule=rule, where=where, advice=advice)
        return granted

    def _count(self, request: CallRequest) -> None:
        self._note(request.seq, request.tool.budgets)
        for budget in request.tool.budgets:
            self.authority.rates.count(budget)

    def _note(self, seq: int, budgets: tuple[Budget, ...]) -> None:
        if budgets:
            self.counted[seq] = (*self.counted.get(seq, ()), *budgets)
            self._made.update(budget.keys for budget in budgets)
