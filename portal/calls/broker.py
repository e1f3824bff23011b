"""Sends permitted calls to upstreams and the network: the last step of each call (portal/calls/pipeline.py).

Rule 1: nothing is sent without a permit, and what the permit depends on is decided again at the moment of sending.
Rule 2: the ledger entry is `unknown` from the moment at which the upstream may see the call until its answer is read.
"""

import json
import re
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from mcp_types import INVALID_PARAMS

from manifests.grants import FETCH
from manifests.json_value import Json
from manifests.kernels import PYTHON, KernelName
from portal.base.errors import UnreachableError
from portal.calls.caller_upstreams import CallerUpstreams
from portal.calls.fetch import Fetcher, FetchError
from portal.calls.questions import CallQuestions, missing_key
from portal.catalog.authority import Authorization, Permit, WithheldError
from portal.library.function import Function
from portal.library.observed import Observations
from portal.library.results import content_of, is_encoded_twice, parsed_text, script_value
from portal.records.ledger import CallState, Entry
from sandbox_runtime.call_port import CallError, Outcome
from upstreams import errors
from upstreams.questions import QuestionError
from upstreams.redaction import Redaction
from upstreams.tools import MISSING, ToolResult

MAX_ERROR_CHARACTERS = 4_000
"""A tool's error text is cut to this length for the script."""

_ABOUT_ARGUMENTS: Final = re.compile(r"argument|param|valid|requir|missing|expect|schema", re.IGNORECASE)
"""Matches errors of tools that may be about the arguments; the hint then shows the signature."""

_QUOTED_PATH: Final = re.compile(r"'[^']*[./\\\\][^']*'")
"""Matches the parts of an error that quote arguments: `no such file or directory, open '/tmp/missing.md'`."""

UNREACHABLE = (
    errors.UpstreamUnavailableError,
    errors.UpstreamLostError,
    errors.UpstreamTimeoutError,
    errors.UpstreamFaultError,
)
"""The failures after which a fallback is tried."""


