"""A worker that was taken over can say anything: it loses its run, and the portal neither hangs nor breaks."""

import socket
import struct

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.grants import Limits
from sandbox_runtime.frames import COUNT, TRAP_HEADER, FrameError, FrameReader, ToPortal, frame
from sandbox_runtime.result import LibraryUse, RunResult
from sandbox_runtime.sandbox import Sandbox
from sandbox_runtime.workers import Workers
from tests.depth import depth
from tests.sandbox_runtime.running import where
from tests.sandbox_runtime.taken_over import END, FINISHED, PREPARED, TakenOver, run_with

pytestmark = pytest.mark.anyio


async def test_honest_answers_are_understood() -> None:
    result = await run_with(PREPARED, frame(ToPortal.OUTPUT, b"hi") + FINISHED)
    assert (result.error, result.value, result.stdout) == (None, 1, "hi")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00",
        struct.pack("<IB", 0xFFFFFFFF, ToPortal.FINISHED),
        struct.pack("<IB", 1 << 28, ToPortal.OUTPUT) + b"x" * 1000,
        frame(0, b""),
        frame(99, b"what"),
        frame(ToPortal.PREPARED, b"{}"),
        frame(ToPortal.READY, COUNT.pack(2)),
        frame(ToPortal.CALLS, b"nonsense"),
        frame(ToPortal.CALLS, b"\xff\xfe a.b {}"),
        frame(ToPortal.CALLS, b"\n".join(b"%d a.b {}" % number for number in range(1, 9999))),
        frame(ToPortal.BLOCK, b"{}") * 1002,
        frame(ToPortal.DROPPED, b"123"),
        frame(ToPortal.OUTPUT, b"x" * 300_000),
        frame(ToPortal.BLOCK, b"x" * 20_000_000),
        frame(ToPortal.FINISHED, b""),
        frame(ToPortal.FINISHED, END[:-1]),
        frame(ToPortal.TRAPPED, b""),
        frame(ToPortal.TRAPPED, END),
    ],
)
async def test_broken_frame_loses_the_worker(answer: bytes) -> None:
    result = await run_with(PREPARED, answer)
    assert result.error is not None
    assert result.error.code == "worker_lost"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\n",
        b"[]\n1",
        b"{\n1",
        b"{}\n",
        b"{}\n{",
        b"{}\n" + b"[" * 100_000,
        b"{}\n" + b"[" * 300 + b"]" * 300,
        b"{}\n" + b"9" * 5000,
        b'{"error": 3}\nnonsense',
        b'{"error": {}}\n',
        b'{"error": {"code": "sandbox_busy", "message": 3, "line": true, "hint": []}}\n',
        b'{"error": {"code": ["x"], "message": "m"}}\n',
        b'{"notices": {"a": 1}, "error": {"code": "script_error", "message": "' + b"x" * 100_000 + b'"}}\n',
    ],
)
async def test_forged_ending_is_an_error_of_the_script(payload: bytes) -> None:
    result = await run_with(PREPARED, frame(ToPortal.FINISHED, END, payload))
    assert result.error is not None
    assert result.error.code in ("script_error", "result_not_json")
    assert len(result.error.message) < 10_000
    assert result.error.line is None


async def test_clock_that_floods_the_portal_loses_the_worker() -> None:
    result = await run_with(PREPARED, frame(ToPortal.ALIVE) * 1000 + FINISHED)
    assert result.error is not None
    assert result.error.code == "worker_lost"


async def test_beats_before_and_after_the_answer_are_heard_and_no_more() -> None:
    beat = frame(ToPortal.ALIVE)
    result = await run_with(beat + PREPARED, beat + FINISHED + beat)
    assert (result.error, result.value) == (None, 1)


@pytest.mark.parametrize("how", [socket.SHUT_RD, socket.SHUT_WR])
async def test_worker_that_closes_half_of_its_channel_is_lost(how: int) -> None:
    result = await run_with(PREPARED, b"", half_closed=how)
    assert result.error is not None
    assert result.error.code == "worker_lost"


