"""The only way from a script to upstreams and the network: decides, validates, records and forwards each call.

Rule 1: nothing the guest says is believed. `Authorization.authorize()` (`portal/authority.py`) decides on every call;
sizes are looked at just before, in the sandbox's host side. Files go by `sandbox_runtime/grants/files.py`.
Rule 2: every call has an entry in the ledger before anything is done with it, and the entry is `unknown` from the
moment at which the upstream may have seen the call until its answer was read.
Rule 3: calls are decided in the order in which the script made them, also where one is long to decide.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import anyio
import anyio.lowlevel
import structlog

from manifests.json_value import Json
from manifests.manifest import Manifest
from portal.audit.audit import UNHEARD, RunAudit
from portal.authority import Authorization, CallRequest, Permit, WithheldError
from portal.ledger import CallState, Entry, Ledger, RepairNotes
from portal.library.arguments import ArgumentError, Repairs, fitted
from portal.library.function import Function, script_value
from portal.library.observed import Observations
from portal.library.snapshot import Snapshot
from portal.passthrough.notifications import NO_CLIENT, ClientChannel
from portal.passthrough.resources import FUNCTIONS as RESOURCE_FUNCTIONS
from portal.passthrough.resources import ResourceError, Resources, recorded
from portal.sessions import SessionPast
from sandbox_runtime.calls import CallError, Outcome, ToolCall
from sandbox_runtime.grants.fetch import FETCH, Fetcher, FetchError
from upstreams.errors import UpstreamError, UpstreamRefusedError
from upstreams.fleet import Fleet
from upstreams.questions import QuestionError
from upstreams.tools import ToolResult

log = structlog.get_logger()

MAX_ERROR_CHARACTERS = 4_000
"""A tool's own error text is cut to this length before the script sees it."""

INVALID_PARAMS = -32602
"""What JSON-RPC calls arguments that do not pass validation."""

LONG_TEXT = 500
"""Characters of an argument from which on a call waits until others had a turn."""

MAX_NEAREST = 10
"""Unknown functions of a run for which the nearest are looked for; everybody waits meanwhile."""


