"""A worker that was taken over can tell any trace: it loses its run, and the portal keeps no nonsense."""

import pytest

from manifests.grants import Limits
from sandbox_runtime.frames import ToPortal, TrapCause, frame
from sandbox_runtime.recording import Recording
from sandbox_runtime.result import RunResult
from sandbox_runtime.sandbox import Sandbox, Workers
from tests.sandbox_runtime.replay.recorder import kept
from tests.sandbox_runtime.running import EchoPort, where
from tests.sandbox_runtime.taken_over import END, FINISHED, PREPARED, TakenOver

pytestmark = pytest.mark.anyio


async def recorded(answer: bytes) -> tuple[RunResult, Recording]:
    workers = Workers(TakenOver(PREPARED, answer), 1, 1, print)
    await workers.open()
    recording = Recording()
    async with Sandbox(workers, "a" * 64).run(Limits(), where, recording=recording) as run:
        await run.prepare("1", ("git",))
        result = await run.execute({}, EchoPort())
    await workers.close()
    return result, recording


def trace(text: bytes) -> bytes:
    return frame(ToPortal.TRACE, text)


@pytest.mark.parametrize(
    "lie",
    [
        trace(b"=1"),
        trace(b"=999999999999"),
        trace(b"what"),
        trace(b"-1"),
        trace(b"+"),
        trace(b"1  1"),
        trace(b"\xff"),
        trace(b"9" * 100),
        trace(b"*5"),
        trace(b"0"),
        trace(b"+1 " * 10_000 + b"+1"),
        frame(ToPortal.OUTPUT, b"\xff\xfe"),
        frame(ToPortal.TRAPPED, END, b"\xc8"),
        frame(ToPortal.CALLS, b"1 a.b \xff"),
    ],
)
async def test_lie_about_what_a_run_learned_loses_the_worker(lie: bytes) -> None:
    result, recording = await recorded(lie + FINISHED)
    assert result.error is not None
    assert result.error.code == "worker_lost"
    assert recording.record is not None
    kept(recording.record)


async def test_endless_trace_is_given_up_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox_runtime.recording.MAX_RECORD_BYTES", 10_000)
    result, recording = await recorded(trace(b"+1 1 " * 1000 + b"1") * 20 + FINISHED)
    assert (result.error, result.value) == (None, 1)
    assert recording.is_too_large
    assert (recording.record, recording.events) == (None, [])


async def test_live_run_is_not_ended_by_the_cause_of_replays() -> None:
    result, _ = await recorded(frame(ToPortal.TRAPPED, END, bytes([TrapCause.UNRECORDED])))
    assert result.error is not None
    assert result.error.code == "worker_lost"
