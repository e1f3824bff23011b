"""What a child prints that is no message is rested from, the longer the more it is."""

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCResponse

from tests.upstreams.streams import CHUNK_BYTES, Written
from upstreams import stdio_wire
from upstreams.diagnostics import Diagnostics
from upstreams.json_rpc import MessageReader
from upstreams.masking import CredentialMask
from upstreams.pace import BYTES_A_SECOND, BYTES_AT_ONCE
from upstreams.room import UPSTREAM_BYTES, Held, Room
from upstreams.scrubber import Scrubber
from upstreams.stdio_wire import ChildOutput
from upstreams.unasked_bytes import MeasuredMessage
from upstreams.wire import Failures

pytestmark = pytest.mark.anyio

ANSWER = b'{"jsonrpc":"2.0","id":7,"result":{"text":"%b"}}\n'


async def read(text: bytes) -> tuple[list[SessionMessage], float]:
    """The messages of what a child prints, and in how many seconds they came."""
    chunks = [text[start : start + CHUNK_BYTES] for start in range(0, len(text), CHUNK_BYTES)]
    reader = MessageReader(Failures(), Diagnostics(Scrubber(())), CredentialMask(()))
    began = anyio.current_time()
    messages = [message async for message in ChildOutput(Written(chunks), reader, Held(Room(UPSTREAM_BYTES)))]
    return messages, anyio.current_time() - began


@pytest.mark.parametrize(
    "noise", [b"noise\n" * 1_000, b"x" * 1_000_000 + b"\n", b"[" + b"1," * 500_000 + b"1]\n"]
)
async def test_noise_is_rested_from_however_it_is_cut_into_lines(noise: bytes) -> None:
    messages, seconds = await read(noise + ANSWER)
    assert [type(each.message) for each in messages] == [JSONRPCResponse]
    assert seconds >= 0.9 * 0.19


async def test_rest_of_a_line_that_is_too_long_is_rested_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio_wire, "MAX_MESSAGE_BYTES", 100_000)
    messages, seconds = await read(ANSWER % (b"x" * 8_000_000) + ANSWER)
    assert [type(each.message) for each in messages] == [JSONRPCError, JSONRPCResponse]
    assert seconds >= 0.9 * 0.18


async def test_what_is_long_of_a_line_is_read_at_the_pace_of_other_answers() -> None:
    text = b"x" * int(BYTES_AT_ONCE + BYTES_A_SECOND / 10)
    messages, seconds = await read(ANSWER % text + ANSWER)
    assert [type(each.message) for each in messages] == [JSONRPCResponse] * 2
    assert seconds >= 0.95 / 10


async def test_answers_of_a_batch_come_in_its_order_among_whatever_else_it_has() -> None:
    values = b"1," * 3_000
    batch = b",".join(values + ANSWER.strip() % str(number).encode() for number in range(5))
    messages, _ = await read(b"[" + batch + b"]\n")
    assert [each.message.result["text"] for each in messages] == list("01234")


async def test_long_message_is_read_without_rest_and_measured() -> None:
    text = ANSWER % (b"x" * 1_000_000)
    reader = MessageReader(Failures(), Diagnostics(Scrubber(())), CredentialMask(()))
    output = ChildOutput(Written([text]), reader, Held(Room(UPSTREAM_BYTES)))
    message = await output.receive()
    assert isinstance(message, MeasuredMessage)
    assert (message.text_bytes, output._lines_of_noise, output._pause_seconds) == (len(text) - 1, 0, 0.0)
