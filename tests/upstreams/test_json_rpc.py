"""Lines of a stdio server become messages, and credentials are in none of them."""

import json

import pytest
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCResponse

from manifests.json_value import Json
from upstreams.diagnostics import Diagnostics
from upstreams.errors import UpstreamAnswerError
from upstreams.json_rpc import Found, MessageReader
from upstreams.masking import CredentialMask
from upstreams.scrubber import Scrubber
from upstreams.unasked_bytes import MeasuredMessage
from upstreams.wire import Failures

SECRET = b"a-long-credential-of-it"
ANSWER = b'{"jsonrpc":"2.0","id":7,"result":{"text":"%b"}}'


@pytest.mark.parametrize("text", [SECRET, b"a harmless text"])
def test_message_at_the_end_of_a_line_is_read_without_credentials(text: bytes) -> None:
    reader = MessageReader(Failures(), Diagnostics(Scrubber(())), CredentialMask([SECRET.decode()]))
    line = b"half an answer " + ANSWER % text
    for messages in (reader.read(line), reader.end_of_too_long(line, UpstreamAnswerError("too long"))):
        answer = [*messages][-1].message
        assert isinstance(answer, JSONRPCResponse)
        assert answer.result == {"text": "[hidden]" if text == SECRET else text.decode()}


FRONTS = {
    "banner": b"Server ready: ",
    "spinner": b"\r- working\r\\",
    "colours": b"\x1b[2K\x1b[1m[==> ] {50 %} ",
    "byte order mark": b"\xef\xbb\xbf",
    "quote": b'loaded "a" and "b, ',
    "object": b'INFO {"level": "info", "msg": "the \\"jsonrpc\\" of it"} ',
    "half an object": b'{"result":{"text":"half ',
}
ANSWERS = [
    b'{"jsonrpc":"2.0","id":7,"result":%b}',
    b'{"result":%b,"jsonrpc":"2.0","id":7}',
    b'{"jsonrpc":"2.0","result":%b,"id":7}',
    b'{ "id" : 7 , "result" : %b , "jsonrpc" : "2.0" }',
]
RESULTS: list[Json] = [
    {},
    {"text": 'of "jsonrpc": "2.0", {"jsonrpc":"2.0","id":8,"result":{}} and a \\'},
    {"inner": {"jsonrpc": "2.0", "id": 8, "result": {}}},
    {"rows": [{"a": [{}]}] * 20_000},
]


def a_reader() -> MessageReader:
    return MessageReader(Failures(), Diagnostics(Scrubber(())), CredentialMask(()))


def messages_of(found: Found) -> list[JSONRPCMessage]:
    return [each.message for each in found if each is not None]


@pytest.mark.parametrize("front", FRONTS.values(), ids=FRONTS)
@pytest.mark.parametrize("answer", ANSWERS, ids=["Python", "TypeScript", "in the middle", "spaced"])
@pytest.mark.parametrize("result", RESULTS, ids=["empty", "text", "nested", "long"])
def test_message_behind_anything_on_its_line_is_the_one_that_is_read(
    front: bytes, answer: bytes, result: Json
) -> None:
    line = front + answer % json.dumps(result).encode() + b"\r"
    expected = [JSONRPCResponse(jsonrpc="2.0", id=7, result=result)]
    assert messages_of(a_reader().read(line)) == expected
    assert messages_of(a_reader().end_of_too_long(line, UpstreamAnswerError("too long"))) == expected


@pytest.mark.parametrize("answer", ANSWERS)
def test_half_an_answer_fails_its_own_call_and_not_that_of_the_answer_behind_it(answer: bytes) -> None:
    line = b'{"jsonrpc":"2.0","id":6,"result":{"text":"half ' + answer % b"{}"
    broken, whole = messages_of(a_reader().read(line))
    assert isinstance(broken, JSONRPCError)
    assert (broken.id, whole) == (6, JSONRPCResponse(jsonrpc="2.0", id=7, result={}))


LOGGED = b'{"level":"info"}'


