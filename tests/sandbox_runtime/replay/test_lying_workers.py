"""A worker that was taken over can tell any trace: it loses its run, and the portal keeps no nonsense."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.grants import Limits
from sandbox_runtime.frames import ToPortal, TrapCause, frame
from sandbox_runtime.record import Answered, ClocksRead, Finished, Parsed, Resumed, dump_record, parse_record
from sandbox_runtime.recording import Recording
from sandbox_runtime.result import RunResult
from sandbox_runtime.sandbox import Sandbox
from sandbox_runtime.workers import Workers
from tests.sandbox_runtime.running import EchoPort, where
from tests.sandbox_runtime.taken_over import END, FINISHED, PREPARED, TakenOver

pytestmark = pytest.mark.anyio


async def recorded(answer: bytes) -> tuple[RunResult, Recording]:
    workers = Workers(TakenOver(PREPARED, answer), 1, 1, print)
    await workers.open()
    recording = Recording(max_bytes=10_000)
    async with Sandbox(workers, "a" * 64).run(Limits(), where, recording=recording) as run:
        await run.prepare("1", ("git",))
        result = await run.execute({}, EchoPort())
    await workers.close()
    return result, recording


def trace(text: bytes) -> bytes:
    return frame(ToPortal.TRACE, text)


async def test_honest_trace_is_understood() -> None:
    result, recording = await recorded(trace(b"2 +5 1") + trace(b"+1 =0 @7 3") + FINISHED)
    assert result.error is None
    kinds = [type(event) for event in recording.events]
    assert kinds == [Parsed, ClocksRead, Answered, Resumed, ClocksRead, Finished]
    assert recording.events[1] == ClocksRead("2 +5 1 +1")


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
    assert parse_record(dump_record(recording.record)) == recording.record


async def test_trace_of_a_run_that_is_not_recorded_loses_the_worker() -> None:
    workers = Workers(TakenOver(PREPARED, trace(b"1") + FINISHED), 1, 1, print)
    await workers.open()
    async with Sandbox(workers).run(Limits(), where) as run:
        await run.prepare("1", ())
        result = await run.execute({}, EchoPort())
    await workers.close()
    assert result.error is not None
    assert result.error.code == "worker_lost"


async def test_endless_trace_is_given_up_and_the_run_goes_on() -> None:
    result, recording = await recorded(trace(b"+1 1 " * 1000 + b"1") * 20 + FINISHED)
    assert (result.error, result.value, len(result.notices)) == (None, 1, 1)
    assert recording.is_too_large
    assert (recording.record, recording.events) == (None, [])


@given(
    st.lists(
        st.sampled_from([0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11]).flatmap(
            lambda kind: st.tuples(st.just(kind), st.binary(max_size=40))
        )
    )
)
async def test_whatever_is_said_a_record_can_be_kept(told: list[tuple[int, bytes]]) -> None:
    _, recording = await recorded(b"".join(frame(kind, payload) for kind, payload in told) + FINISHED)
    record = recording.record
    assert record is not None
    assert parse_record(dump_record(record)) == record


@pytest.mark.parametrize("cause", [TrapCause.UNRECORDED_READ, TrapCause.UNRECORDED_EXCHANGE])
async def test_live_run_is_not_ended_by_causes_of_replays(cause: TrapCause) -> None:
    result, _ = await recorded(frame(ToPortal.TRAPPED, END, bytes([cause])))
    assert result.error is not None
    assert result.error.code == "worker_lost"
