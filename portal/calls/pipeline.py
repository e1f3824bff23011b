"""The way of a call: the steps from a script to an upstream, in their order. docs/calls.md is its page.

Rule 1: the guest is untrusted. `Authorization.authorize()` (`portal/catalog/authority.py`) decides on every attempt.
Before that, the host side of the sandbox has checked sizes. Files go through `sandbox_runtime/grants/files.py`.
Rule 2: every call has a ledger entry before anything happens.
Rule 3: calls are decided in the order in which the script made them, even if one takes long to decide. If middleware
waits before it passes its call on, later calls overtake it.
"""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Final

import anyio.lowlevel

from manifests.decision import decide_fetch
from manifests.grants import FETCH, NETWORK
from manifests.json_value import Json
from portal.base.errors import UnreachableError
from portal.base.plain_text import default_text
from portal.base.requests import RequestError, docs_search_request
from portal.calls.broker import call_error, ended, not_readonly
from portal.calls.resources import ResourceError, Resources, recorded
from portal.calls.run import LISTED, SEARCH, SEARCHED, WAITED, Attempt, RunContext, Steps, pass_on
from portal.catalog.authority import ApprovalNeeded, Permit
from portal.catalog.docs_search import DocsSearch
from portal.library.arguments import ArgumentError, Repairs, normalize_arguments
from portal.library.pinning import pin_of
from portal.middleware import BrokerCall, Chain
from portal.records.audit.audit import unrecorded
from portal.records.ledger import plain_name
from portal.records.telemetry import instruments
from sandbox_runtime.call_port import CallError, Outcome, ToolCall
from upstreams import errors
from upstreams.redaction import Redaction

MAX_REASON_CHARACTERS = 300
"""The reason why a fallback failed is cut to this length."""

LONG_TEXT = 500
"""Before a call with a longer string argument is decided, its step yields to the event loop."""

REPEATABLE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


async def resume(run: RunContext, attempt: Attempt, rest: Steps) -> Outcome:
    """Answer a call of an earlier segment of the run by the outcome in the journal, without making it again."""
    known = None if run.journal is None else run.journal.known_outcome(attempt.entry)
    return known or await pass_on(run, attempt, rest)


async def search(run: RunContext, attempt: Attempt, rest: Steps) -> Outcome:
    """Answer `portal.search` and `portal.describe`."""
    if run.docs_search is None or attempt.call.function not in SEARCHED:
        return await pass_on(run, attempt, rest)
    work = _found if attempt.call.function == SEARCH else _described
    answer = work(run, run.docs_search, attempt)
    if isinstance(answer, CallError):
        return ended(attempt.entry, "refused", answer)
    attempt.entry.end("done")
    return Outcome(value=answer)


async def trace(run: RunContext, attempt: Attempt, rest: Steps) -> Outcome:
    """Record a span, if the manifest configures telemetry."""
    telemetry, entry = run.gateway.telemetry, attempt.entry
    if not telemetry.is_on:
        return await pass_on(run, attempt, rest)
    with telemetry.call.span(*_observation(run, attempt.call)) as found:
        outcome = await pass_on(run, attempt, rest)
        found[instruments.CALL_STATE] = entry.state
        found |= telemetry.shown(instruments.RESULT, outcome.value)
        if outcome.error is not None:
            found[instruments.ERROR] = outcome.error.code
        return outcome


async def journal(run: RunContext, attempt: Attempt, rest: Steps) -> Outcome:
    """Journal the outcome, if the call had to be journaled before it was made (`intend`) or waited for something."""
    if run.journal is None:
        return await pass_on(run, attempt, rest)
    return await run.journal.call(attempt.entry, partial(pass_on, run, attempt, rest))


async def wait(run: RunContext, attempt: Attempt, rest: Steps) -> Outcome:
    """Answer `portal.sleep`, `portal.approve`, `portal.event` and others that no upstream answers."""
    if run.waits is None or attempt.call.function not in WAITED:
        return await pass_on(run, attempt, rest)
    return await run.waits(attempt.call, attempt.entry)


