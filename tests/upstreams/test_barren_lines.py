"""A stream of events that brings no messages is rested from; one that brings some is read at once."""

from functools import partial

import anyio
import anyio.lowlevel
import pytest

from tests.upstreams.faults.http_server import EVENTS_OF_NOTHING
from tests.upstreams.streams import CHUNK_BYTES, Pieces, turns_of_others
from upstreams import unasked_bytes
from upstreams.barren_lines import (
    AWAITED_PAUSE_SECONDS,
    DATA_LINES_AT_ONCE,
    LINE_BYTES,
    LINES_AT_ONCE,
    PAUSE_SECONDS,
    SAVED_SECONDS,
    BarrenLines,
    Rests,
)
from upstreams.large_events import SmallEvents
from upstreams.masking import CredentialMask
from upstreams.mended_events import MendedLines
from upstreams.pace import Pace
from upstreams.room import UPSTREAM_BYTES, Held, Room

pytestmark = pytest.mark.anyio

MESSAGE = b'event: message\nid: 1\nretry: 10\n: hello\ndata: {"jsonrpc":"2.0"}\n\n'


class Counted(BarrenLines):
    """Knows how often it rested."""

    rests = 0

    async def rest(self, *, is_awaited: bool) -> None:
        Counted.rests += 1
        await super().rest(is_awaited=is_awaited)


def events(*pieces: bytes, rests: Rests | None = None, held: Held | None = None) -> SmallEvents:
    async def take(message: bytes) -> bytes:
        return b""

    held = held or Held(Room(UPSTREAM_BYTES))
    return SmallEvents(MendedLines(Pieces(pieces), CredentialMask(())), take, rests or Rests(), Pace(), held)


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upstreams.large_events.BarrenLines", Counted)
    Counted.rests = 0


@pytest.mark.parametrize("unit", EVENTS_OF_NOTHING.values(), ids=EVENTS_OF_NOTHING.keys())
async def test_stream_of_nothing_is_rested_from(unit: bytes) -> None:
    few = unit * (600 // unit.count(b"\n"))
    async for _ in events(few):
        pass
    assert Counted.rests >= 1


async def test_stream_of_messages_is_read_without_rest() -> None:
    seen = b"".join([piece async for piece in events(MESSAGE * 1_000, MESSAGE * 1_000)])
    assert seen == MESSAGE.replace(b": hello\n", b"") * 2_000
    assert Counted.rests == 0


async def test_many_bytes_of_messages_that_are_no_answers_are_rested_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unasked_bytes, "BYTES_AT_ONCE", 10_000)
    monkeypatch.setattr(unasked_bytes, "BYTES_A_SECOND", 100_000)
    began = anyio.current_time()
    seen = b"".join([piece async for piece in events((b"data: " + b"x" * 1_000 + b"\n\n") * 41)])
    assert seen.count(b"data") == 41
    assert anyio.current_time() - began >= 0.9 * 0.3


async def test_message_of_many_lines_is_read_almost_without_rest() -> None:
    lines = b"data: 1,\n" * 5_000
    seen = b"".join([piece async for piece in events(b"data: [\n" + lines + b"data: 1]\n\n")])
    assert seen.count(b"\n") == 5_003
    assert Counted.rests == 5_000 // DATA_LINES_AT_ONCE


async def test_lines_of_an_answer_that_somebody_waits_for_use_up_no_rests() -> None:
    lines = [b"data: [\n" + b"data: 1,\n" * 2_000 + b"data: 1]\n\n"] * 2
    rests = Rests()
    held = Held(Room(UPSTREAM_BYTES), is_of_call=True)
    async for _ in events(*lines, rests=rests, held=held):
        pass
    assert (Counted.rests, rests.due_seconds) == (2 * (2_000 // DATA_LINES_AT_ONCE), -SAVED_SECONDS)
    held.abandon()
    async for _ in events(*lines, rests=rests, held=held):
        pass
    assert rests.due_seconds > -SAVED_SECONDS


async def test_many_calls_that_are_kept_alive_by_comments_need_not_rest() -> None:
    rests = Rests()
    async with anyio.create_task_group() as tasks:
        for _ in range(64):
            lines = BarrenLines(rests)
            for _ in range(2 * 60):
                lines.note(8)
            tasks.start_soon(partial(lines.rest, is_awaited=True))
        await anyio.lowlevel.checkpoint()
        assert -SAVED_SECONDS < rests.due_seconds < 0


async def test_message_does_not_wait_for_what_comes_behind_it() -> None:
    stream = aiter(events(MESSAGE + b":\n" * LINES_AT_ONCE * 100))
    assert b"jsonrpc" in await anext(stream)
    assert Counted.rests == 0


async def test_others_have_turns_while_many_short_lines_are_read() -> None:
    async with turns_of_others() as turns:
        async for _ in MendedLines(Pieces([b"data: 1\n" * (CHUNK_BYTES // 8)]), CredentialMask(())):
            pass
    assert turns.count >= 10


async def test_streams_of_one_upstream_rest_one_after_the_other() -> None:
    rests = await used_up()
    began = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            lines = BarrenLines(rests)
            lines.note(LINES_AT_ONCE * LINE_BYTES)
            tasks.start_soon(partial(lines.rest, is_awaited=True))
    assert anyio.current_time() - began >= 0.9 * 10 * PAUSE_SECONDS


async def test_messages_of_one_upstream_that_are_waited_for_rest_one_after_the_other() -> None:
    rests = Rests()
    began = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            lines = BarrenLines(rests)
            for _ in range(5 * DATA_LINES_AT_ONCE):
                lines.note_data()
            tasks.start_soon(partial(lines.rest, is_awaited=True))
    assert anyio.current_time() - began >= 0.9 * 50 * AWAITED_PAUSE_SECONDS
    assert rests.due_seconds == -SAVED_SECONDS


async def test_long_lines_are_rested_from_for_longer() -> None:
    lines = BarrenLines(await used_up())
    lines.note(10 * LINES_AT_ONCE * LINE_BYTES)
    began = anyio.current_time()
    await lines.rest(is_awaited=True)
    assert anyio.current_time() - began >= 0.9 * 10 * PAUSE_SECONDS


async def used_up() -> Rests:
    """Of an upstream that has sent as much as is read at once."""
    rests = Rests()
    await rests.rest(SAVED_SECONDS)
    return rests
