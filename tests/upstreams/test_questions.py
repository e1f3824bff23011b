"""Questions of older upstreams, which do not say which call they belong to; and requests that were abandoned."""

from typing import Any

import anyio
import pytest
from mcp_types import CreateMessageRequestParams, CreateMessageResult, ErrorData, SamplingMessage, TextContent

from manifests.json_value import Json
from manifests.portal_manifest import HttpUpstream, SamplingRules
from upstreams.errors import UpstreamIncompleteError
from upstreams.questions import SAMPLE, QuestionError, ServerRequestRouter
from upstreams.transports.notifications import AbandonedRequests

PARAMS = CreateMessageRequestParams(
    messages=[SamplingMessage(role="user", content=TextContent(text="Well?"))], max_tokens=10
)


def sampling_router() -> ServerRequestRouter:
    return ServerRequestRouter(HttpUpstream(url="http://x", sampling=SamplingRules()), AbandonedRequests())


class Person:
    """Takes until told to answer."""

    owner = "somebody"

    def __init__(self, **answer: Json) -> None:
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


async def test_abandoned_request_is_its_owners_until_it_is_answered() -> None:
    requests = abandoned("a", "a", None)
    assert requests.owners() == {"a", None}
    assert requests.answered(0) and requests.answered(2)
    assert requests.owners() == {"a"}
    assert requests.answered(1)
    assert requests.owners() == set()


async def test_only_the_first_answer_to_an_abandoned_request_is_one() -> None:
    requests = abandoned("a")
    assert [requests.answered(each) for each in (0, None, 7, 0)] == [True, False, False, False]


def abandoned(*owners: str | None) -> AbandonedRequests:
    """Abandoned requests with the ids 0, 1, ..."""
    requests = AbandonedRequests()
    for request_id, owner in enumerate(owners):
        requests.add(request_id, owner)
    return requests
