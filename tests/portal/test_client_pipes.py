"""Messages of the client and answers to it, over real pipes and files."""

import os
from pathlib import Path

import anyio
import pytest

from portal.app.serving import ClientAnswers, ClientLines


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


async def test_lines_come_whole_however_they_are_sent() -> None:
    reader, writer = os.pipe()
    long = b"x" * 300_000 + b"\n"

    def send() -> None:
        for piece in (b"a", b"b\nc\n", long, b"no end"):
            os.write(writer, piece)
        os.close(writer)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, send)
        lines = [line async for line in ClientLines(reader)]
    assert lines == ["ab\n", "c\n", long.decode(), "no end"]


@pytest.mark.parametrize("content", [b"", b"a\nb"])
async def test_lines_come_from_files_too(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "messages"
    path.write_bytes(content)
    with path.open("rb") as file:
        lines = [line async for line in ClientLines(file.fileno())]
    assert "".join(lines).encode() == content