async def middleware(run: RunContext, attempt: Attempt, rest: Steps) -> Outcome:
    """Run the operator's middleware around the call. It may replace arguments and the outcome, answer, or refuse."""
    if not run.gateway.middleware:
        return await pass_on(run, attempt, rest)
    call, entry, function = attempt.call, attempt.entry, attempt.function
    upstream, tool, annotations = None, None, dict[str, Json]()
    if function is not None:
        upstream, tool, annotations = function.upstream, function.tool, function.recorded.annotations
    about, caller = (call.function, upstream, tool, annotations, call.arguments), run.audit.caller
    described = BrokerCall(run.ledger.run_id, call.seq, *about, run.audit.profile, caller.tenant)

    async def send(changed: BrokerCall) -> Outcome:
        call = replace(attempt.call, arguments=changed.arguments)
        return await pass_on(run, Attempt(call, entry, function), rest)

    try:
        outcome = await Chain(run.gateway.middleware, described, send).run()
    except BaseException:
        if entry.error is not None:
            entry.end(entry.state, replace(entry.error, message="the middleware did not answer"))
        raise
    if entry.ended is None and entry.state == "not_started":
        if outcome.error is None:
            entry.answered_by = "middleware"
            entry.end("not_started")
            # The middleware may have cached an earlier answer, so its data may come from that upstream.
            known = None if call.function in LISTED else [described.upstream or NETWORK]
            entry.sources |= run.authorization.carry(known)
        else:
            _refuse(run, attempt, outcome.error)
    elif outcome.error is not None:
        # The ledger tells what the script is told: the middleware may have masked it.
        entry.end(entry.state, replace(entry.error or outcome.error, message=outcome.error.message))
    elif entry.error is not None:
        entry.end(entry.state, replace(entry.error, message="middleware answered instead"))
    return outcome


async def resources(run: RunContext, attempt: Attempt, rest: Steps) -> Outcome:
    """Answer the functions for resources and prompts. Each of their requests is authorized when it is sent."""
    call, entry = attempt.call, attempt.entry
    if call.function not in LISTED:
        return await pass_on(run, attempt, rest)
    async with run.authorization.turn:  # after all earlier calls
        pass
    try:
        with recorded(entry, run.audit):
            answers = Resources(run.authorization, run.own)
            return Outcome(value=await answers.answer(call.function, call.arguments, entry))
    except ResourceError as error:
        return Outcome(error=error.call_error)


async def fallback(run: RunContext, attempt: Attempt, rest: Steps) -> Outcome:
    """Pass the call on. If its upstream is down and it only reads, make an attempt with each fallback in turn."""
    call, entry = attempt.call, attempt.entry
    outcome = await pass_on(run, attempt, rest)
    error = outcome.error
    if error is None or not (names := _fallbacks_of(run, attempt, error)):
        return outcome
    state, failures = entry.state, []
    for name in names:
        function = run.snapshot.library.functions.get(name)
        if function is not None and not run.is_readonly(function):
            failures.append(not_readonly(name).message)
            continue
        entry.restart(name)
        other = await pass_on(run, Attempt(replace(call, function=name), entry, function), rest)
        if other.error is None:
            entry.answered_by = name
            text = f"{call.function} was answered by {name}"
            run.notices.note(text, text if run.gateway.middleware else f"{text}: {error.message}")
            return other
        failures.append(f"{name}: {other.error.code}: {other.error.message[:MAX_REASON_CHARACTERS]}")
    entry.restart("")
    hint = f"{error.hint} No fallback answered. {'; '.join(failures)}".strip()
    return replace(outcome, error=ended(entry, state, replace(error, hint=hint)).error)


