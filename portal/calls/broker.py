"""The only way from a script to upstreams and the network: authorizes, validates, records and forwards each call.

Rule 1: the guest is untrusted. `Authorization.authorize()` (`portal/catalog/authority.py`) decides on every call.
Before that, the host side of the sandbox has checked sizes. Files go through `sandbox_runtime/grants/files.py`.
Rule 2: every call has a ledger entry before anything happens. The entry is `unknown` from the moment at which the
upstream may see the call until its answer is read.
Rule 3: calls are decided in the order in which the script made them, even if one takes long to decide. If middleware
waits before it passes its call on, later calls overtake it.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from math import inf
from typing import Final

import anyio
import anyio.lowlevel
import structlog
from mcp_types import INVALID_PARAMS

from manifests.decision import decide_fetch
from manifests.grants import FETCH, NETWORK
from manifests.json_value import Json
from manifests.manifest import Manifest
from portal.base.errors import UnreachableError
from portal.base.plain_text import default_text
from portal.calls.caller_upstreams import CallerUpstreams
from portal.calls.channel import NO_CLIENT, ClientChannel
from portal.calls.fetch import Fetcher, FetchError
from portal.calls.questions import CallQuestions
from portal.calls.resources import ResourceError, Resources, recorded
from portal.calls.run import LISTED, WAITED, CallJournal, CallWaits, SessionHistory
from portal.catalog.authority import ApprovalNeeded, Authorization, CallRequest, Permit, WithheldError
from portal.catalog.snapshot import Snapshot
from portal.library.arguments import ArgumentError, Repairs, normalize_arguments
from portal.library.function import Function
from portal.library.observed import Observations
from portal.library.pinning import pin_of
from portal.library.results import content_of, parsed_text, script_value
from portal.middleware import BrokerCall, Chain, Middleware
from portal.records.audit.audit import NO_RUN_AUDIT, RunAudit, unrecorded
from portal.records.ledger import CallState, Entry, Ledger, RepairNotes, plain_name
from portal.records.telemetry import instruments
from portal.records.telemetry.instruments import NO_TELEMETRY, Telemetry
from sandbox_runtime.call_port import CallError, Outcome, ToolCall
from upstreams import errors
from upstreams.questions import QuestionError
from upstreams.redaction import Redaction
from upstreams.tools import MISSING, ToolResult

log = structlog.get_logger()

MAX_ERROR_CHARACTERS = 4_000
"""A tool's error text is cut to this length for the script."""

MAX_REASON_CHARACTERS = 300
"""The reason why a fallback failed is cut to this length."""

_ABOUT_ARGUMENTS: Final = re.compile(r"argument|param|valid|requir|missing|expect|schema", re.IGNORECASE)
"""Matches errors of tools that may be about the arguments; the hint then shows the signature."""

_QUOTED_PATH: Final = re.compile(r"'[^']*[./\\\\][^']*'")
"""Matches the parts of an error that quote arguments: `no such file or directory, open '/tmp/missing.md'`."""

LONG_TEXT = 500
"""Before it decides a call with a longer string argument, the broker yields to the event loop."""

REPEATABLE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

UNREACHABLE = (
    errors.UpstreamUnavailableError,
    errors.UpstreamLostError,
    errors.UpstreamTimeoutError,
    errors.UpstreamFaultError,
)
"""The failures after which a fallback is tried."""

MAX_NEAREST = 10
"""Unknown functions per run for which the nearest names are searched. A search blocks the event loop."""


