"""A worker that was taken over can say anything: it loses its run, and the portal neither hangs nor keeps nonsense."""

import asyncio
import socket
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.grants import Limits
from sandbox_runtime.frames import COUNT, END_HEADER, FrameError, FrameReader, ToPortal, TrapCause, frame
from sandbox_runtime.recording import Recording
from sandbox_runtime.result import RunResult
from sandbox_runtime.sandbox import Sandbox, Workers
from tests.depth import depth
from tests.sandbox_runtime.replay.recorder import kept
from tests.sandbox_runtime.running import EchoPort, where

READY = frame(ToPortal.READY, COUNT.pack(1))
PREPARED = frame(ToPortal.PREPARED, b'{"source": null, "names": [], "uses": [], "notices": []}')
END = END_HEADER.pack(1.0, 0)
FINISHED = frame(ToPortal.FINISHED, END, b"{}\n1")


class TakenOver:
    """A launcher of workers that answer each frame with the next of some bytes, then close their socket."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = answers
        self._tasks: set[asyncio.Task[None]] = set()

    async def launch(self, end: socket.socket) -> Callable[[], None]:
        copy = end.dup()
        copy.setblocking(False)
        task = asyncio.create_task(self._serve(copy))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return copy.close

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _serve(self, end: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_sendall(end, READY)
            for answer in self._answers:
                await loop.sock_recv(end, 1 << 16)
                await loop.sock_sendall(end, answer)
        except OSError:
            pass
        finally:
            end.close()


async def run_with(answer: bytes) -> tuple[RunResult, Recording]:
    """The result of a run whose worker answers this to `execute`."""
    workers, recording = Workers(TakenOver(PREPARED, answer), 1, 1, print), Recording()
    await workers.open()
    try:
        sandbox = Sandbox(workers, "a" * 64)
        async with asyncio.timeout(20), sandbox.run(Limits(), where, recording=recording) as run:
            await run.prepare("1", ("git",))
            return await run.execute({}, EchoPort()), recording
    finally:
        await workers.close()


def trace(text: bytes) -> bytes:
    return frame(ToPortal.TRACE, text)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        struct.pack("<IB", 0xFFFFFFFF, ToPortal.FINISHED),
        struct.pack("<IB", 1 << 28, ToPortal.OUTPUT) + b"x" * 1000,
        frame(99, b"what"),
        frame(ToPortal.PREPARED, b"{}"),
        frame(ToPortal.READY, COUNT.pack(2)),
        frame(ToPortal.CALLS, b"nonsense"),
        frame(ToPortal.CALLS, b"1 a.b []"),
        frame(ToPortal.BLOCK, b"{}") * 1002,
        frame(ToPortal.DROPPED, b"123"),
        frame(ToPortal.OUTPUT, b"x" * 300_000),
        frame(ToPortal.BLOCK, b"x" * 20_000_000),
        frame(ToPortal.FINISHED, END[:-1]),
        frame(ToPortal.TRAPPED, END),
        frame(ToPortal.TRAPPED, END, bytes([TrapCause.UNRECORDED])),  # which only replays end with
        trace(b"=999999999999") + FINISHED,
        trace(b"1  1") + FINISHED,
        trace(b"0") + FINISHED,
        trace(b"9" * 100) + FINISHED,
        trace(b"+1 " * 10_000 + b"+1") + FINISHED,
        frame(ToPortal.OUTPUT, b"\xff\xfe") + FINISHED,
        frame(ToPortal.TRAPPED, END, b"\xc8"),
    ],
)
async def test_lie_loses_the_worker(answer: bytes) -> None:
    result, recording = await run_with(answer)
    assert result.error is not None and result.error.code == "worker_lost"
    assert recording.record is not None
    kept(recording.record)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]\n1",
        b"{\n1",
        b"{}\n{",
        b"{}\n" + b"[" * 100_000,
        b"{}\n" + b"[" * 300 + b"]" * 300,
        b"{}\n" + b"9" * 5000,
        b'{"error": 3}\nnonsense',
        b'{"error": {"code": "sandbox_busy", "message": 3, "line": true, "hint": []}}\n',
        b'{"error": {"code": ["x"], "message": "m"}}\n',
        b'{"notices": {"a": 1}, "error": {"code": "script_error", "message": "' + b"x" * 100_000 + b'"}}\n',
    ],
)
async def test_forged_ending_is_an_error_of_the_script(payload: bytes) -> None:
    error = (await run_with(frame(ToPortal.FINISHED, END, payload)))[0].error
    assert error is not None
    assert (error.code in ("script_error", "result_not_json"), error.line) == (True, None)
    assert len(error.message) < 10_000


@pytest.mark.parametrize(
    "much",
    [trace(b"+1 1 " * 1000 + b"1") * 20, frame(ToPortal.OUTPUT, b"x" * 1000) * 20],
    ids=["reads", "output"],
)
async def test_record_that_grows_too_large_is_given_up(monkeypatch: pytest.MonkeyPatch, much: bytes) -> None:
    monkeypatch.setattr("sandbox_runtime.recording.MAX_RECORD_BYTES", 10_000)
    result, recording = await run_with(much + FINISHED)
    assert (result.error, result.value) == (None, 1)
    assert (recording.is_too_large, recording.record, recording.events) == (True, None, [])


@depth(3)
@given(
    frames=st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40)), max_size=6), cut=st.integers(1, 7)
)
def test_frames_survive_any_cutting_of_the_stream(frames: list[tuple[int, bytes]], cut: int) -> None:
    stream = b"".join(frame(kind, payload) for kind, payload in frames)
    reader, read = FrameReader(1000), []
    for start in range(0, len(stream), cut):
        reader.feed(stream[start : start + cut])
        while (taken := reader.take()) is not None:
            read.append(taken)
    assert read == frames


def test_length_is_checked_before_the_payload_comes() -> None:
    reader = FrameReader(100)
    reader.feed(struct.pack("<IB", 101, 1))
    with pytest.raises(FrameError):
        reader.take()
