"""Large files are passed on in pieces: who copies many MiB in one go has nobody else run meanwhile."""

import asyncio
import tracemalloc
from pathlib import Path

import anyio
import pytest

from sandbox_runtime.frames import FrameReader, ToWorker, frame
from sandbox_runtime.outgoing import Outgoing
from sandbox_runtime.worker_process import WorkerProcess
from tests.sandbox_runtime.granted_files import granted
from tests.sandbox_runtime.running import Runner

pytestmark = pytest.mark.anyio

FILE_BYTES = 10 << 20
CONTENT = b"0123456789abcde\n" * (FILE_BYTES // 16)
ENCODED_BYTES = FILE_BYTES * 4 // 3
SOME_BYTES = 3 << 20


class Wire(asyncio.Transport):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.pieces.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


class Waiting:
    """Hears that there is room again."""

    def __init__(self) -> None:
        self.has_room = asyncio.Event()

    def receive(self, kind: int, payload: bytes) -> None: ...
    def resume(self) -> None:
        self.has_room.set()

    def lose(self, reason: str) -> None: ...


@pytest.mark.parametrize(
    ("script", "most_bytes"),
    [
        ('len(open("given", "rb").read())', FILE_BYTES + ENCODED_BYTES),
        (f'open("made", "wb").write(b"0123456789abcde\\n" * {FILE_BYTES // 16})', 2 * ENCODED_BYTES),
    ],
)
async def test_large_file_is_in_memory_as_it_came_and_as_it_goes_and_no_third_time(
    run: Runner, tmp_path: Path, script: str, most_bytes: int
) -> None:
    (tmp_path / "given").write_bytes(CONTENT)
    async with granted(run, tmp_path) as files:
        tracemalloc.start()
        try:
            assert await files.value(script) == FILE_BYTES
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert most < most_bytes + SOME_BYTES
    assert {(tmp_path / name).read_bytes() for name in files.names()} == {CONTENT}


async def test_frames_arrive_whole_and_in_order_whatever_their_size() -> None:
    wire, given = Wire(), asyncio.Event()
    payloads = [b"small", b"large" * 200_000, b"", b"after", b"x" * 262_144, b"y" * 262_145]
    outgoing = Outgoing(wire, given.set)
    for payload in payloads:
        outgoing.put(ToWorker.ANSWERS, [payload[:3], payload[3:]])
    while outgoing.waiting_bytes:
        given.clear()
        await given.wait()
    reader = FrameReader(10_000_000)
    reader.feed(b"".join(wire.pieces))
    assert [payload for _, payload in reader.frames()] == payloads
    assert max(map(len, wire.pieces)) <= 1 << 18


async def test_many_small_parts_are_given_together() -> None:
    wire, given = Wire(), asyncio.Event()
    outgoing = Outgoing(wire, given.set)
    parts = [b"an answer", b","] * 100_000
    outgoing.put(ToWorker.ANSWERS, parts)
    while outgoing.waiting_bytes:
        given.clear()
        await given.wait()
    assert b"".join(wire.pieces) == frame(ToWorker.ANSWERS, b"".join(parts))
    assert len(wire.pieces) <= 1 + 1_000_000 // (1 << 18) + 1


async def test_nothing_is_given_while_the_other_side_does_not_read() -> None:
    wire, given = Wire(), asyncio.Event()
    outgoing = Outgoing(wire, given.set)
    outgoing.is_held = True
    outgoing.put(ToWorker.ANSWERS, [b"large" * 200_000])
    outgoing.put(ToWorker.RENEW, [])
    for _ in range(10):
        await asyncio.sleep(0)
    assert wire.pieces == []
    outgoing.is_held = False
    outgoing.go_on()
    while outgoing.waiting_bytes:
        given.clear()
        await given.wait()
    assert b"".join(wire.pieces) == frame(ToWorker.ANSWERS, b"large" * 200_000) + frame(ToWorker.RENEW)


@pytest.mark.parametrize("is_held_meanwhile", [False, True])
async def test_nothing_new_is_begun_while_much_is_still_to_be_sent(is_held_meanwhile: bool) -> None:
    wire, waiting = Wire(), Waiting()
    worker = WorkerProcess(lambda _: None)
    worker.connection_made(wire)
    worker.listen(waiting)
    worker.send(ToWorker.ANSWERS, bytes(9 << 20))
    assert worker.is_congested
    if is_held_meanwhile:
        worker.pause_writing()
        for _ in range(100):
            await asyncio.sleep(0)
        assert worker.is_congested and wire.pieces == []
        worker.resume_writing()
    with anyio.fail_after(20):
        await waiting.has_room.wait()
    assert not worker.is_congested