@pytest.mark.parametrize("front", [b"", b"ready: ", LOGGED, b" "])
@pytest.mark.parametrize("between", [b"", b" ", LOGGED, b"\r"])
@pytest.mark.parametrize("behind", [b"", LOGGED])
@pytest.mark.parametrize("result", RESULTS, ids=["empty", "text", "nested", "long"])
def test_each_message_on_a_line_is_read(front: bytes, between: bytes, behind: bytes, result: Json) -> None:
    answers = [b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (i, json.dumps(result).encode()) for i in range(3)]
    found = [each for each in a_reader().read(front + between.join(answers) + behind) if each is not None]
    assert [each.message for each in found] == [
        JSONRPCResponse(jsonrpc="2.0", id=i, result=result) for i in range(3)
    ]


def test_what_half_an_answer_ends_with_is_none_of_several() -> None:
    line = b'{"jsonrpc":"2.0","id":6,"result":{"a":' + ANSWERS[0] % b"{}" + ANSWERS[1] % b"{}"
    broken, whole = messages_of(a_reader().read(line))
    assert isinstance(broken, JSONRPCError)
    assert (broken.id, whole) == (6, JSONRPCResponse(jsonrpc="2.0", id=7, result={}))


@pytest.mark.parametrize(
    "line",
    [
        b'GET /x {"id":7,"method":"tools/list"}',
        b'got {"jsonrpc":"1.0","id":7,"result":{}}',
        b'got {"jsonrpc":"2.0","id":7,"result":{}} from it',
        b'got \'{"jsonrpc":"2.0","id":7,"result":{}}\'',
        rb'{"result":{"text":"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}"}',
        rb'{"result":{"text":"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}',
        b'"jsonrpc" {"id":7,"result":{}}',
        b'{"a":{"jsonrpc":"2.0","id":7,"result":{}}} {"a":1}',
        b'{"a":[{"jsonrpc":"2.0","id":7,"result":{}},{"b":1}}',
    ],
)
def test_what_is_no_message_is_none_at_the_end_of_a_line_either(line: bytes) -> None:
    assert messages_of(a_reader().read(line)) == []


def test_message_behind_something_else_counts_as_long_as_its_line() -> None:
    line = b"x" * 1_000 + b'{"method":"notifications/progress","jsonrpc":"2.0"}'
    (message,) = [each for each in a_reader().read(line) if each is not None]
    assert isinstance(message, MeasuredMessage)
    assert message.text_bytes == len(line)


NO_ID = [b"", b'"id":null,', b'"id":"server-error",', b'"id":"7",', b'"id":7,']


@pytest.mark.parametrize("request_id", NO_ID)
@pytest.mark.parametrize("form", [b"%b", b"[%b]"], ids=["alone", "batch of one"])
def test_body_that_names_no_other_request_answers_the_one_that_it_came_for(
    request_id: bytes, form: bytes
) -> None:
    def answer(rest: bytes) -> JSONRPCMessage:
        steps = a_reader().answer(form % (b'{"jsonrpc":"2.0",' + request_id + rest + b"}"), 7)
        with pytest.raises(StopIteration) as end:
            while True:
                next(steps)
        message: JSONRPCMessage = end.value.value
        return message

    error = answer(b'"error":{"code":-32603,"message":"database is locked"}')
    assert isinstance(error, JSONRPCError) and error.error.message == "database is locked"
    result = answer(b'"result":{}')
    assert isinstance(result, JSONRPCResponse)
    assert {str(error.id), str(result.id)} == {"7"}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"jsonrpc":"2.0","id":8,"result":{}}', "another request"),
        (b'{"jsonrpc":"2.0","id":"8","error":{"code":1,"message":"no"}}', "another request"),
        (b'{"jsonrpc":"2.0","method":"notifications/message"}', "no JSON-RPC response"),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping"}', "no JSON-RPC response"),
        (b'{"result":{}}', "no JSON-RPC response"),
        (b'[{"jsonrpc":"2.0","result":{}},{"jsonrpc":"2.0","result":{}}]', "no JSON-RPC response"),
        (b"{oops", "unreadable"),
    ],
)
def test_any_other_body_fails_the_request_that_it_came_for(body: bytes, told: str) -> None:
    steps = a_reader().answer(body, 7)
    with pytest.raises(StopIteration) as end:
        while True:
            next(steps)
    message = end.value.value
    assert isinstance(message, JSONRPCError) and message.id == 7
    assert told in message.error.message