@dataclass
class Broker:
    """The sandbox's call port and call observer of one run, against the library that the run was checked against.

    `snapshot` is that library. `repairs` are those of its calls.
    `fetcher` is there where the manifest grants network. `channel` hears what upstreams say of calls while they are
    under way. `past` is what the names of functions meant in the session before.
    """

    manifest: Manifest
    authorization: Authorization
    snapshot: Snapshot
    fleet: Fleet
    ledger: Ledger
    observations: Observations
    fetcher: Fetcher | None = None
    audit: RunAudit = UNHEARD
    channel: ClientChannel = NO_CLIENT
    past: SessionPast = field(default_factory=SessionPast)
    repairs: RepairNotes = field(default_factory=RepairNotes)
    _order: anyio.Lock = field(default_factory=partial(anyio.Lock, fast_acquire=True))
    _absent: int = 0

    def open(self, seq: int, function: str) -> None:
        """The script made a call; it may have to wait for its turn."""
        self.ledger.open(seq, function)

    def withhold(self, seq: int, error: CallError) -> None:
        """A limit kept the call from the upstream, or its answer from the script."""
        entry = self.ledger[seq]
        if entry.state != "done":
            self.audit.refused(seq, entry.request or self._known(entry.function), error)
        entry.withhold(error)

    async def __call__(self, call: ToolCall) -> Outcome:
        """Forward one call of the running script, if its manifest grants it.

        Arguments must satisfy the tool's input schema. Whatever goes wrong comes back as an error with a stable
        `code`, never as an exception.
        """
        entry = self.ledger[call.seq]
        mended: Repairs = {}
        async with self._order:
            # A call is decided in one go, and scripts make many at once.
            if _is_long(call.arguments):
                await anyio.lowlevel.checkpoint()
            function = self.snapshot.library.functions.get(call.function)
            permit = None if call.function in RESOURCE_FUNCTIONS else self._permit(call, function, mended)
        if permit is None:
            return await self._read_offer(call, entry)
        if isinstance(permit, CallError):
            self.audit.refused(call.seq, self._known(call.function), permit)
            return _ended(entry, "refused", permit)
        try:
            if function is None:
                return await self._fetch(entry, permit)
            self.repairs.note(mended)
            return await self._forward(entry, function, permit)
        finally:
            self.audit.outcome(entry)

    def _permit(self, call: ToolCall, function: Function | None, mended: Repairs) -> Permit | CallError:
        """Decide about a call. What is repaired of its arguments is put into `mended`."""
        if call.function == FETCH:
            request = self.authorization.of_fetch(FETCH, lambda: call.arguments, call.seq)
        elif function is None:
            return self.absence(call.function)
        elif (changed := self.past.change(function)) is not None:
            return changed
        else:
            bound = partial(self._bound, function, call.arguments, mended)
            request = self._request(function, bound, call.seq)
        try:
            return self.authorization.authorize(request)
        except ArgumentError as error:
            return CallError("invalid_arguments", str(error), error.hint)

    def _request(
        self, function: Function, arguments: Callable[[], dict[str, Json]], seq: int = 0
    ) -> CallRequest:
        return self.authorization.of_function(function, self.fleet[function.upstream].tools, arguments, seq)

    async def _read_offer(self, call: ToolCall, entry: Entry) -> Outcome:
        """What upstreams offer besides tools; each request to one of them is authorised for itself."""
        try:
            resources = Resources(self.manifest, self.authorization, self.fleet)
            with recorded(entry, self.audit):
                return Outcome(value=await resources.answer(call.function, call.arguments, entry))
        except ResourceError as error:
            return Outcome(error=error.call_error)

    def _known(self, function: str) -> str | None:
        """A name that a script wrote, if it is that of a function that there is."""
        known = RESOURCE_FUNCTIONS, {FETCH}, self.snapshot.library.functions, self.snapshot.denied
        return function if any(function in each for each in known) else None

    def _bound(self, function: Function, arguments: dict[str, Json], mended: Repairs) -> dict[str, Json]:
        """The arguments as they are sent. What was repaired of them is put into `mended`."""
        wire, repairs = fitted(function, arguments, repairs=self.manifest.portal.server.repairs)
        mended.update(repairs)
        return wire

    async def _forward(self, entry: Entry, function: Function, permit: Permit) -> Outcome:
        upstream = self.fleet[function.upstream]
        spec = self.manifest.portal.upstreams[function.upstream]
        asked = self.channel.questions_of(upstream, spec)
        try:
            result = await upstream.call(
                function.tool,
                permit.arguments,
                seconds=spec.call_seconds,
                key=f"{self.ledger.run_id}:{entry.seq}",
                progress=self.channel.progress_of(entry, upstream),
                log_handler=self.channel.log_handler(upstream),
                request_handler=asked,
                on_sent=self.authorization.sending(
                    partial(self._request, function, lambda: permit.arguments), permit, entry
                ),
            )
        except WithheldError as error:
            return _ended(entry, "refused", error.call_error)
        except UpstreamError as error:
            if asked is not None and (unasked := asked.refusal(str(error))) is not None:
                return _ended(entry, error.outcome, _unasked(unasked, str(error)))
            is_rejected = isinstance(error, UpstreamRefusedError) and error.rpc_code == INVALID_PARAMS
            hint = _signature_hint(function) if is_rejected else error.hint
            return _ended(
                entry, error.outcome, CallError(error.code, str(error)[:MAX_ERROR_CHARACTERS], hint)
            )
        if result.is_error:
            text = upstream.scrubbed(_error_text(result), MAX_ERROR_CHARACTERS)[:MAX_ERROR_CHARACTERS]
            if asked is not None and (unasked := asked.refusal(text)) is not None:
                return _ended(entry, "failed", _unasked(unasked, text))
            return _ended(entry, "failed", CallError("tool_error", text, _signature_hint(function)))
        entry.end("done")
        value = script_value(result, function.recorded.output_schema)
        self.observations.note(function, permit.arguments, value)
        return Outcome(value=value)

    async def _fetch(self, entry: Entry, permit: Permit) -> Outcome:
        assert self.fetcher is not None, "no network is granted without one"
        try:
            answer = await self.fetcher.fetch(permit.arguments, partial(_sent, entry, permit))
        except FetchError as error:
            return _ended(entry, error.state, error.call_error)
        entry.end("done")
        return Outcome(text=answer)

    def absence(self, function: str) -> CallError:
        """Why there is no such function; for the first few of a run also the nearest ones."""
        self._absent += 1
        return self.snapshot.absence(function, with_nearest=self._absent <= MAX_NEAREST)


def _is_long(arguments: dict[str, Json]) -> bool:
    """Whether it may take milliseconds to look whether they fit."""
    return any(
        len(value) > (LONG_TEXT if isinstance(value, str) else 0)
        for value in arguments.values()
        if isinstance(value, str | list | dict)
    )


def _sent(entry: Entry, permit: Permit) -> None:
    entry.sent()
    permit.sent()


def _ended(entry: Entry, state: CallState, error: CallError | None) -> Outcome:
    entry.end(state, error)
    return Outcome(error=error)


def _unasked(refusal: QuestionError, text: str) -> CallError:
    """The error of a call during which its upstream asked something, and got no answer."""
    hint = f"The upstream wanted to know something before it went on: {refusal}."
    return CallError(refusal.code, text[:MAX_ERROR_CHARACTERS], hint)


def _signature_hint(function: Function) -> str:
    return f"Its signature: {function.signature}"


def _error_text(result: ToolResult) -> str:
    texts = [block["text"] for block in result.content if isinstance(block.get("text"), str)]
    text = "\n".join(texts) or (json.dumps(result.content) if result.content else "")
    return text or "the tool failed and said nothing about it"
