"""Asks the client of one request what upstreams want to know while they work on its calls."""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    CallToolRequestParams,
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequest,
    ElicitResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from manifests.json_value import Json
from manifests.upstream_sections import UpstreamSection
from portal.passthrough.clean_json import sendable_json
from portal.passthrough.elicitation import elicitation
from portal.passthrough.sampling import SamplingDepths, TokenAllowance, sample
from upstreams.questions import SAMPLE, QuestionError
from upstreams.upstream import Upstream

MAX_QUESTIONS: Final = 20
"""Of one request, of all its upstreams."""

Question: TypeAlias = ElicitRequest | CreateMessageRequest

Ask: TypeAlias = Callable[[Question], Awaitable[dict[str, Json]]]
"""Puts a question to the client, and waits for its answer.

Raises MCPError or ValidationError if the client gives none that can be read.
"""


class Questions:
    """The questions of one request. `share` is who takes turns with it, `owner` whose calls upstreams may mix up."""

    def __init__(
        self,
        ask: Ask,
        capabilities: ClientCapabilities | None,
        owner: str,
        share: str,
        depths: SamplingDepths,
    ) -> None:
        self.owner = owner
        self.capabilities = capabilities
        self._ask = ask
        self._share = share
        self._depths = depths
        self._asked = 0
        self._allowances: dict[str, TokenAllowance] = {}

    async def elicit(self, upstream: Upstream, params: dict[str, Json]) -> dict[str, Json]:
        self._count()
        return await self._put(elicitation(upstream.name, params, upstream.scrubbed, self.capabilities))

    async def sample(
        self, upstream: Upstream, spec: UpstreamSection, params: dict[str, Json]
    ) -> dict[str, Json]:
        if spec.sampling is None:
            raise QuestionError("sampling_refused", "the manifest does not let it sample")
        self._count()
        allowance = self._allowances.setdefault(upstream.name, TokenAllowance(spec.sampling.max_tokens))
        with self._depths.deeper(self._share, upstream.name, self, spec.sampling.depth):
            return await self._put(
                sample(upstream.name, params, upstream.scrubbed, self.capabilities, allowance)
            )

    def _count(self) -> None:
        if self._asked >= MAX_QUESTIONS:
            raise QuestionError(
                "question_refused", f"upstreams have asked {MAX_QUESTIONS} times for one script"
            )
        self._asked += 1

    async def _put(self, question: Question) -> dict[str, Json]:
        try:
            answer = await self._ask(question)
            # Since 2026-07-28 a client may answer a form with a sample: nothing is refused before it is here.
            kind = ElicitResult if isinstance(question, ElicitRequest) else CreateMessageResultWithTools
            kind.model_validate(answer, by_name=False)
        except (MCPError, ValidationError) as error:
            raise QuestionError("question_unanswered", "the client gave no answer") from error
        return dict(sendable_json(answer))


class CallQuestions:
    """What one upstream may ask about one call: `upstreams.questions.Questioned`."""

    def __init__(self, questions: Questions, upstream: Upstream, spec: UpstreamSection) -> None:
        self._refusal: QuestionError | None = None
        self._unclear = deque[QuestionError](maxlen=MAX_QUESTIONS)
        self._questions = questions
        self._upstream = upstream
        self._spec = spec

    @property
    def owner(self) -> str:
        return self._questions.owner

    def capabilities(self) -> dict[str, Json]:
        declared = self._questions.capabilities
        if declared is None:
            return {}
        told = declared.model_dump(by_alias=True, mode="json", exclude_none=True)
        # Of sampling nothing more than that there is a model: its tools and context are not passed on.
        return {
            name: {} if name == "sampling" else told[name]
            for name in ("elicitation", "sampling")
            if name in told
        }

    async def answer(self, method: str, params: dict[str, Json]) -> dict[str, Json]:
        if method == SAMPLE:
            return await self._questions.sample(self._upstream, self._spec, params)
        return await self._questions.elicit(self._upstream, params)

    def not_answered(self, error: QuestionError, *, is_its_own: bool) -> None:
        if is_its_own:
            self._refusal = error
        else:
            self._unclear.append(error)

    def refusal(self, failure: str) -> QuestionError | None:
        """Why it got no answer, of a call that failed so; None if it got all, or asked nothing.

        A question that may be another call's is this one's if that failed by what the upstream was told.
        """
        told = (each for each in reversed(self._unclear) if str(each) in failure)
        return next(told, None) if self._refusal is None else self._refusal


def comes_in_rounds(context: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> bool:
    """Whether its client can be asked, and only with an answer: since 2026-07-28 servers send no requests.

    A request that goes on with another comes in rounds whatever its client declares: taken for a new one it would do
    everything twice.
    """
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return False
    can = context.session.client_capabilities
    can_be_asked = can is not None and (can.elicitation is not None or can.sampling is not None)
    return can_be_asked or params.request_state is not None


def ask_by_request(context: ServerRequestContext[Any, Any]) -> Ask:
    """Asks by a request, on the stream of the client's own."""
    session = context.session

    async def ask(question: Question) -> dict[str, Json]:
        if not session.can_send_request:
            raise NoBackChannelError(question.method)
        about = ServerMessageMetadata(related_request_id=context.request_id)
        if isinstance(question, ElicitRequest):
            answer: ElicitResult | CreateMessageResult = await session.send_request(
                question, ElicitResult, metadata=about
            )
        else:
            answer = await session.send_request(question, CreateMessageResult, metadata=about)
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)

    return ask
