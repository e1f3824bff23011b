"""Questions of older upstreams, which do not say which call they belong to; and requests that were abandoned."""

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import anyio
import pytest
from mcp_types import CreateMessageRequestParams, CreateMessageResult, ErrorData, SamplingMessage, TextContent
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from manifests.json_value import Json
from manifests.portal_manifest import HttpUpstream, SamplingRules
from tests.upstreams.peers import DEADLINE_SECONDS, Clock, fleet_at
from tests.upstreams.raw_http_server import RawHttpServer
from upstreams.errors import UpstreamError, UpstreamIncompleteError
from upstreams.questions import SAMPLE, QuestionError, ServerRequestRouter
from upstreams.transports.notifications import AbandonedRequests

PARAMS = CreateMessageRequestParams(
    messages=[SamplingMessage(role="user", content=TextContent(text="Well?"))], max_tokens=10
)


def sampling_router() -> ServerRequestRouter:
    return ServerRequestRouter(HttpUpstream(url="http://x", sampling=SamplingRules()), AbandonedRequests())


class Person:
    """Takes until told to answer."""

    def __init__(self, owner: str = "somebody", **answer: Json) -> None:
        self.owner = owner
        self.is_asked, self.may_answer = anyio.Event(), anyio.Event()
        self.heard: list[tuple[str, bool]] = []
        self._answer = answer

    def capabilities(self) -> dict[str, Json]:
        return {"sampling": {}}

    async def answer(self, method: str, params: dict[str, Json]) -> dict[str, Json]:
        self.is_asked.set()
        await self.may_answer.wait()
        return self._answer

    def not_answered(self, error: QuestionError, *, is_its_own: bool) -> None:
        self.heard.append((error.code, is_its_own))


def asking(method: str) -> dict[str, Json]:
    """The answer of a call that wants to know something first."""
    request: Json = {"method": method, "params": PARAMS.model_dump(by_alias=True, exclude_none=True)}
    return {"resultType": "input_required", "inputRequests": {"it": request}}


@pytest.mark.parametrize("ended", [(0,), (1,), (0, 1)], ids=["the first", "the last", "both"])
async def test_question_ends_with_the_last_call_that_it_may_belong_to(ended: tuple[int, ...]) -> None:
    router = sampling_router()
    ask = router.callbacks()["sampling_callback"]
    person = Person(role="assistant", model="m", content={"type": "text", "text": "hello"})
    answers = list[Any]()
    calls = [router.begin(person), router.begin(person)]

    async def question() -> None:
        answers.append(await ask(None, PARAMS))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(question)
        await person.is_asked.wait()
        for index in ended:
            router.end(calls[index])
        person.may_answer.set()
    expected = ErrorData if len(ended) == len(calls) else CreateMessageResult
    assert [type(answer) for answer in answers] == [expected]


@pytest.mark.parametrize("answer", [{"text": "\ud83d"}, {"\ud83d": "text"}], ids=["text", "name"])
async def test_answer_that_cannot_be_sent_is_none(answer: dict[str, Json]) -> None:
    """Below this point it would end the connection, with all calls on it."""
    router, person = sampling_router(), Person(**answer)
    person.may_answer.set()
    call = router.begin(person)
    assert isinstance(await router.callbacks()["sampling_callback"](None, PARAMS), ErrorData)
    with pytest.raises(UpstreamIncompleteError):
        await router.rounds(never_answered, call)
    assert person.heard == [("question_unanswered", True)] * 2


async def never_answered(answers: dict[str, Json]) -> dict[str, Json]:
    assert not answers, "the call was made again"
    return asking(SAMPLE)


async def test_abandoned_request_is_its_owners_until_its_first_answer() -> None:
    requests = AbandonedRequests()
    for request_id, owner in enumerate(("a", "a", None)):
        requests.add(request_id, owner)
    assert requests.owners() == {"a", None}
    answers = [requests.answered(each) for each in (0, 2, None, 7, 0)]
    assert (answers, requests.owners()) == ([True, True, False, False, False], {"a"})
    assert (requests.answered(1), requests.owners()) == (True, set())


