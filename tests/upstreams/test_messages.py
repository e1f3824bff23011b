"""Bytes of upstreams become messages, leniently, and are counted; and answers come as their callers give up."""

import asyncio
import json
from typing import Any

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCResponse

from manifests.json_value import Json
from upstreams.errors import UpstreamAnswerError, UpstreamCutOffError
from upstreams.health import Diagnostics
from upstreams.redaction import Redaction
from upstreams.transports import messages
from upstreams.transports.messages import InboundLimits, MessageReader, failure_of, parsed
from upstreams.transports.wire import Wire

SECRET = b"a-long-credential-of-it"
ANSWER = b'{"jsonrpc":"2.0","id":7,"result":%b}'


def a_reader() -> MessageReader:
    limits, diagnostics = InboundLimits(1_000_000), Diagnostics(Redaction(()))
    return MessageReader(limits, diagnostics, Redaction([SECRET.decode()]).in_parsed)


def messages_of(found: list[SessionMessage]) -> list[JSONRPCMessage]:
    return [each.message for each in found]


@pytest.mark.parametrize(
    "front", [b"", b"Server ready: ", b"\r- working\r\\", b"\xef\xbb\xbf", b'loaded "a" ']
)
@pytest.mark.parametrize(
    "answer",
    [ANSWER, b'{"result":%b,"jsonrpc":"2.0","id":7}', b'{ "id" : 7 , "result" : %b , "jsonrpc" : "2.0" }'],
    ids=["Python", "TypeScript", "spaced"],
)
async def test_message_behind_a_banner_on_its_line_is_read(front: bytes, answer: bytes) -> None:
    result: Json = {"text": 'of "jsonrpc": "2.0", {"jsonrpc":"2.0","id":8,"result":{}} and a \\'}
    line = front + answer % json.dumps(result).encode() + b"\r"
    (message,) = messages_of(a_reader().read_leniently(line))
    assert message == JSONRPCResponse(jsonrpc="2.0", id=7, result=result)


async def test_credentials_are_in_no_message() -> None:
    (message,) = messages_of(a_reader().read(ANSWER % (b'{"text":"%b"}' % SECRET)))
    assert isinstance(message, JSONRPCResponse) and message.result == {"text": "[hidden]"}


async def test_answer_that_is_no_object_fails_its_own_call() -> None:
    (message,) = messages_of(a_reader().read_leniently(ANSWER % b"null"))
    assert isinstance(message, JSONRPCError) and message.id == 7
    assert isinstance(failure_of(message.error), UpstreamAnswerError)


async def test_message_that_cannot_be_read_cuts_its_upstream_off() -> None:
    with pytest.raises(UpstreamCutOffError):
        a_reader().read_leniently(b'{"jsonrpc":"2.0","id":7,"result":{oops}')


@pytest.mark.parametrize("line", [b"", b"  ", b"[INFO] ready", b"{'a': 1}", b"7", b'{"level":"info"}'])
async def test_line_that_is_no_message_is_skipped(line: bytes) -> None:
    assert a_reader().read_leniently(line) == []


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"jsonrpc":"2.0","id":8,"result":{}}', "another request"),
        (b'{"jsonrpc":"2.0","id":"server-error","result":{}}', "another request"),
        (b'{"jsonrpc":"2.0","method":"notifications/message"}', "not a JSON-RPC response"),
        (b'{"result":{}}', "not a JSON-RPC response"),
        (b"{oops", "unreadable"),
    ],
)
async def test_any_other_body_fails_the_request_that_it_came_for(body: bytes, told: str) -> None:
    with pytest.raises(UpstreamAnswerError, match=told):
        a_reader().read_answer(body, 7)


