"""Lines from the client and answers to it, over real pipes and files."""

import os

import anyio
import pytest

from portal.serving import ClientAnswers, ClientLines

pytestmark = pytest.mark.anyio


async def test_a_line_may_come_in_pieces_and_pieces_may_hold_several_lines() -> None:
    reader, writer = os.pipe()
    lines = ClientLines(reader)
    os.write(writer, b"first\nse")
    assert await lines.readline() == "first\n"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, os.write, writer, b"cond\nthird\n")
        assert [await lines.readline(), await lines.readline()] == ["second\n", "third\n"]
    os.close(writer)
    assert await lines.readline() == ""


@pytest.mark.parametrize("size", [10, 5_000, 3_000_000])
async def test_an_answer_arrives_whole_however_long_it_is(size: int) -> None:
    reader, writer = os.pipe()
    received = bytearray()

    def read_all() -> None:
        while len(received) < size + 5:
            received.extend(os.read(reader, 1 << 16))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, read_all)
        answers = ClientAnswers(writer)
        await answers.write("x" * size)
        await answers.write("last\n")
    assert bytes(received) == b"x" * size + b"last\n"