class Asking(RawHttpServer):
    """Asks on the stream of the call `own`; during other calls on the stream for all. `hang` is never answered."""

    def __init__(self) -> None:
        super().__init__()
        self.pings = 0
        self.unasked, self.sent = anyio.create_memory_object_stream[str](10)
        self.reply, self.replies = anyio.create_memory_object_stream[dict[str, Any]](10)

    async def _handle(self, request: Request) -> Response:
        message = await request.json() if request.method == "POST" else {}
        self.pings += message.get("method") == "ping"
        if message.get("id") != "asked":
            return await super()._handle(request)
        await self.reply.send(message)
        return Response(status_code=202)

    def _end_session(self, request: Request) -> Response:
        if request.method != "GET":
            return super()._end_session(request)
        return StreamingResponse(self.sent, media_type="text/event-stream")

    async def _call(self, message: dict[str, Any]) -> Response:
        if message["params"]["name"] == "hang":
            self.is_hanging.set()
            await anyio.sleep_forever()
        return StreamingResponse(self._ask(message), media_type="text/event-stream")

    async def _ask(self, call: dict[str, Any]) -> AsyncIterator[str]:
        params = PARAMS.model_dump(by_alias=True, exclude_none=True)
        question = event(id="asked", method=SAMPLE, params=params)
        if call["params"]["name"] == "own":
            yield question
        else:
            await self.unasked.send(question)
        is_answered = "result" in await self.replies.receive()
        yield event(id=call["id"], result={"structuredContent": {"is_answered": is_answered}})


def event(**message: Json) -> str:
    return f"data: {json.dumps({'jsonrpc': '2.0', **message})}\n\n"


async def test_question_that_may_be_about_a_call_that_was_given_up_is_refused() -> None:
    """What comes on a call's own stream is about that call; a stream of all calls says nothing."""
    said: dict[str, Json] = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hello"}}
    server = Asking()
    async with fleet_at(server.app, sampling={}) as fleet:

        async def is_answered(tool: str, person: Person) -> Json:
            person.may_answer.set()
            result = await fleet.one.call(tool, {}, seconds=DEADLINE_SECONDS, request_handler=person)
            return result.structured

        ann, bob = Person("ann", **said), Person("bob", **said)
        assert await is_answered("beside", bob) == {"is_answered": True}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(is_answered, "hang", ann)
            await server.is_hanging.wait()
            tasks.cancel_scope.cancel()
        bob = Person("bob", **said)
        assert await is_answered("beside", bob) == {"is_answered": False}
        assert (bob.is_asked.is_set(), bob.heard) == (False, [("question_refused", False)])
        assert await is_answered("own", bob) == {"is_answered": True}
        assert await is_answered("beside", ann) == {"is_answered": True}


async def test_server_that_waits_for_a_person_is_not_pinged_when_the_script_ends() -> None:
    """It is not late: the person is."""
    server, person = Asking(), Person()
    async with fleet_at(server.app, sampling={}) as fleet:
        async with anyio.create_task_group() as script:
            ask = partial(fleet.one.call, "own", {}, seconds=100, request_handler=person)
            script.start_soon(ask)
            await person.is_asked.wait()
            Clock().advance(60)
            script.cancel_scope.cancel()
        assert (await fleet.one.ask("ping", {}, seconds=100, on_sent=lambda _: None)) == {}
    assert server.pings == 1, "that of the test"


class AskingInRounds(RawHttpServer):
    """Asks in its answer to `ask`, as since 2026-07-28, and refuses all other calls."""

    def __init__(self, refusal: Response) -> None:
        super().__init__()
        self._refusal = refusal
        self.asked: list[bool] = []
        """Of each call of `ask` whether it came with an answer."""

    async def _call(self, message: dict[str, Any]) -> Response:
        if message["params"]["name"] != "ask":
            return self._refusal
        self.asked.append("inputResponses" in message["params"])
        return self._answer(message, self.result_text if self.asked[-1] else json.dumps(asking(SAMPLE)))


@pytest.mark.parametrize("status", [401, 404])
async def test_answer_is_sent_though_another_call_was_refused_and_has_a_new_connection(status: int) -> None:
    server = AskingInRounds(Response(status_code=status))
    async with fleet_at(server.app, sampling={}) as fleet, anyio.create_task_group() as tasks:
        person, contents = Person(role="assistant"), list[Json]()

        async def ask() -> None:
            result = await fleet.one.call("ask", {}, seconds=DEADLINE_SECONDS, request_handler=person)
            contents.append(result.content)

        tasks.start_soon(ask)
        await person.is_asked.wait()
        with pytest.raises(UpstreamError):
            await fleet.call("echo")
        assert server.sessions_opened == 2
        person.may_answer.set()
    assert (server.asked, contents) == ([False, True], [[]])