async def test_forged_preparation_is_harmless() -> None:
    forged = (
        b'{"source": 3, "names": {"a": 1}, "uses": [[1, 2, 3], ["a", "b", "c", 1, {}], ["a", "b", 4, 4, 5]], '
        b'"notices": "x", "problems": [[1, "made_up", "m", "h"]], "certain": [[2, 1], 3]}'
    )
    workers = Workers(TakenOver(frame(ToPortal.PREPARED, forged)), 1, 1, print)
    await workers.open()
    async with Sandbox(workers).run(Limits(), where) as run:
        prepared = await run.prepare("1", ())
    await workers.close()
    assert (prepared.source, prepared.names, prepared.notices) == ("1", frozenset(), ())
    assert prepared.uses == (LibraryUse("a", "b", 4, 4),)
    assert (prepared.problems, prepared.certain) == ((), ())


@pytest.mark.parametrize("cause", [0, 1, 2, 3, 4, 6, 7, 200])
async def test_every_trap_has_a_code(cause: int) -> None:
    result = await run_with(PREPARED, frame(ToPortal.TRAPPED, END, TRAP_HEADER.pack(cause), b"\xff" * 100))
    assert result.error is not None


async def test_numbers_and_lone_surrogates_that_json_lacks_are_replaced() -> None:
    digits = b"9" * 400
    value = b'[NaN, "\\ud800", "\\ud83d\\ude00", 1e999, %b.5, %b]' % (digits, digits)
    result = await run_with(PREPARED, frame(ToPortal.FINISHED, END, b"{}\n", value))
    assert result.value == [None, "\ufffd", "😀", None, None, int(digits)]


async def test_integer_of_very_many_digits_is_never_read() -> None:
    result = await run_with(PREPARED, frame(ToPortal.FINISHED, END, b"{}\n", b"7" * 9_000_000))
    assert result.error is not None
    assert result.error.code == "result_not_json"


@depth(1.5)
@given(kind=st.integers(0, 255), payload=st.binary(max_size=64), tail=st.binary(max_size=16))
async def test_no_bytes_hang_or_break_the_portal(
    anyio_backend: str, kind: int, payload: bytes, tail: bytes
) -> None:
    result = await run_with(PREPARED, frame(kind, payload) + tail)
    assert isinstance(result, RunResult)


@depth(3)
@given(
    frames=st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40)), max_size=6), cut=st.integers(1, 7)
)
def test_frames_survive_any_cutting_of_the_stream(frames: list[tuple[int, bytes]], cut: int) -> None:
    stream = b"".join(frame(kind, payload) for kind, payload in frames)
    reader, read = FrameReader(1000), []
    for start in range(0, len(stream), cut):
        reader.feed(stream[start : start + cut])
        read += reader.frames()
    assert read == frames


def test_length_is_checked_before_the_payload_comes() -> None:
    reader = FrameReader(100)
    reader.feed(struct.pack("<IB", 101, 1))
    with pytest.raises(FrameError):
        reader.take()


class Counting:
    """Counts the frames that arrive, and tells when there are as many as wanted."""

    def __init__(self, wanted: int) -> None:
        self.frames = 0
        self.all_here = anyio.Event()
        self._wanted = wanted

    def receive(self, kind: int, payload: bytes) -> None:
        self.frames += 1
        if self.frames == self._wanted:
            self.all_here.set()

    def resume(self) -> None: ...
    def lose(self, reason: str) -> None: ...


async def test_everybody_has_a_turn_while_a_flood_of_frames_is_read() -> None:
    workers = Workers(TakenOver(PREPARED), 1, 1, print)
    await workers.open()
    worker, listener = await workers.take(), Counting(200_000)
    worker.listen(listener)
    worker.data_received(frame(ToPortal.DROPPED, COUNT.pack(1)) * 200_000)
    assert 0 < listener.frames < 200_000
    with anyio.fail_after(20):
        await listener.all_here.wait()
    await workers.close()