@dataclass
class Broker:
    """Forwards the calls of one run, and observes them. The run's call port is `ScriptSearch`, which calls this one.

    `snapshot` holds the library that the run is checked against. `own` gives the upstreams with the caller's logins.
    `repairs` lists the repaired arguments. `fetcher` is set if the manifest grants network access. `channel` forwards
    progress and requests of upstreams to the client. `history` holds the functions that earlier runs of the session
    could call. `middleware` is the operator's own, outermost first. `waits` answers what a script waits for besides its
    calls. Without a `journal` a run does not survive the portal.
    """

    manifest: Manifest
    authorization: Authorization
    snapshot: Snapshot
    own: CallerUpstreams
    ledger: Ledger
    observations: Observations
    fetcher: Fetcher | None = None
    audit: RunAudit = NO_RUN_AUDIT
    channel: ClientChannel = NO_CLIENT
    history: SessionHistory = field(default_factory=SessionHistory)
    middleware: Sequence[Middleware] = ()
    journal: CallJournal | None = None
    waits: CallWaits | None = None
    telemetry: Telemetry = NO_TELEMETRY
    repairs: RepairNotes = field(default_factory=RepairNotes)
    began: float = inf
    """When a resumed run began, in seconds since 1970: its functions return the types that they had then."""
    _substitutes: dict[tuple[str, str], str] = field(default_factory=dict)
    """By function and fallback: the first error that made the fallback answer."""
    _order: anyio.Lock = field(default_factory=partial(anyio.Lock, fast_acquire=True))
    _absent: int = 0

    def open(self, seq: int, function: str) -> None:
        """Record that the script made a call, which may still have to wait for its turn."""
        self.ledger.open(seq, self.snapshot.canonical(function))
        if self.journal is not None:
            self.journal.opened(self.ledger[seq])

    def withhold(self, seq: int, error: CallError) -> None:
        """Record that a limit kept the call from the upstream, or its result from the script."""
        entry = self.ledger[seq]
        if entry.state != "done":
            self.audit.refused(seq, entry.request or self._known_function(entry.function), error)
        entry.withhold(error)

    def notices(self) -> list[str]:
        """The notices about calls in the run's answer: repaired arguments, and fallbacks, once each."""
        answered = (
            f"{own} was answered by {other}: {why}" for (own, other), why in self._substitutes.items()
        )
        return [*self.repairs.notices(), *answered]

    async def __call__(self, call: ToolCall) -> Outcome:
        """Take one call of the running script through all steps: middleware, fallback, authorize, ask, journal, send.

        Arguments must satisfy the tool's input schema. Errors are returned with a stable `code`, never raised.
        Raises FencedError: another portal has taken the run over, or it was ended.
        """
        entry = self.ledger[call.seq]
        call = replace(call, function=self.snapshot.canonical(call.function))
        if not self.telemetry.is_on:
            return await self._journaled(call, entry)
        with self.telemetry.call.span(*self._observation(call)) as found:
            outcome = await self._journaled(call, entry)
            found[instruments.CALL_STATE] = entry.state
            found |= self.telemetry.shown(instruments.RESULT, outcome.value)
            if outcome.error is not None:
                found[instruments.ERROR] = outcome.error.code
            return outcome

    def _observation(self, call: ToolCall) -> tuple[str, instruments.Attributes]:
        """The name and the attributes of a call's span. A script may have made up its function."""
        attributes = self.telemetry.shown(instruments.ARGUMENTS, call.arguments)
        attributes |= {instruments.OPERATION: instruments.EXECUTE_TOOL, instruments.SEQ: call.seq}
        known = call.function if call.function in WAITED else self._known_function(call.function)
        if known is None:
            return instruments.EXECUTE_TOOL, attributes
        named = {instruments.TOOL: known, instruments.NAMESPACE: known.partition(".")[0]}
        return f"{instruments.EXECUTE_TOOL} {known}", attributes | named

    async def _journaled(self, call: ToolCall, entry: Entry) -> Outcome:
        if self.journal is None:
            return await self._steps(call, entry)
        return await self.journal.call(entry, partial(self._steps, call, entry))

    async def _steps(self, call: ToolCall, entry: Entry) -> Outcome:
        if call.function in WAITED and self.waits is not None:
            return await self.waits(call, entry)
        if self.middleware:
            return await self._with_middleware(call, entry)
        return await self._with_fallback(call, entry)

    async def _with_middleware(self, call: ToolCall, entry: Entry) -> Outcome:
        function = self.snapshot.library.functions.get(call.function)
        described = BrokerCall(
            run_id=self.ledger.run_id,
            seq=call.seq,
            function=call.function,
            upstream=None if function is None else function.upstream,
            tool=None if function is None else function.tool,
            annotations={} if function is None else function.recorded.annotations,
            arguments=call.arguments,
            profile=self.audit.profile,
            tenant=self.audit.caller.tenant,
        )

        async def pass_on(changed: BrokerCall) -> Outcome:
            return await self._with_fallback(replace(call, arguments=changed.arguments), entry)

        outcome = await Chain(self.middleware, described, pass_on).run()
        if entry.ended is None and entry.state == "not_started":
            if outcome.error is None:
                entry.answered_by = "middleware"
                entry.end("not_started")
                # The middleware may have cached an earlier answer, so its data may come from that upstream.
                known = None if call.function in LISTED else [described.upstream or NETWORK]
                entry.sources |= self.authorization.carry(known)
            else:
                self._refuse(call, entry, outcome.error)
        elif entry.error is None and outcome.error is not None:
            entry.end(entry.state, outcome.error)
        return outcome

    def note_arguments(self, call: ToolCall, entry: Entry) -> None:
        """Record the arguments of a call that may have changed something and is not done, to identify it."""
        function = self.snapshot.library.functions.get(call.function)
        if entry.state in ("failed", "unknown") and function is not None and not self._is_readonly(function):
            redact = self.own.fleet[function.upstream].redact
            shown = islice(call.arguments.items(), 5)
            entry.arguments = ", ".join(f"{plain_name(name)}={_short(each, redact)}" for name, each in shown)

    async def _with_fallback(self, call: ToolCall, entry: Entry) -> Outcome:
        try:
            outcome = await self._attempt(call, entry)
        finally:  # also if the run ends during the call
            self.note_arguments(call, entry)
        if outcome.error is None:
            return outcome
        name_of = self.snapshot.canonical
        fallbacks = {name_of(own): others for own, others in self.manifest.portal.fallback.items()}
        names = fallbacks.get(call.function)
        if names is None or not self._may_fall_back(call, outcome.error):
            return outcome
        state, failures = entry.state, []
        for name in map(name_of, names):
            if (function := self.snapshot.library.functions.get(name)) and not self._is_readonly(function):
                failures.append(_not_readonly(name).message)
                continue
            entry.restart(name)
            other = await self._attempt(replace(call, function=name), entry)
            if other.error is None:
                entry.answered_by = name
                self._substitutes.setdefault((call.function, name), outcome.error.message)
                return other
            failures.append(f"{name}: {other.error.code}: {other.error.message[:MAX_REASON_CHARACTERS]}")
        entry.restart("")
        hint = f"{outcome.error.hint} No fallback answered. {'; '.join(failures)}".strip()
        return replace(outcome, error=_end(entry, state, replace(outcome.error, hint=hint)).error)

    async def _attempt(self, call: ToolCall, entry: Entry) -> Outcome:
        """Authorize, ask, journal and send a call. Each fallback is an attempt of its own."""
        function = self.snapshot.library.functions.get(call.function)
        permit = await self._authorize(call, function)
        if isinstance(permit, ApprovalNeeded):
            # Refused in a fallback: the person was asked about another function.
            permit = permit.error if entry.request else await self._approved(call, function, permit)
        if isinstance(permit, Permit) and function is not None:
            try:  # before the intent is journaled: a missing sign-in must not leave a call of unknown outcome
                await self.own.ready(function.upstream)
            except errors.UpstreamError as error:
                entry.sources |= self.authorization.carry([function.upstream])
                _end(entry, error.outcome, _call_error(error))
                self.audit.outcome(entry)
                return Outcome(error=entry.error)
        if isinstance(permit, Permit) and self.journal is not None and not self._may_repeat(function, permit):
            permit = await self.journal.intend(call.seq, call.function) or permit
        if isinstance(permit, Permit):
            permit = await self._recorded(call, function, permit)
        if isinstance(permit, CallError):
            return self._refuse(call, entry, permit)
        return await self._send(call, entry, function, permit)

    async def _recorded(
        self, call: ToolCall, function: Function | None, permit: Permit
    ) -> Permit | CallError:
        """Wait until the call is in the audit log, unless its tool declares that it only reads. Returns the permit."""
        if permit.unwritten is None:
            return permit
        if function is not None and self._is_readonly(function):
            return replace(permit, is_recorded=permit.unwritten.is_written)
        return permit if await permit.unwritten.written() else unrecorded(call.function)

    async def _approved(
        self, call: ToolCall, function: Function | None, needed: ApprovalNeeded
    ) -> Permit | CallError:
        """Ask a person about a call, then authorize it again, by the rules and budgets of that moment."""
        if self.waits is None:
            return needed.error
        upstream = NETWORK if function is None else function.upstream
        arguments = await self.waits.approval(call, needed, upstream, partial(self._digest, function))
        if isinstance(arguments, CallError):
            return arguments
        permit = await self._authorize(replace(call, arguments=arguments), function, is_approved=True)
        assert permit is not None and not isinstance(permit, ApprovalNeeded), "it is approved"
        return permit

    def _may_repeat(self, function: Function | None, permit: Permit) -> bool:
        """Whether the call may be made again if the portal ends before its outcome is known."""
        if function is None:
            return str(permit.arguments.get("method", "GET")).upper() in REPEATABLE_METHODS
        return self.own.fleet[function.upstream].may_repeat(function.tool)

    def _digest(self, function: Function | None) -> str:
        """The digest of the tool's definition as its upstream lists it now; "" for `portal.fetch`."""
        if function is None:
            return ""
        tools = self.own.fleet[function.upstream].tools
        tool = next((each for each in tools if each.name == function.tool), function.recorded)
        return pin_of(function.upstream, tool).digest or ""

    async def _authorize(
        self, call: ToolCall, function: Function | None, *, is_approved: bool = False
    ) -> Permit | CallError | ApprovalNeeded | None:
        """Authorize a call, in the script's order. None for resources and prompts: each of their requests is authorized
        when it is sent.
        """
        async with self._order:
            # Deciding does not yield to the event loop, and long arguments take milliseconds each, so others go first.
            values = (each for each in call.arguments.values() if isinstance(each, str | list | dict))
            if any(len(each) > (LONG_TEXT if isinstance(each, str) else 0) for each in values):
                await anyio.lowlevel.checkpoint()
            return None if call.function in LISTED else self._permit(call, function, is_approved)

    def _permit(
        self, call: ToolCall, function: Function | None, is_approved: bool
    ) -> Permit | CallError | ApprovalNeeded:
        """Authorize a call.

        `authorize` calls back for the arguments once the tool is granted. Only then are they repaired.
        """
        repairs: Repairs = {}
        if call.function == FETCH:
            if self.fetcher is None and decide_fetch(self.authorization.authority.manifest).granted:
                return CallError(
                    "not_granted", "the network was granted after this script began", "Run it again."
                )
            request = self.authorization.of_fetch(FETCH, lambda: call.arguments, call.seq)
        elif function is None:
            return self.absence(call.function, call.seq)
        elif (changed := self.history.tool_change(function)) is not None:
            return changed
        else:
            bound = partial(self._wire_arguments, function, call.arguments, repairs)
            request = self._request(function, bound, call.seq)
        try:
            permit = self.authorization.authorize(request, is_approved=is_approved)
        except ArgumentError as error:
            return CallError("invalid_arguments", str(error), error.hint)
        if isinstance(permit, Permit):
            self.repairs.note(repairs)
        return permit

    def _refuse(self, call: ToolCall, entry: Entry, error: CallError) -> Outcome:
        self.audit.refused(call.seq, self._known_function(call.function), error)
        return _end(entry, "refused", error)

    async def _send(
        self, call: ToolCall, entry: Entry, function: Function | None, permit: Permit | None
    ) -> Outcome:
        """Send a permitted call. Ends its ledger entry and records the outcome, even if the run ends in between."""
        if permit is None:  # each request of a function for resources or prompts is authorized on its own
            try:
                with recorded(entry, self.audit):
                    resources = Resources(self.manifest, self.authorization, self.own)
                    return Outcome(value=await resources.answer(call.function, call.arguments, entry))
            except ResourceError as error:
                return Outcome(error=error.call_error)
        try:
            if function is None:
                return await self._fetch(entry, permit)
            return await self._forward(entry, function, permit)
        finally:
            self.audit.outcome(entry)

    def _may_fall_back(self, call: ToolCall, error: CallError) -> bool:
        """Whether the call only reads and its upstream is down. If the upstream never listed its tools, nothing was
        sent, so any call may fall back.
        """
        function = self.snapshot.library.functions.get(call.function)
        if function is None:
            return call.function.partition(".")[0] in self.snapshot.silent
        return isinstance(error, UnreachableError) and self._is_readonly(function)

    def _is_readonly(self, function: Function) -> bool:
        return self._request(function, dict).is_readonly

    def _request(
        self, function: Function, arguments: Callable[[], dict[str, Json]], seq: int = 0
    ) -> CallRequest:
        listed = self.own.fleet[function.upstream].tools
        return self.authorization.of_function(function, listed, arguments, seq)

    def _known_function(self, function: str) -> str | None:
        """The name from a script, if such a function exists; None otherwise."""
        known = LISTED, {FETCH}, self.snapshot.library.functions, self.snapshot.denied
        return function if any(function in each for each in known) else None

    def _wire_arguments(
        self, function: Function, arguments: dict[str, Json], repairs: Repairs
    ) -> dict[str, Json]:
        """The arguments as they are sent. Adds their repairs to `repairs`."""
        wire, found = normalize_arguments(function, arguments, repairs=self.manifest.portal.server.repairs)
        repairs.update(found)
        return wire

    async def _forward(self, entry: Entry, function: Function, permit: Permit) -> Outcome:
        spec = self.own.fleet[function.upstream].spec
        asked: CallQuestions | None = None
        # Rebuilt at the moment of sending: by then the upstream may list other tools.
        current_request = partial(self._request, function, lambda: permit.arguments, entry.seq)
        recheck = self.authorization.recheck_on_send(current_request, permit, entry)

        def on_sent(was_seen: bool) -> None:
            if entry.request and not self._is_readonly(function):
                raise WithheldError(_not_readonly(entry.request))
            recheck(was_seen)

        try:
            is_persons = self.own.are_persons(function.upstream)
            async with self.own.of(function.upstream) as upstream:
                asked = self.channel.questions_of(upstream, spec)
                result = await upstream.call(
                    function.tool,
                    permit.arguments,
                    seconds=spec.call_seconds,
                    key=f"{self.ledger.run_id}:{entry.seq}",
                    progress=self.channel.progress_of(entry, upstream),
                    request_handler=asked,
                    on_sent=on_sent,
                )
        except WithheldError as error:
            return _end(entry, "refused", error.call_error)
        except errors.UpstreamError as error:
            # Even if nothing was sent: the error may quote the upstream, such as its stderr.
            entry.sources |= self.authorization.carry([function.upstream])
            if asked is not None and (unanswered := asked.refusal(str(error))) is not None:
                return _end(entry, error.outcome, _unanswered_error(unanswered, str(error)))
            is_rejected = isinstance(error, errors.UpstreamRefusedError) and error.rpc_code == INVALID_PARAMS
            failure = _call_error(error, _signature_hint(function) if is_rejected else error.hint)
            return replace(_end(entry, error.outcome, failure), data=error.data)
        if result.is_error:
            text = upstream.redact.start(_error_text(result), MAX_ERROR_CHARACTERS)[:MAX_ERROR_CHARACTERS]
            hint = _signature_hint(function) if _ABOUT_ARGUMENTS.search(_QUOTED_PATH.sub("", text)) else ""
            hint = errors.UpstreamInternalError.hint if errors.is_network_failure(text) else hint
            failure = CallError("tool_error", text, hint)
            if asked is not None and (unanswered := asked.refusal(text)) is not None:
                failure = _unanswered_error(unanswered, text)
            data = None if result.structured is MISSING else upstream.redact.in_value(result.structured)
            _end(entry, "failed", failure)
            return Outcome(error=failure, data=data, content=upstream.redact.in_value(result.content))
        entry.end("done")
        value = script_value(result, function.recorded.output_schema)
        if isinstance(value, str) and function.data_since < self.began:
            value = parsed_text(value)
        if not is_persons:  # observed types are shared, and a person's results must not shape them
            self.observations.note(function, permit.arguments, value)
        content, beside = content_of(result, value)
        return Outcome(value=value, content=content, beside=beside)

    async def _fetch(self, entry: Entry, permit: Permit) -> Outcome:
        assert self.fetcher is not None, "a permit for fetch requires a network grant"
        try:
            answer = await self.fetcher.fetch(permit.arguments, partial(permit.sent, entry))
        except FetchError as error:
            return _end(entry, error.state, error.call_error)
        entry.end("done")
        return Outcome(text=answer)

    def absence(self, function: str, seq: int) -> CallError:
        """The error for a missing function. The first few of a run also get the nearest names."""
        self._absent += 1
        # The error says why an upstream is down, perhaps in the upstream's own words.
        silent = {*self.snapshot.silent} & {function.partition(".")[0]}
        about = [name for name, namespace in self.manifest.namespaces.items() if namespace in silent]
        self.ledger[seq].sources |= self.authorization.carry(about)
        return self.snapshot.absence(function, with_nearest=self._absent <= MAX_NEAREST)


