"""What an upstream says without being asked comes at a bounded rate; what it was asked for comes at once."""

from collections.abc import Container, Sequence

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import (
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from manifests.json_value import Json
from tests.upstreams.peers import DEADLINE_SECONDS
from upstreams import unasked_bytes
from upstreams.unasked import (
    DROPPED_AT_ONCE,
    DROPPED_PAUSE_SECONDS,
    MESSAGES_A_SECOND,
    MESSAGES_AT_ONCE,
    UnaskedStream,
)
from upstreams.unasked_bytes import MeasuredMessage
from upstreams.wire import MAX_REQUEST_CHARACTERS, MAX_REQUEST_VALUES, Wire

pytestmark = pytest.mark.anyio

CHANGED = "notifications/tools/list_changed"
GIVEN_UP = 8


def notification(method: str) -> JSONRPCNotification:
    return JSONRPCNotification(jsonrpc="2.0", method=method)


async def received(
    messages: Sequence[JSONRPCMessage], awaited: Container[object] = range(100_000)
) -> tuple[list[JSONRPCMessage], list[str | None], float]:
    """What passes, the methods of what does not, and the seconds that took; `awaited` are ids of requests."""
    send, receive = anyio.create_memory_object_stream[SessionMessage](len(messages))
    for message in messages:
        send.send_nowait(SessionMessage(message))
    send.close()
    dropped: list[str | None] = []
    began = anyio.current_time()
    async with UnaskedStream(
        receive, dropped.append, lambda answer: False, lambda answer: answer.id in awaited
    ) as stream:
        passed = [item.message async for item in stream]
    return passed, dropped, anyio.current_time() - began


def answer_to(request_id: int) -> JSONRPCResponse:
    return JSONRPCResponse(jsonrpc="2.0", id=request_id, result={})


async def test_answers_that_are_awaited_all_pass() -> None:
    answers = [answer_to(number) for number in range(2_000)]
    passed, dropped, _ = await received(answers)
    assert (passed, dropped) == (answers, [])


async def test_flood_of_answers_that_nobody_awaits_is_dropped_told_and_rested_from() -> None:
    error = JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=1, message="x"))
    flood = [answer_to(7), error] * 1_000
    passed, dropped, seconds = await received([*flood, answer_to(1)], awaited={1})
    assert passed == [answer_to(1)]
    assert dropped == [None] * (2_000 // DROPPED_AT_ONCE)
    assert seconds >= 0.9 * len(dropped) * DROPPED_PAUSE_SECONDS


async def test_few_answers_that_come_too_late_are_not_told() -> None:
    assert (await received([answer_to(7)] * (DROPPED_AT_ONCE - 1), awaited=()))[:2] == ([], [])


async def test_notifications_beyond_the_rate_are_dropped_and_told() -> None:
    passed, dropped, seconds = await received([notification(CHANGED)] * 2_000)
    assert MESSAGES_AT_ONCE <= len(passed) <= MESSAGES_AT_ONCE + seconds * MESSAGES_A_SECOND + 1
    assert len(passed) + len(dropped) == 2_000
    assert set(dropped) == {CHANGED}


async def test_requests_beyond_the_rate_wait_their_turn() -> None:
    count = int(MESSAGES_AT_ONCE) + 10
    requests = [
        JSONRPCRequest(jsonrpc="2.0", id=number, method="sampling/createMessage") for number in range(count)
    ]
    passed, dropped, seconds = await received(requests)
    assert (passed, dropped) == (requests, [])
    assert seconds >= (10 - 1) / MESSAGES_A_SECOND  # no answer came earlier than it may


async def test_answer_behind_a_flood_of_notifications_passes() -> None:
    answer = JSONRPCResponse(jsonrpc="2.0", id=1, result={})
    passed, _, _ = await received([*[notification("notifications/progress")] * 500, answer])
    assert passed[-1] == answer


@pytest.mark.parametrize("key", ["progress", "total"])
async def test_progress_that_is_no_float_is_dropped_and_nothing_else(key: str) -> None:
    def progress(number: float) -> JSONRPCNotification:
        params = {"progressToken": 1, "progress": 1, "total": None, key: number}
        return JSONRPCNotification(jsonrpc="2.0", method="notifications/progress", params=params)

    sound = [progress(number) for number in (3, 0.5, 10**300, float("inf"))]
    other = JSONRPCNotification(jsonrpc="2.0", method="x/y", params={key: 10**400})
    answer = JSONRPCResponse(jsonrpc="2.0", id=1, result={key: 10**400})
    passed, _, _ = await received([progress(10**400), *sound, progress(-(10**4000)), other, answer])
    assert passed == [*sound, other, answer]


@pytest.mark.parametrize(
    ("params", "is_answered"),
    [
        ({"text": "x" * 100_000}, True),
        ({"text": "x" * MAX_REQUEST_CHARACTERS}, False),
        ({"values": [1] * 1_000}, True),
        ({"values": [1] * MAX_REQUEST_VALUES}, False),
    ],
    ids=["text", "too long", "values", "too many"],
)
async def test_request_that_is_too_large_is_refused_before_anybody_looks_at_it(
    params: dict[str, Json], is_answered: bool
) -> None:
    arriving, read = anyio.create_memory_object_stream[SessionMessage | Exception](1)
    written, answers = anyio.create_memory_object_stream[SessionMessage](1)

    async def answer(*_: object) -> dict[str, Json]:
        return {}

    async def ignore(*_: object) -> None:
        pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Wire(read, written).run, answer, ignore)
        request = JSONRPCRequest(jsonrpc="2.0", id=5, method="sampling/createMessage", params=params)
        arriving.send_nowait(SessionMessage(request))
        with anyio.fail_after(DEADLINE_SECONDS):
            answered = (await answers.receive()).message
        assert isinstance(answered, JSONRPCResponse if is_answered else JSONRPCError)
        tasks.cancel_scope.cancel()


async def test_long_messages_that_nobody_asked_for_are_rested_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unasked_bytes, "BYTES_AT_ONCE", 100.0)
    monkeypatch.setattr(unasked_bytes, "BYTES_A_SECOND", 1_000.0)
    for message in (notification(CHANGED), answer_to(7)):
        began = anyio.current_time()
        await measured(message, 40)
        assert anyio.current_time() - began >= 0.9 * (10 * 40 - 100) / 1_000


async def test_long_answers_that_were_asked_for_are_not_rested_from_though_they_come_too_late() -> None:
    noted = await measured(answer_to(GIVEN_UP), unasked_bytes.BYTES_AT_ONCE)
    assert noted._left == unasked_bytes.BYTES_AT_ONCE


async def measured(message: JSONRPCMessage, text_bytes: float) -> unasked_bytes.UnaskedBytes:
    """What was noted when ten of them had come, and then a long answer that is awaited."""
    send, receive = anyio.create_memory_object_stream[SessionMessage](11)
    for _ in range(10):
        send.send_nowait(MeasuredMessage(message, int(text_bytes)))
    send.send_nowait(MeasuredMessage(answer_to(1), 1_000_000_000))
    send.close()
    stream = UnaskedStream(
        receive,
        lambda method: None,
        lambda answer: answer.id in (1, GIVEN_UP),
        lambda answer: answer.id == 1,
    )
    assert [item.message async for item in stream][-1] == answer_to(1)
    return stream._bytes


async def test_messages_do_not_wait_for_all_of_a_longer_one() -> None:
    noted = unasked_bytes.UnaskedBytes()
    noted.note(64 * 1024 * 1024)
    await noted.rest()
    assert not noted.are_many
