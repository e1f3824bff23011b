"""However long and bad what an upstream sends is, others have their turns while it is read."""

from collections.abc import Callable

import anyio
import anyio.lowlevel
import httpx2
import pytest
from mcp_types import JSONRPCError, JSONRPCResponse

from tests.upstreams.streams import turns_of_others
from upstreams import unasked_bytes
from upstreams.diagnostics import Diagnostics
from upstreams.http_client import UpstreamHttpClient
from upstreams.http_credentials import Admission, ConfiguredHeaders
from upstreams.json_rpc import MessageReader
from upstreams.masking import CredentialMask
from upstreams.room import UPSTREAM_BYTES, Room
from upstreams.scrubber import Scrubber
from upstreams.stand_ins import StandIns
from upstreams.steps import STEP_BYTES
from upstreams.wire import Failures

URL = "http://upstream.example/mcp"
REQUEST = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}}'
HEAD = b'{"jsonrpc":"2.0","id":7,"result":'
LONG_ANSWERS = {
    "rows": HEAD + b'{"rows":[' + b'{"a":1,"b":"text"},' * 200_000 + b"1]}}",
    "too many values": HEAD + b"[" + b"[]," * 1_000_000 + b"1]}",
    "no JSON": HEAD + b"[" + b'{"a":1},' * 200_000 + b"oops]}",
    "half surrogates": HEAD + b"[" + rb'"\ud83d",' * 200_000 + b"1]}",
    "a text of half surrogates": HEAD + b'{"text":"' + rb"\ud83d" * 200_000 + b'"}}',
    "no UTF-8": HEAD + b'{"text":"' + b"\xff" * 2_000_000 + b'"}}',
    "tools nested too deep": HEAD + b'{"tools":[' + b"1," * 200_000 + b"[" * 300 + b"]" * 300 + b"]}}",
}
LONG_LINES = {
    **LONG_ANSWERS,
    "batch of nothing": b"[" + b"1," * 1_000_000 + b"1]",
    "many beginnings": b'{"jsonrpc":"2.0"' * 200_000,
    "noise, then an answer": b"noise," * 500_000 + HEAD + b"{}}",
}


def reader() -> MessageReader:
    return MessageReader(Failures(), Diagnostics(Scrubber(())), CredentialMask(()))


@pytest.mark.parametrize("line", LONG_LINES.values(), ids=LONG_LINES.keys())
def test_long_line_is_read_in_many_steps(line: bytes) -> None:
    found = [*reader().read(line)]
    assert found.count(None) >= 10


@pytest.mark.parametrize("line", [HEAD + b'{"rows":[1,2]}}', b"[1,2]", b"noise", HEAD + b"oops}"])
def test_short_line_is_read_at_once(line: bytes) -> None:
    assert None not in [*reader().read(line)]


async def turns_beside(answer: httpx2.Response, method: str = "POST") -> tuple[int, bytes]:
    """How many turns another task has while a request is answered so, and what the SDK is given to read."""
    diagnostics = Diagnostics(Scrubber(()))
    admission = Admission(URL, ConfiguredHeaders({}, (), diagnostics.scrub))
    transport = httpx2.MockTransport(lambda request: answer)
    async with (
        UpstreamHttpClient(
            Failures(), diagnostics, admission, Room(UPSTREAM_BYTES), transport=transport
        ) as client,
        turns_of_others() as turns,
    ):
        request = client.build_request(method, URL, content=REQUEST)
        response = await client.send(request, stream=True)
        given = await response.aread()
    return turns.count, given


def as_body(text: bytes) -> httpx2.Response:
    headers = {"content-type": "application/json"}
    return httpx2.Response(200, headers=headers, stream=httpx2.ByteStream(text))


def as_event(text: bytes) -> httpx2.Response:
    stream = httpx2.ByteStream(b"data: " + text + b"\n\n")
    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=stream)


@pytest.mark.anyio
@pytest.mark.parametrize("sent", [as_body, as_event])
@pytest.mark.parametrize("text", LONG_ANSWERS.values(), ids=LONG_ANSWERS.keys())
async def test_long_answer_over_http_is_read_in_many_steps_and_not_by_the_sdk(
    sent: Callable[[bytes], httpx2.Response], text: bytes
) -> None:
    fewest, _ = await turns_beside(sent(HEAD + b"{}}"))
    turns, given = await turns_beside(sent(text))
    assert turns >= fewest + 10
    assert len(given) < 1_000


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("method", "is_answer", "is_asked"), [("POST", True, True), ("POST", False, False), ("GET", True, False)]
)
async def test_long_events_that_nobody_asked_for_are_rested_from(
    method: str, is_answer: bool, is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unasked_bytes, "BYTES_AT_ONCE", STEP_BYTES)
    monkeypatch.setattr(unasked_bytes, "BYTES_A_SECOND", 10 * STEP_BYTES)
    rested: list[float] = []

    class Noting(unasked_bytes.UnaskedBytes):
        async def rest(self) -> None:
            began = anyio.current_time()
            await super().rest()
            rested.append(anyio.current_time() - began)

    monkeypatch.setattr("upstreams.http_client.UnaskedBytes", Noting)
    head = HEAD if is_answer else b'{"jsonrpc":"2.0","method":"notifications/message","params":'
    text = head + b'{"data":"' + b"x" * 2 * STEP_BYTES + b'"}}\n\ndata: '
    await turns_beside(as_event(text * 3 + HEAD + b"{}}"), method)
    assert len(rested) == (0 if is_asked else 3)
    assert is_asked or rested[1] + rested[2] >= 0.9 * 0.3


@pytest.mark.anyio
async def test_long_answer_takes_the_place_of_its_stand_in_once() -> None:
    stand_ins = StandIns()
    long = JSONRPCResponse(jsonrpc="2.0", id=3, result={"text": "x" * STEP_BYTES})
    stand_in = JSONRPCResponse.model_validate_json(stand_ins.stand_in(long))
    foreign = JSONRPCResponse(jsonrpc="2.0", id=4, result={"token": "a guess"})
    assert stand_ins.taken(foreign) is foreign
    meant = stand_ins.taken(stand_in.model_copy(update={"id": 4}))
    assert isinstance(meant, JSONRPCResponse) and (meant.id, meant.result) == (4, long.result)
    assert stand_ins.taken(stand_in) is stand_in


@pytest.mark.anyio
async def test_error_has_a_stand_in_that_is_an_answer() -> None:
    stand_ins = StandIns()
    failed = next(found.message for found in reader().read(HEAD + b"oops}") if found is not None)
    assert isinstance(failed, JSONRPCError)
    stand_in = JSONRPCResponse.model_validate_json(stand_ins.stand_in(failed))
    assert stand_ins.taken(stand_in) == failed


@pytest.mark.anyio
async def test_stand_in_means_nothing_after_its_task() -> None:
    stand_ins, given = StandIns(), []

    async def give() -> None:
        given.append(stand_ins.stand_in(JSONRPCResponse(jsonrpc="2.0", id=3, result={})))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(give)
    await anyio.lowlevel.checkpoint()
    stand_in = JSONRPCResponse.model_validate_json(given[0])
    assert stand_ins.taken(stand_in) is stand_in