def _short(value: Json, redact: Redaction) -> str:
    """An argument for the ledger: a masked text, a number, or `…`."""
    text = redact.start(value, 30) if isinstance(value, str) else value
    return default_text(text) or "…"


def _end(entry: Entry, state: CallState, error: CallError | None) -> Outcome:
    entry.end(state, error)
    return Outcome(error=error)


def _call_error(error: errors.UpstreamError, hint: str | None = None) -> CallError:
    kind = UnreachableError if isinstance(error, UNREACHABLE) else CallError
    return kind(error.code, str(error)[:MAX_ERROR_CHARACTERS], error.hint if hint is None else hint)


def _not_readonly(fallback: str) -> CallError:
    return CallError(
        "not_granted", f"{fallback} is not a fallback: it does not declare readOnlyHint", "Ask the operator."
    )


def _unanswered_error(refusal: QuestionError, text: str) -> CallError:
    """The error of a call whose upstream asked the client for input and got none."""
    hint = f"The upstream asked the client for input and got none: {refusal}."
    return CallError(refusal.code, text[:MAX_ERROR_CHARACTERS], hint)


def _signature_hint(function: Function) -> str:
    return f"Its signature: {function.brief}"


def _error_text(result: ToolResult) -> str:
    texts = [block["text"] for block in result.content if isinstance(block.get("text"), str)]
    text = "\n".join(texts)
    data = result.content if result.structured in (MISSING, None) else result.structured
    if not text.strip() and data:
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return text or "the tool failed without an error message"
