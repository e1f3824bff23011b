"""Requests of an upstream during its calls: elicitation, sampling and roots.

Before 2026-07-28 an upstream sends a request that does not name its call. Since then it answers the call itself with
its input requests, and the call is repeated with the answers.

Source: MCP 2026-07-28, basic/patterns/mrtr; 2025-11-25, client/elicitation, client/sampling and client/roots.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import anyio
from mcp.client.session import ClientRequestContext
from mcp_types import INVALID_REQUEST, CreateMessageResult, ElicitResult, ErrorData, ListRootsResult
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from manifests.json_value import Json
from manifests.portal_manifest import UpstreamSection
from upstreams.errors import UpstreamIncompleteError
from upstreams.transports.notifications import AbandonedRequests
from upstreams.transports.wire import MAY_BE_OF_ABANDONED

T = TypeVar("T", bound=BaseModel)

ELICIT: Final = "elicitation/create"
SAMPLE: Final = "sampling/createMessage"
LIST_ROOTS: Final = "roots/list"

MAX_ROUNDS: Final = 10
"""At most this many times a call is repeated with answers."""

MAX_QUESTIONS_A_ROUND: Final = 10

_CAPABILITIES: Final = {ELICIT: "elicitation", SAMPLE: "sampling", LIST_ROOTS: "roots"}
_LONGEST_PAUSE_SECONDS: Final = 0.25
_UNKNOWN_CALLER: Final = (
    "it may be about another client's call that is under way there: try again in some minutes"
)


class QuestionError(Exception):
    """A request is not answered. `code` is for the script that made the call, the message for both sides."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ServerRequestHandler(Protocol):
    """Answers the requests of an upstream during one call. Handlers of one `owner` may answer for each other."""

    @property
    def owner(self) -> str: ...

    def capabilities(self) -> dict[str, Json]:
        """The client's capabilities. `roots` come from the manifest instead."""

    async def answer(self, method: str, params: dict[str, Json]) -> dict[str, Json]:
        """Return the result of the request. Raises QuestionError if it is not answered."""

    def not_answered(self, error: QuestionError, *, is_its_own: bool) -> None:
        """Record an unanswered request. Unless `is_its_own`, it may belong to another call."""