@pytest.mark.parametrize("answered", ['"server-error"', "null", '""', "8", "{}"])
async def test_error_in_the_body_answers_its_request_whatever_its_id(answered: str) -> None:
    body = f'{{"jsonrpc":"2.0","id":{answered},"error":{{"code":-32600,"message":"Not Acceptable"}}}}'
    answer = a_reader().read_answer(body.encode(), 7, "HTTP 406")
    assert isinstance(answer, JSONRPCError)
    assert (answer.id, answer.error.code, answer.error.message) == (7, -32600, "HTTP 406: Not Acceptable")
    own = a_reader().read_answer(body.replace(answered, "7", 1).encode(), 7, "HTTP 406")
    assert isinstance(own, JSONRPCError) and own.error.message == "Not Acceptable"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (rb'"cut \ud83d"', "cut \ufffd"),
        (rb'"\ud83d\ude00 \\ud83d"', "😀 \\ud83d"),
        (b'"\xff\xfe"', "\ufffd\ufffd"),
        (b"\xef\xbb\xbf[9223372036854775808]", [2**63]),
    ],
)
def test_text_that_is_no_utf8_is_mended(text: bytes, value: Json) -> None:
    assert parsed(text) == value


@pytest.mark.parametrize("text", [b"[" * 300 + b"]" * 300, b"{oops}", b"[[], []]" + b"x"])
def test_what_is_no_json_is_an_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        parsed(text)


def test_more_lists_and_objects_than_the_cap_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_CONTAINERS", 100)
    assert len(parsed(b"[" + b"[]," * 98 + b"1]")) == 99
    with pytest.raises(ValueError, match="more than 100"):
        parsed(b"[" + b"[]," * 100 + b"1]")


async def test_unsolicited_messages_are_limited_by_number_and_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "UNSOLICITED_AT_ONCE", 10.0)
    monkeypatch.setattr(messages, "UNSOLICITED_PER_SECOND", 0.001)
    notice = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"%b"}}'
    for line in (b"noise", notice % b""):
        reader = a_reader()
        for _ in range(10):
            reader.read_leniently(line)
        with pytest.raises(UpstreamCutOffError):
            reader.read_leniently(line)
    long = b"x" * 10 * messages.BYTES_PER_UNIT
    for line in (long, notice % long, b'{"jsonrpc":"2.0","id":"ask","method":"sampling/createMessage"}'):
        with pytest.raises(UpstreamCutOffError):
            a_reader().read_leniently(line)


async def test_error_that_is_a_text_fails_its_call() -> None:
    (message,) = messages_of(a_reader().read(b'{"jsonrpc":"2.0","id":7,"error":"out of order"}'))
    assert isinstance(message, JSONRPCError) and message.error.message == "out of order"


async def test_answers_that_are_being_read_are_limited_one_by_one_and_together() -> None:
    limits = InboundLimits(100)
    with pytest.raises(UpstreamAnswerError), limits.buffering() as add:
        add(101)
    with limits.buffering() as one, limits.buffering() as two, limits.buffering() as three:
        one(100)
        two(100)
        three(100)
        with limits.buffering() as four:
            four(100)
        with limits.buffering() as four, limits.buffering() as five:
            four(100)
            with pytest.raises(UpstreamAnswerError, match="fewer large calls"):
                five(1)


class Lines:
    """Messages of one chunk, which are taken in one turn of the loop, as over stdio."""

    def __init__(self) -> None:
        self.messages, self.is_there = list[Any](), asyncio.Event()

    def __aiter__(self) -> "Lines":
        return self

    async def __anext__(self) -> Any:
        while not self.messages:
            self.is_there.clear()
            await self.is_there.wait()
        return self.messages.pop(0)

    async def aclose(self) -> None:
        """Do nothing."""


async def test_answers_that_come_in_the_turn_in_which_their_callers_give_up_are_no_stray_ones() -> None:
    lines, (requests, sent) = Lines(), anyio.create_memory_object_stream[Any](100)
    wire = Wire(lines, requests, InboundLimits(1_000_000))

    async def nothing(*_: Any) -> Any:
        """The upstream asks nothing."""

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wire.run, nothing, nothing)
        async with anyio.create_task_group() as calls:
            for _ in range(12):
                calls.start_soon(lambda: wire.send_raw_request("tools/call", {}, owners=["ann"]))
            await anyio.wait_all_tasks_blocked()
            asked = [sent.receive_nowait().message.id for _ in range(12)]
            lines.messages += [
                SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=each, result={})) for each in asked
            ]
            lines.is_there.set()
            calls.cancel_scope.cancel()
        await anyio.wait_all_tasks_blocked()
        ending, owners = wire.ending, wire.abandoned.owners()
        assert (ending.cut_off_reason, ending.ended.is_set(), owners) == ("", False, set())
        tasks.cancel_scope.cancel()