async def authorize(run: RunContext, attempt: Attempt, rest: Steps) -> Outcome:
    """Decide whether the call may be made, in the script's order. A permitted one is audited and counts to budgets."""
    return await _pass_on_if_permitted(run, attempt, rest, attempt.call.arguments)


async def ask(run: RunContext, attempt: Attempt, rest: Steps) -> Outcome:
    """Ask a person, if a rule says so. Then decide again, by the rules and budgets of that moment."""
    needed = attempt.decided
    if not isinstance(needed, ApprovalNeeded):
        return await pass_on(run, attempt, rest)
    # In a fallback, the person was asked about another function.
    if run.waits is None or attempt.entry.request:
        return _refuse(run, attempt, needed.error)
    arguments = await run.waits.approval(attempt.call, needed, partial(_digest, run, attempt))
    if isinstance(arguments, CallError):
        return _refuse(run, attempt, arguments)
    return await _pass_on_if_permitted(run, attempt, rest, arguments, is_approved=True)


async def ready(run: RunContext, attempt: Attempt, rest: Steps) -> Outcome:
    """Wait until the caller has signed in at the upstream, before an intent: nothing of unknown outcome is left."""
    if attempt.function is not None:
        try:
            await run.own.ready(attempt.function.upstream)
        except errors.UpstreamError as error:
            attempt.entry.sources |= run.authorization.carry([attempt.function.upstream])
            outcome = ended(attempt.entry, error.outcome, call_error(error))
            run.audit.outcome(attempt.entry)
            return outcome
    return await pass_on(run, attempt, rest)


async def intend(run: RunContext, attempt: Attempt, rest: Steps) -> Outcome:
    """Journal that the call will be made, unless it may be repeated after a crash."""
    call = attempt.call
    if run.journal is not None and not _may_repeat(run, attempt):
        if (error := await run.journal.intend(call.seq, call.function)) is not None:
            return _refuse(run, attempt, error)
        attempt.decided = replace(attempt.permitted, is_held=partial(run.journal.is_held, call.seq))
    return await pass_on(run, attempt, rest)


async def record(run: RunContext, attempt: Attempt, rest: Steps) -> Outcome:
    """Wait until the call is in the audit log, unless its tool declares that it only reads."""
    unwritten, function = attempt.permitted.unwritten, attempt.function
    if unwritten is None or (function is not None and run.is_readonly(function)) or await unwritten.written():
        return await pass_on(run, attempt, rest)
    return _refuse(run, attempt, unrecorded(attempt.call.function))


async def send(run: RunContext, attempt: Attempt, rest: Steps) -> Outcome:
    """Send the call. The outcome is recorded even if the run ends in between."""
    entry, function, permit = attempt.entry, attempt.function, attempt.permitted
    try:
        if function is None:
            return await run.broker.fetch_url(entry, permit)
        return await run.broker.call_tool(entry, function, permit)
    finally:
        run.audit.outcome(attempt.entry)


ATTEMPT: Final[Steps] = (authorize, ask, ready, intend, record, send)
"""What each attempt to answer a call goes through, also that of a fallback."""

WAY: Final[Steps] = (resume, search, trace, journal, wait, middleware, resources, fallback, *ATTEMPT)
"""What a call goes through, outermost first. A step answers the call, or passes it on to the next."""


