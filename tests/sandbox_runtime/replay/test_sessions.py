"""A session's record is the sequence of its runs; replayed in order it is the same session."""

import pytest

from manifests.grants import Limits
from sandbox_runtime.errors import DivergenceError, RecordError
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


async def test_bytes_from_the_system_differ_from_run_to_run(recorded: Recorder) -> None:
    results, _ = await recorded_session(recorded, ("import os\nos.urandom(8).hex()",) * 3)
    assert len({result.value for result in results}) == 3  # type: ignore[arg-type]


async def test_monotonic_clock_of_a_session_never_goes_back(recorded: Recorder) -> None:
    results, _ = await recorded_session(recorded, ("import time\n[time.monotonic(), time.monotonic()]",) * 20)
    looks = [look for result in results if isinstance(result.value, list) for look in result.value]
    assert looks == sorted(looks)


async def test_session_whose_last_run_was_stopped_is_replayed(sandbox: Sandbox, recorded: Recorder) -> None:
    scripts = ("x = 1", "print(x)\nwhile True: pass")
    results, records = await recorded_session(recorded, scripts, Limits(cpu_seconds=0.2))
    again = await replay_session(sandbox, records)
    assert [facts(result) for result in again] == [facts(result) for result in results]


async def test_script_that_was_only_parsed_is_part_of_the_session(
    sandbox: Sandbox, recorded: Recorder
) -> None:
    """What was refused after parsing has moved the interpreter's memory, too."""
    session = await sandbox.open_session()
    records = [(await recorded("import time\nx = 1", session=session))[1]]
    records.append(
        (await recorded("y = [x for x in range(1000)]\n" * 50, session=session, executes=False))[1]
    )
    result, record = await recorded("[id(object()), repr(object())]", session=session)
    session.close()
    assert result is not None
    *_, again = await replay_session(sandbox, [*records, record])
    assert facts(again) == facts(result)


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


async def test_runs_of_another_session_diverge(sandbox: Sandbox, recorded: Recorder) -> None:
    _, one = await recorded_session(recorded, ("x = 1", "x"))
    _, other = await recorded_session(recorded, ("x = 2", "x"))
    with pytest.raises(DivergenceError):
        await replay_session(sandbox, [one[0], other[1]])


async def test_first_run_of_a_session_can_be_replayed_alone(sandbox: Sandbox, recorded: Recorder) -> None:
    results, records = await recorded_session(recorded, SCRIPTS[:1])
    assert facts(await replay(sandbox, records[0])) == facts(results[0])
