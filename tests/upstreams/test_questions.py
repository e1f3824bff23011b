"""Questions of older upstreams, which do not say which call they belong to."""

from contextlib import ExitStack
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup
from mcp_types import CreateMessageRequestParams, CreateMessageResult, ErrorData, SamplingMessage, TextContent

from manifests.json_value import Json
from manifests.upstream_sections import HttpUpstream, SamplingRules
from upstreams.questions import SAMPLE, QuestionDesk, QuestionError, ServedCall

pytestmark = pytest.mark.anyio

PARAMS = CreateMessageRequestParams(
    messages=[SamplingMessage(role="user", content=TextContent(text="Well?"))], max_tokens=10
)


def sampling_desk() -> QuestionDesk:
    return QuestionDesk(HttpUpstream(url="http://x", sampling=SamplingRules()))


class Person:
    """Takes until told to answer."""

    def __init__(self, owner: str = "somebody") -> None:
        self.owner = owner
        self.is_asked, self.may_answer = anyio.Event(), anyio.Event()
        self.heard: list[str] = []

    def capabilities(self) -> dict[str, Json]:
        return {"sampling": {}}

    async def answer(self, method: str, params: dict[str, Json]) -> dict[str, Json]:
        self.is_asked.set()
        await self.may_answer.wait()
        return {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hello"}}

    def not_asked(self, error: QuestionError) -> None:
        self.heard.append(error.code)


@pytest.mark.parametrize("ended", [(0,), (1,), (0, 1)], ids=["the first", "the last", "both"])
async def test_a_question_ends_with_the_last_of_the_calls_that_it_may_belong_to(
    ended: tuple[int, ...],
) -> None:
    desk = sampling_desk()
    ask = desk.callbacks()["sampling_callback"]
    person, answers = Person(), list[Any]()
    calls = [ExitStack(), ExitStack()]
    for call in calls:
        call.enter_context(desk.serving(person))

    async def question() -> None:
        answers.append(await ask(None, PARAMS))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(question)
        await person.is_asked.wait()
        for index in ended:
            calls[index].close()
        await anyio.wait_all_tasks_blocked()
        person.may_answer.set()
    for call in calls:
        call.close()
    expected = ErrorData if len(ended) == len(calls) else CreateMessageResult
    assert [type(answer) for answer in answers] == [expected]


async def test_whoever_may_have_been_asked_hears_that_nobody_was() -> None:
    desk = sampling_desk()
    one, other, third = Person("one"), Person("other"), Person("third")
    with desk.serving(third):
        pass
    with desk.serving(one), desk.serving(other):
        assert isinstance(await desk.callbacks()["sampling_callback"](None, PARAMS), ErrorData)
    assert (one.heard, other.heard, third.heard) == (["question_refused"], ["question_refused"], [])


class Waiting:
    """A call that is under way until its caller gives it up."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.served: ServedCall | None = None

    async def __call__(self, desk: QuestionDesk, person: Person) -> None:
        with self.scope, desk.serving(person) as self.served:
            await anyio.sleep_forever()

    async def give_up(self) -> str:
        """What it was waiting for."""
        self.scope.cancel()
        await anyio.wait_all_tasks_blocked()
        assert self.served is not None
        return self.served.unanswered


async def under_way(number: int, desk: QuestionDesk, person: Person, tasks: TaskGroup) -> list[Waiting]:
    """Calls, each begun after the one before."""
    calls = [Waiting() for _ in range(number)]
    for call in calls:
        tasks.start_soon(call, desk, person)
        await anyio.wait_all_tasks_blocked()
    return calls


@pytest.mark.parametrize("first_out", [1, -1], ids=["the earliest ends first", "the latest ends first"])
@pytest.mark.parametrize("questions", [0, 1, 6])
async def test_a_question_excuses_one_call_and_no_other_beside_it(questions: int, first_out: int) -> None:
    desk, person = sampling_desk(), Person()
    async with anyio.create_task_group() as tasks:
        calls = await under_way(6, desk, person, tasks)
        for _ in range(questions):
            tasks.start_soon(desk.callbacks()["sampling_callback"], None, PARAMS)
        await anyio.wait_all_tasks_blocked()
        waited_for = [await call.give_up() for call in calls[::first_out]]
    expected = [""] * (len(calls) - questions) + [SAMPLE] * questions
    assert waited_for == expected[::first_out]


async def test_a_question_that_a_call_did_not_wait_for_excuses_another() -> None:
    desk, person = sampling_desk(), Person()
    async with anyio.create_task_group() as tasks:
        earlier, call = await under_way(2, desk, person, tasks)
        with desk.serving(person):
            tasks.start_soon(desk.callbacks()["sampling_callback"], None, PARAMS)
            await person.is_asked.wait()
        assert [await call.give_up(), await earlier.give_up()] == [SAMPLE, ""]


async def test_a_question_that_is_taken_back_excuses_the_call_that_waited_for_it() -> None:
    desk, person = sampling_desk(), Person()
    async with anyio.create_task_group() as tasks:
        earlier, call = await under_way(2, desk, person, tasks)
        with anyio.CancelScope() as asker:
            async with anyio.create_task_group() as question:
                question.start_soon(desk.callbacks()["sampling_callback"], None, PARAMS)
                await person.is_asked.wait()
                asker.cancel()
        assert [await earlier.give_up(), await call.give_up()] == ["", SAMPLE]