class ServerRequestRouter:
    """Routes the requests of one connection to the calls they belong to, if the manifest allows them.

    The requests of abandoned calls are not answered.
    """

    def __init__(self, spec: UpstreamSection, abandoned: AbandonedRequests) -> None:
        self._roots = spec.roots
        may_ask = {ELICIT: spec.elicitation, SAMPLE: spec.sampling is not None, LIST_ROOTS: bool(spec.roots)}
        self._allowed = {method for method, is_allowed in may_ask.items() if is_allowed}
        self._declared = {_CAPABILITIES[method] for method in self._allowed}
        self._calls: dict[ActiveCall, None] = {}
        self._last_call_ended = anyio.Event()
        self._abandoned = abandoned

    def callbacks(self) -> dict[str, Any]:
        """The callbacks for the SDK's session, which declares their capabilities to an older upstream."""
        live: dict[str, tuple[str, type[BaseModel]]] = {
            ELICIT: ("elicitation_callback", ElicitResult),
            SAMPLE: ("sampling_callback", CreateMessageResult),
            LIST_ROOTS: ("list_roots_callback", ListRootsResult),
        }
        return {
            name: partial(self._answer_request, each, kind)
            for each, (name, kind) in live.items()
            if each in self._allowed
        }

    def capabilities(self, request_handler: ServerRequestHandler | None) -> dict[str, Json]:
        """The capabilities to declare with one call, as the protocol requires since 2026-07-28."""
        asked = request_handler.capabilities() if request_handler is not None and self._declared else {}
        declared = {name: value for name, value in asked.items() if name in self._declared}
        return {**declared, "roots": {}} if LIST_ROOTS in self._allowed else declared

    def begin(self, request_handler: ServerRequestHandler | None) -> "ActiveCall":
        call = ActiveCall(request_handler)
        self._calls[call] = None
        return call

    def end(self, call: "ActiveCall") -> None:
        """End the call, and its requests with it."""
        del self._calls[call]
        call.end()
        if not self._calls:
            self._last_call_ended.set()

    async def last_call(self) -> None:
        """Wait until no call is in flight. Each has a deadline."""
        while self._calls:
            self._last_call_ended = anyio.Event()
            await self._last_call_ended.wait()

    async def rounds(
        self, send: Callable[[dict[str, Json]], Awaitable[dict[str, Json]]], call: "ActiveCall"
    ) -> dict[str, Json]:
        """Call `send`, and repeat it with answers until its result is complete.

        Raises UpstreamIncompleteError: a request is not allowed, gets no answer, or there are too many.
        """
        raw = await send({})
        for number in range(MAX_ROUNDS + 1):
            if raw.get("resultType") != "input_required":
                return raw
            requests, state = raw.get("inputRequests") or {}, raw.get("requestState")
            if not isinstance(requests, dict) or len(requests) > MAX_QUESTIONS_A_ROUND:
                break
            # Without requests the upstream only wants the call repeated later.
            if not requests:
                await anyio.sleep(min(_LONGEST_PAUSE_SECONDS, 0.05 * 2**number))
            answers = {key: await self._answer_input_request(each, call) for key, each in requests.items()}
            more: dict[str, Json] = {"inputResponses": answers} if answers else {}
            call.has_begun = True
            raw = await send(more if state is None else {**more, "requestState": state})
        raise UpstreamIncompleteError("it asks for input too often, or for too much")

    async def _answer_input_request(self, request: Json, call: "ActiveCall") -> dict[str, Json]:
        method = request.get("method") if isinstance(request, dict) else None
        params = (request.get("params") or {}) if isinstance(request, dict) else None
        if not isinstance(method, str) or not isinstance(params, dict):
            raise UpstreamIncompleteError("its request for input is malformed")
        call.unanswered = method
        try:
            answer = await self._answer(method, params, call.request_handler)
        except QuestionError as error:
            if call.request_handler is not None:
                call.request_handler.not_answered(error, is_its_own=True)
            raise UpstreamIncompleteError(str(error)) from error
        call.unanswered = ""
        return answer

    async def _answer(
        self, method: str, params: dict[str, Json], request_handler: ServerRequestHandler | None
    ) -> dict[str, Json]:
        if method == LIST_ROOTS and method in self._allowed:
            return {"roots": [{"uri": root} for root in self._roots]}
        if request_handler is None:
            raise QuestionError("question_unsupported", "there is no client to ask")
        if method not in self._allowed:
            key = f" (`{_CAPABILITIES[method]}` of the upstream)" if method in _CAPABILITIES else ""
            raise QuestionError("question_refused", f"the manifest does not allow {method[:100]}{key}")
        answer = await request_handler.answer(method, params)
        try:
            to_json(answer)  # below this point it would end the connection, with all calls on it
        except ValueError:
            raise QuestionError("question_unanswered", "the client's answer cannot be sent as JSON") from None
        return answer

    async def _answer_request(
        self, method: str, kind: type[T], context: ClientRequestContext, params: BaseModel | None = None
    ) -> T | ErrorData:
        """Answer a request that does not name its call: for the latest call, if all have one owner."""
        calls = [*self._calls]
        abandoned = self._abandoned.owners() if MAY_BE_OF_ABANDONED.get() else set()
        try:
            owners = {each.owner for each in calls} | abandoned
            if method != LIST_ROOTS and len(owners) != 1:
                raise QuestionError("question_refused", _UNKNOWN_CALLER)
            request_handler = calls[-1].request_handler if calls else None
            sent = {} if params is None else params.model_dump(by_alias=True, mode="json", exclude_none=True)
            question = _Question(method, set(calls), is_shared=len(calls) > 1)
            for call in calls:
                call.questions.add(question)
            try:
                with question.scope:
                    answer = await self._answer(method, sent, request_handler)
                    return kind.model_validate(answer, by_name=False)
            finally:
                for call in calls:
                    call.questions.discard(question)
            return ErrorData(code=INVALID_REQUEST, message="the call of this request is over")
        except QuestionError as error:
            is_its_own = len(calls) == 1 and not abandoned
            for call in calls:
                if call.request_handler is not None:
                    call.request_handler.not_answered(error, is_its_own=is_its_own)
            return ErrorData(code=INVALID_REQUEST, message=str(error))
        except ValidationError:
            return ErrorData(code=INVALID_REQUEST, message="the client's answer cannot be read")


class ActiveCall:
    def __init__(self, request_handler: ServerRequestHandler | None) -> None:
        self.owner = None if request_handler is None else request_handler.owner
        self.request_handler = request_handler
        self.questions: set[_Question] = set()
        """Unanswered requests that may belong to it."""
        self.has_begun = False
        """Whether the call was repeated with answers."""
        self.unanswered = ""
        """The method of a request without an answer when the call ended."""

    def end(self) -> None:
        for question in self.questions:
            if not question.is_shared:
                self.unanswered = question.method
            question.calls.discard(self)
            if not question.calls:
                question.scope.cancel()


@dataclass(eq=False)
class _Question:
    """A request that belongs to one of some calls."""

    method: str
    calls: set[ActiveCall]
    is_shared: bool
    """Whether several calls were in flight when it came, so that it cannot be attributed to one."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
