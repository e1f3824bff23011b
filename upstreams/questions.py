"""What an upstream asks while calls to it are under way: something of the person or the model at the client, or roots.

Before 2026-07-28 it asks with a request of its own, which says nothing of the call it belongs to; since then it answers
the call itself with its questions, and the call is made again with the answers.

Source: MCP 2026-07-28, basic/patterns/mrtr; 2025-11-25, client/elicitation, client/sampling and client/roots.
"""

from collections.abc import Awaitable, Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import anyio
from mcp.client.session import ClientRequestContext
from mcp_types import (
    INVALID_REQUEST,
    CreateMessageResult,
    ElicitResult,
    ErrorData,
    ListRootsResult,
)
from pydantic import BaseModel, ValidationError

from manifests.json_value import Json
from manifests.portal_manifest import UpstreamSection
from upstreams.errors import UpstreamIncompleteError
from upstreams.notifications import AbandonedRequests, LogHandler, LogMessage, reaches
from upstreams.transports.messages import unsendable

ELICIT: Final = "elicitation/create"
SAMPLE: Final = "sampling/createMessage"
LIST_ROOTS: Final = "roots/list"

MAX_ROUNDS: Final = 10
"""How often one call is made again with answers."""

MAX_QUESTIONS_A_ROUND: Final = 10

_CAPABILITIES: Final = {ELICIT: "elicitation", SAMPLE: "sampling", LIST_ROOTS: "roots"}
_LONGEST_PAUSE_SECONDS: Final = 0.25


class QuestionError(Exception):
    """It is not answered. `code` is for the script whose call it belongs to, the message for both sides."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ServerRequestHandler(Protocol):
    """Whoever a call is made for, and may be asked about it. Those of one `owner` may be asked for each other."""

    @property
    def owner(self) -> str: ...

    def capabilities(self) -> dict[str, Json]:
        """What may be asked, as a client declares it; of `roots` nothing, those are the manifest's."""

    async def answer(self, method: str, params: dict[str, Json]) -> dict[str, Json]:
        """The result of the request. Raises QuestionError: nobody answers it."""

    def not_answered(self, error: QuestionError, *, is_its_own: bool) -> None:
        """Hear of a question that nobody answers; unless `is_its_own`, it may be another call's."""