@dataclass(frozen=True, eq=False)
class Pipeline:
    """The call port of one run, and the observer of its calls."""

    run: RunContext
    steps: Steps = WAY

    def open(self, seq: int, function: str) -> None:
        """Record that the script made a call, which may still have to wait for its turn."""
        self.run.ledger.open(seq, self.run.snapshot.canonical(function))
        if self.run.journal is not None:
            self.run.journal.opened(self.run.ledger[seq])

    def withhold(self, seq: int, error: CallError) -> None:
        """Record that a limit kept the call from the upstream, or its result from the script."""
        entry = self.run.ledger[seq]
        if entry.state != "done":
            function = entry.request or self.run.known_function(entry.function)
            self.run.audit.refused(seq, function, error)
        entry.end("done" if entry.state == "done" else "refused", error)

    async def __call__(self, call: ToolCall) -> Outcome:
        """Take one call of the running script through all steps. Errors are returned with a `code`, never raised.

        Arguments must satisfy the tool's input schema.
        Raises FencedError: another portal has taken the run over, or it was ended.
        """
        snapshot = self.run.snapshot
        name = snapshot.canonical(call.function)
        call = call if name == call.function else replace(call, function=name)
        attempt = Attempt(call, self.run.ledger[call.seq], snapshot.library.functions.get(name))
        try:
            return await pass_on(self.run, attempt, self.steps)
        finally:  # also if the run ends during the call
            _note_arguments(self.run, attempt)


def _found(run: RunContext, docs_search: DocsSearch, attempt: Attempt) -> dict[str, Json] | CallError:
    """The answer of docs_search, without a token budget, because a script reads it."""
    try:
        request = docs_search_request(attempt.call.arguments)
    except RequestError as error:
        return CallError(error.code, str(error), error.hint)
    # Without reasons: they may quote upstreams, and a search does not count as data from them.
    request = replace(request, kernel=request.kernel or run.kernel)
    return docs_search.find(run.snapshot, request, most=0).structured()


def _described(run: RunContext, docs_search: DocsSearch, attempt: Attempt) -> dict[str, Json] | CallError:
    name, others = attempt.call.arguments.get("function"), len(attempt.call.arguments) - 1
    if not isinstance(name, str) or others:
        return CallError(
            "invalid_arguments", "portal.describe takes the name of one function", "Search first."
        )
    row = docs_search.described(run.snapshot, name, run.kernel)
    return row or run.absence(next(iter(run.snapshot.withheld(name)), name), attempt.entry)


async def _pass_on_if_permitted(
    run: RunContext, attempt: Attempt, rest: Steps, arguments: dict[str, Json], *, is_approved: bool = False
) -> Outcome:
    """Decide about an attempt with these arguments, after all earlier calls. Refuse it, or pass it on."""
    call, journal = attempt.call, run.journal
    # If the rule is gone since then, a denial still holds, and so do the arguments that a person wrote. Read before its
    # turn: while the store cannot be read, other calls go on.
    asks = journal is not None and not is_approved and await journal.is_decided(call.seq, call.function)
    # Deciding does not yield to the event loop, so a call takes a turn only if another has one. Long arguments take
    # milliseconds each, so there others go first.
    values = (each for each in arguments.values() if isinstance(each, str | list | dict))
    is_long = any(len(each) > (LONG_TEXT if isinstance(each, str) else 0) for each in values)
    turn = run.authorization.turn
    async with turn if is_long or turn.locked() else nullcontext():
        if is_long:
            await anyio.lowlevel.checkpoint()
        decided = _decide(run, attempt, arguments, asks=asks, is_approved=is_approved)
    if isinstance(decided, CallError):
        return _refuse(run, attempt, decided)
    attempt.decided = decided
    return await pass_on(run, attempt, rest)


def _decide(
    run: RunContext, attempt: Attempt, arguments: dict[str, Json], *, asks: bool, is_approved: bool
) -> Permit | CallError | ApprovalNeeded:
    """Authorize an attempt with these arguments. They are repaired and validated only once its tool is granted."""
    call, function, authorization = attempt.call, attempt.function, run.authorization
    repairs: Repairs = {}

    def wire_arguments() -> dict[str, Json]:
        if function is None:
            return arguments
        may_repair = run.manifest.portal.server.repairs
        wire, found = normalize_arguments(function, arguments, repairs=may_repair, kernel=run.kernel)
        repairs.update(found)
        return wire

    if call.function == FETCH:
        if run.broker.fetcher is None and decide_fetch(run.manifest).granted:
            return CallError(
                "not_granted", "the network was granted after this script began", "Run it again."
            )
        request = authorization.of_fetch(FETCH, wire_arguments, call.seq)
    elif function is None:
        return run.absence(call.function, attempt.entry)
    elif (changed := run.history.tool_change(function)) is not None:
        return changed
    else:
        listed = run.own.fleet[function.upstream].tools
        request = authorization.of_function(function, listed, wire_arguments, call.seq)
    try:
        decided = authorization.authorize(request, is_approved=is_approved, asks=asks)
    except ArgumentError as error:
        return CallError("invalid_arguments", str(error), error.hint)
    if isinstance(decided, Permit):
        for kind, message in repairs.items():
            run.notices.note(kind, message)
    return decided


