"""Answers to the client, over real pipes."""

import os

import anyio
import pytest

from portal.serving import ClientAnswers

pytestmark = pytest.mark.anyio


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