class ServerRequestRouter:
    """The questions of one upstream on one connection, as far as the manifest lets it ask any."""

    def __init__(self, spec: UpstreamSection) -> None:
        self._roots = spec.roots
        may_ask = {ELICIT: spec.elicitation, SAMPLE: spec.sampling is not None, LIST_ROOTS: bool(spec.roots)}
        self._allowed = {method for method, is_allowed in may_ask.items() if is_allowed}
        self._calls: dict[ActiveCall, None] = {}
        self.abandoned = AbandonedRequests()
        """Calls of which it may still ask something that nobody answers."""

    def callbacks(self) -> dict[str, Any]:
        """What the SDK's session is given, which declares just that to an older upstream."""
        live: dict[str, tuple[str, type[BaseModel]]] = {
            ELICIT: ("elicitation_callback", ElicitResult),
            SAMPLE: ("sampling_callback", CreateMessageResult),
            LIST_ROOTS: ("list_roots_callback", ListRootsResult),
        }
        return {
            name: self._callback(each, kind) for each, (name, kind) in live.items() if each in self._allowed
        }

    def capabilities(self, request_handler: ServerRequestHandler | None) -> dict[str, Json]:
        """What is declared with one call, where the era wants it so."""
        asked = {} if request_handler is None else request_handler.capabilities()
        allowed = {_CAPABILITIES[method] for method in self._allowed}
        declared = {name: value for name, value in asked.items() if name in allowed}
        return {**declared, "roots": {}} if LIST_ROOTS in self._allowed else declared

    @contextmanager
    def track(
        self, request_handler: ServerRequestHandler | None, log_handler: LogHandler | None = None
    ) -> Iterator["ActiveCall"]:
        """Around one call: its questions end with it."""
        call = ActiveCall(request_handler, log_handler)
        self._calls[call] = None
        try:
            yield call
        finally:
            del self._calls[call]
            call.end()

    def handle_log(self, message: LogMessage) -> None:
        """Tell those who hear what is logged.

        A message does not say which call it is about. So it is told if all calls under way, and those that were
        abandoned, are of one owner.
        """
        if len(self._owners()) == 1:
            for handler in dict.fromkeys(call.log_handler for call in self._calls):
                if handler is not None and reaches(message.level, handler.level):
                    handler.handle(message)

    def _owners(self) -> Set[str | None]:
        return {each.owner for each in self._calls} | self.abandoned.owners()

    async def rounds(
        self,
        send: Callable[[dict[str, Json]], Awaitable[dict[str, Json]]],
        call: "ActiveCall",
    ) -> dict[str, Json]:
        """The result of a call that is no question any more; `send` makes it, and makes it again with answers.

        Raises UpstreamIncompleteError: it asks what it may not, what nobody answers, or without end.
        """
        raw = await send({})
        for number in range(MAX_ROUNDS + 1):
            if raw.get("resultType") != "input_required":
                return raw
            requests, state = raw.get("inputRequests") or {}, raw.get("requestState")
            if not isinstance(requests, dict) or len(requests) > MAX_QUESTIONS_A_ROUND:
                break
            if not requests:
                await anyio.sleep(min(_LONGEST_PAUSE_SECONDS, 0.05 * 2**number))
            answers = {key: await self._answer_input_request(each, call) for key, each in requests.items()}
            more: dict[str, Json] = {"inputResponses": answers} if answers else {}
            more = more if state is None else {**more, "requestState": state}
            if unsendable(more):
                raise UpstreamIncompleteError("what it wants back with the answers cannot be sent as JSON")
            call.has_begun = True
            raw = await send(more)
        raise UpstreamIncompleteError("it asks for more input again and again, or for too much")

    async def _answer_input_request(self, request: Json, call: "ActiveCall") -> dict[str, Json]:
        method = request.get("method") if isinstance(request, dict) else None
        params = (request.get("params") or {}) if isinstance(request, dict) else None
        if not isinstance(method, str) or not isinstance(params, dict):
            raise UpstreamIncompleteError("asks for more input in a way that cannot be read")
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
            raise QuestionError("question_unsupported", "there is no client that could be asked")
        if method not in self._allowed:
            raise QuestionError("question_refused", f"the manifest does not let it ask for {method[:100]}")
        answer = await request_handler.answer(method, params)
        if unsendable(answer):
            raise QuestionError("question_unanswered", "the client's answer cannot be sent as JSON")
        return answer

    async def _answer_request(self, method: str, params: BaseModel | None) -> dict[str, Json] | ErrorData:
        """Answer a request that does not say which call it belongs to: the latest one, if all are of one owner."""
        calls = [*self._calls]
        try:
            if method != LIST_ROOTS and len(self._owners()) != 1:
                raise QuestionError("question_refused", "nothing says which of the callers is to be asked")
            request_handler = calls[-1].request_handler if calls else None
            sent = {} if params is None else params.model_dump(by_alias=True, mode="json", exclude_none=True)
            question = _Question(method, set(calls))
            for call in calls:
                call.questions.add(question)
            try:
                with question.scope:
                    return await self._answer(method, sent, request_handler)
            finally:
                for call in calls:
                    call.questions.discard(question)
            return ErrorData(code=INVALID_REQUEST, message="the call that this belongs to is over")
        except QuestionError as error:
            is_its_own = len(calls) == 1 and not self.abandoned.owners()
            for call in calls:
                if call.request_handler is not None:
                    call.request_handler.not_answered(error, is_its_own=is_its_own)
            return ErrorData(code=INVALID_REQUEST, message=str(error))

    def _callback(
        self, method: str, kind: type[BaseModel]
    ) -> Callable[..., Awaitable[BaseModel | ErrorData]]:
        async def answer(
            context: ClientRequestContext, params: BaseModel | None = None
        ) -> BaseModel | ErrorData:
            answered = await self._answer_request(method, params)
            if isinstance(answered, ErrorData):
                return answered
            try:
                return kind.model_validate(answered, by_name=False)
            except ValidationError:
                return ErrorData(code=INVALID_REQUEST, message="the client's answer cannot be read")

        return answer


class ActiveCall:
    """One call under way."""

    def __init__(self, request_handler: ServerRequestHandler | None, log_handler: LogHandler | None) -> None:
        self.owner = next((each.owner for each in (request_handler, log_handler) if each is not None), None)
        self.request_handler = request_handler
        self.log_handler = log_handler
        self.questions: set[_Question] = set()
        """Those that may belong to it, and wait for an answer."""
        self.has_begun = False
        """Whether it was made again."""
        self.unanswered = ""
        """The method of one that waited for an answer when the call ended."""

    def end(self) -> None:
        for question in self.questions:
            self.unanswered = question.method
            question.calls.discard(self)
            if not question.calls:
                question.scope.cancel()


@dataclass(eq=False)
class _Question:
    """One that does not say which of some calls it belongs to."""

    method: str
    calls: set[ActiveCall]
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
