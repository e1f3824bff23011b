"""A session's record is the sequence of its runs; replayed in order it is the same session."""

import pytest

from manifests.grants import Limits
from sandbox_runtime.errors import RecordError
from sandbox_runtime.record import Record
from sandbox_runtime.replay import replay, replay_session
from sandbox_runtime.result import RunResult
from sandbox_runtime.sandbox import Sandbox
from tests.sandbox_runtime.replay.recorder import Recorder, facts

pytestmark = pytest.mark.anyio

SCRIPTS = (
    "import random, time, os\nkept = [await git.git_log(i=1), random.random(), time.monotonic()]\nrandom.seed(7)",
    "class A: pass\nobjects = [A() for _ in range(60)]\n[random.random(), os.urandom(4).hex(), time.monotonic()]",
    "1 / 0",
    "def f(:",
    "[kept, [objects.index(a) for a in set(objects)], id(object()), time.time(), random.random()]",
)


async def recorded_session(
    recorded: Recorder, scripts: tuple[str, ...], limits: Limits | None = None
) -> tuple[list[RunResult], list[Record]]:
    session = await recorded.sandbox.open_session()
    results, records = [], []
    for script in scripts:
        result, record = await recorded(script, session=session, limits=limits)
        assert result is not None
        results.append(result)
        records.append(record)
    session.close()
    return results, records


async def test_session_is_replayed_run_by_run(sandbox: Sandbox, recorded: Recorder) -> None:
    results, records = await recorded_session(recorded, SCRIPTS)
    assert [record.origin.position for record in records] == [1, 2, 3, 4, 5]
    again = await replay_session(sandbox, records)
    assert [facts(result) for result in again] == [facts(result) for result in results]


async def test_random_numbers_of_a_session_go_on_and_are_not_begun_again(recorded: Recorder) -> None:
    seeded = "import random\nrandom.seed(7)\nfirst = random.random()\nfirst"
    results, _ = await recorded_session(
        recorded, (seeded, "random.random()", "random.seed(7)\n[random.random(), random.random()]")
    )
    assert [results[0].value, results[1].value] == results[2].value


async def test_session_whose_last_run_was_stopped_is_replayed(sandbox: Sandbox, recorded: Recorder) -> None:
    scripts = ("x = 1", "print(x)\nwhile True: pass")
    results, records = await recorded_session(recorded, scripts, Limits(cpu_seconds=0.2))
    again = await replay_session(sandbox, records)
    assert [facts(result) for result in again] == [facts(result) for result in results]


async def test_runs_that_are_missing_or_in_another_order_are_refused(
    sandbox: Sandbox, recorded: Recorder
) -> None:
    _, records = await recorded_session(recorded, ("x = 1", "x += 1\nx", "x"))
    for wrong in (records[1:], [records[0], records[2]], [records[1], records[0], records[2]]):
        with pytest.raises(RecordError):
            await replay_session(sandbox, wrong)
    with pytest.raises(RecordError):
        await replay(sandbox, records[1])
    assert [result.value for result in await replay_session(sandbox, records)] == [None, 2, 2]
