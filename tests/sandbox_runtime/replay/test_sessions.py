"""Runs of a session are recorded, and not replayed."""

import pytest

from manifests.grants import Limits
from sandbox_runtime.errors import RecordError
from sandbox_runtime.recording import Record
from sandbox_runtime.replay import replay
from sandbox_runtime.result import RunResult
from sandbox_runtime.sandbox import Sandbox
from tests.sandbox_runtime.replay.recorder import Recorder

pytestmark = pytest.mark.anyio


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


async def test_random_numbers_of_a_session_go_on_and_are_not_begun_again(recorded: Recorder) -> None:
    seeded = "import random\nrandom.seed(7)\nfirst = random.random()\nfirst"
    results, _ = await recorded_session(
        recorded, (seeded, "random.random()", "random.seed(7)\n[random.random(), random.random()]")
    )
    assert [results[0].value, results[1].value] == results[2].value


async def test_run_of_a_session_is_not_replayed_without_those_before_it(
    sandbox: Sandbox, recorded: Recorder
) -> None:
    _, records = await recorded_session(recorded, ("x = 1", "x"))
    assert [record.origin.position for record in records] == [1, 2]
    with pytest.raises(RecordError):
        await replay(sandbox, records[1], str)