@dataclass(frozen=True, eq=False)
class Broker:
    """The only way of one run's calls to upstreams and the network.

    `own` gives the upstreams with the caller's logins, and the channel for their progress and questions. `fetcher` is
    set if the manifest grants network access.
    """

    own: CallerUpstreams
    authorization: Authorization
    observations: Observations
    fetcher: Fetcher | None = None
    began: float = inf
    """When a resumed run began, in seconds since 1970: its functions return the types that they had then."""
    kernel: KernelName = PYTHON
    """The kernel of the run's script. Hints are in its language."""

    async def call_tool(self, entry: Entry, function: Function, permit: Permit) -> Outcome:
        """Send a permitted call to its upstream, and end its ledger entry."""
        spec, channel = self.own.fleet[function.upstream].spec, self.own.channel
        asked: CallQuestions | None = None

        def on_sent(was_seen: bool) -> None:
            # The request is built again: by now the upstream may list other tools.
            listed, arguments = self.own.fleet[function.upstream].tools, lambda: permit.arguments
            request = self.authorization.of_function(function, listed, arguments, entry.seq)
            if entry.request and not request.hints.readonly:
                raise WithheldError(not_readonly(entry.request))
            self.authorization.confirm(request, permit, entry, was_seen=was_seen)

        try:
            async with self.own.of(function.upstream) as upstream:
                is_shared = upstream is self.own.fleet[function.upstream]
                asked = CallQuestions(channel.questions, upstream, spec)
                result = await upstream.call(
                    function.tool,
                    permit.arguments,
                    seconds=spec.call_seconds,
                    key=f"{self.authorization.audit.run_id}:{entry.seq}",
                    progress=channel.progress_of(entry, upstream),
                    request_handler=asked,
                    on_sent=on_sent,
                )
        except WithheldError as error:
            return ended(entry, "refused", error.call_error)
        except errors.UpstreamError as error:
            # Even if nothing was sent: the error may quote the upstream, such as its stderr.
            entry.sources |= self.authorization.carry([function.upstream])
            if asked is not None and (unanswered := asked.refusal(str(error))) is not None:
                return ended(entry, error.outcome, _unanswered_error(unanswered, str(error)))
            is_rejected = isinstance(error, errors.UpstreamRefusedError) and error.rpc_code == INVALID_PARAMS
            hint = self._signature_hint(function) if is_rejected else error.hint
            failure = call_error(error, missing_key(function.upstream, spec, str(error)) or hint)
            return replace(ended(entry, error.outcome, failure), data=error.data)
        if result.is_error:
            text = upstream.redact.start(_error_text(result), MAX_ERROR_CHARACTERS)[:MAX_ERROR_CHARACTERS]
            hint = (
                self._signature_hint(function) if _ABOUT_ARGUMENTS.search(_QUOTED_PATH.sub("", text)) else ""
            )
            hint = errors.UpstreamInternalError.hint if errors.is_network_failure(text) else hint
            failure = CallError("tool_error", text, missing_key(function.upstream, spec, text) or hint)
            if asked is not None and (unanswered := asked.refusal(text)) is not None:
                failure = _unanswered_error(unanswered, text)
            data = None if result.structured is MISSING else upstream.redact.in_value(result.structured)
            ended(entry, "failed", failure)
            return Outcome(error=failure, data=data, content=upstream.redact.in_value(result.content))
        entry.end("done")
        value = self._value(result, function, upstream.redact)
        if is_shared:  # observed types are shared, and a person's results must not shape them
            self.observations.note(function, permit.arguments, value)
        content, beside = content_of(result, value)
        return Outcome(value=value, content=content, beside=beside)

    def _value(self, result: ToolResult, function: Function, mask: Redaction) -> Json:
        """What the script gets."""
        value = script_value(result, function.recorded.output_schema)
        if isinstance(value, str) and function.returns.data_since < self.began:
            value = parsed_text(value)
        return mask.in_value(value) if is_encoded_twice(result) else value

    async def fetch_url(self, entry: Entry, permit: Permit) -> Outcome:
        """Send a permitted `portal.fetch`, and end its ledger entry."""
        assert self.fetcher is not None, "a permit for fetch requires a network grant"

        def on_sent() -> None:  # also before each redirect is followed
            request = self.authorization.of_fetch(FETCH, lambda: permit.arguments, entry.seq)
            is_first = entry.state == "not_started"  # a redirect belongs to a request that was sent
            own = permit if is_first else replace(permit, is_held=lambda: True)
            self.authorization.confirm(request, own, entry, was_seen=False)

        try:
            answer = await self.fetcher.fetch(permit.arguments, on_sent)
        except WithheldError as error:
            return ended(entry, "refused" if entry.state == "not_started" else "done", error.call_error)
        except FetchError as error:
            return ended(entry, error.state, error.call_error)
        entry.end("done")
        return Outcome(text=answer)

    def _signature_hint(self, function: Function) -> str:
        return f"Its signature: {function.brief_in(self.kernel)}"


def ended(entry: Entry, state: CallState, error: CallError) -> Outcome:
    entry.end(state, error)
    return Outcome(error=error)


def call_error(error: errors.UpstreamError, hint: str | None = None) -> CallError:
    """The error that the script gets. A fallback is tried after UnreachableError."""
    kind = UnreachableError if isinstance(error, UNREACHABLE) else CallError
    return kind(error.code, str(error)[:MAX_ERROR_CHARACTERS], error.hint if hint is None else hint)


def not_readonly(fallback: str) -> CallError:
    return CallError(
        "not_granted", f"{fallback} is not a fallback: it does not declare readOnlyHint", "Ask the operator."
    )


def _unanswered_error(refusal: QuestionError, text: str) -> CallError:
    hint = f"The upstream asked the client for input and got none: {refusal}."
    return CallError(refusal.code, text[:MAX_ERROR_CHARACTERS], hint)


def _error_text(result: ToolResult) -> str:
    texts = [block["text"] for block in result.content if isinstance(block.get("text"), str)]
    text = "\n".join(texts)
    data = result.content if result.structured in (MISSING, None) else result.structured
    if not text.strip() and data:
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return text or "the tool failed without an error message"
