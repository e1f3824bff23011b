"""A worker that was taken over can say anything: it loses its run, and the portal neither hangs nor breaks."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_runtime.frames import COUNT, FrameError, FrameReader, ToPortal, frame
from tests.depth import depth
from tests.sandbox_runtime.taken_over import END, PREPARED, run_with

pytestmark = pytest.mark.anyio


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