def _refuse(run: RunContext, attempt: Attempt, error: CallError) -> Outcome:
    run.audit.refused(attempt.call.seq, run.known_function(attempt.call.function), error)
    return ended(attempt.entry, "refused", error)


def _fallbacks_of(run: RunContext, attempt: Attempt, error: CallError) -> list[str]:
    """The fallbacks of a call that only reads and whose upstream is down, in their order; of others, none.

    If the upstream never listed its tools, nothing was sent, so any call may fall back.
    """
    function, name_of = attempt.function, run.snapshot.canonical
    if function is None:
        may_fall_back = attempt.call.function.partition(".")[0] in run.snapshot.silent
    else:
        may_fall_back = isinstance(error, UnreachableError) and run.is_readonly(function)
    if not may_fall_back:
        return []
    fallbacks = {name_of(own): others for own, others in run.manifest.portal.fallback.items()}
    return [name_of(name) for name in fallbacks.get(attempt.call.function, ())]


def _may_repeat(run: RunContext, attempt: Attempt) -> bool:
    """Whether the call may be made again if the portal ends before its outcome is known."""
    function = attempt.function
    if function is None:
        return str(attempt.permitted.arguments.get("method", "GET")).upper() in REPEATABLE_METHODS
    return run.own.fleet[function.upstream].may_repeat(function.tool)


def _digest(run: RunContext, attempt: Attempt) -> str:
    """The digest of the tool's definition as its upstream lists it now; "" for `portal.fetch`."""
    function = attempt.function
    if function is None:
        return ""
    tools = run.own.fleet[function.upstream].tools
    tool = next((each for each in tools if each.name == function.tool), function.recorded)
    return pin_of(function.upstream, tool).digest or ""


def _observation(run: RunContext, call: ToolCall) -> tuple[str, instruments.Attributes]:
    """The name and the attributes of a call's span. A script may have made up its function."""
    attributes = run.gateway.telemetry.shown(instruments.ARGUMENTS, call.arguments)
    attributes |= {instruments.OPERATION: instruments.EXECUTE_TOOL, instruments.SEQ: call.seq}
    known = call.function if call.function in WAITED else run.known_function(call.function)
    if known is None:
        return instruments.EXECUTE_TOOL, attributes
    named = {instruments.TOOL: known, instruments.NAMESPACE: known.partition(".")[0]}
    return f"{instruments.EXECUTE_TOOL} {known}", attributes | named


def _note_arguments(run: RunContext, attempt: Attempt) -> None:
    """Record the arguments of a call that may have changed something and is not done, to identify it."""
    entry, function = attempt.entry, attempt.function
    if entry.state in ("failed", "unknown") and function is not None and not run.is_readonly(function):
        redact = run.own.fleet[function.upstream].redact
        shown = islice(attempt.call.arguments.items(), 5)
        entry.arguments = ", ".join(f"{plain_name(name)}={_short(each, redact)}" for name, each in shown)


def _short(value: Json, redact: Redaction) -> str:
    """An argument for the ledger: a masked text, a number, or `…`."""
    text = redact.start(value, 30) if isinstance(value, str) else value
    return default_text(text) or "…"
