"""The dispatcher: which runs are resumed when, and what becomes of those that could not be."""

import math
from pathlib import Path
from typing import Any

import pytest

from portal.records.store.run_tables import RunTables
from portal.runs.answer import Answer
from portal.runs.dispatcher import MAX_RETRY_SECONDS, Retries
from sandbox_runtime.result import RunError
from tests.portal.kept_runs import kept_runs


def test_a_run_that_could_not_be_resumed_is_retried_ever_later_until_it_could() -> None:
    retries = Retries()
    assert [retries.failed("a", 100.0) for _ in range(4)] == [102, 104, 108, 116]
    assert [retries.failed("a", 0.0) for _ in range(40)][-1] == MAX_RETRY_SECONDS
    assert retries.failed("b", 0.0) == 2, "each run has its own"
    retries.succeeded("a")
    assert retries.failed("a", 0.0) == 2


@pytest.mark.parametrize(
    ("now", "started"),
    [
        (1.9, {"due": "ann"}),  # not before its time, though the store says that it is due
        (2.0, {"failed": "bob", "due": "ann"}),
    ],
)
def test_a_run_whose_row_could_not_be_written_waits_for_its_time_here(
    now: float, started: dict[str, str]
) -> None:
    retries = Retries()
    retries.postpone("failed", 0.0)
    assert retries.next_at() == 2
    assert retries.start({"due": "ann", "failed": "bob"}, now) == started
    assert retries.next_at() == (2 if "failed" not in started else math.inf)
    assert retries.start({}, 9.0) == ({"failed": ""} if "failed" not in started else {})


@pytest.mark.anyio
async def test_a_run_that_no_worker_can_take_up_waits_in_the_store_and_is_resumed(tmp_path: Path) -> None:
    async def busy(run: str, *rest: Any) -> Answer:
        return Answer("refused", run, error=RunError("sandbox_busy", "busy"))

    async with kept_runs(tmp_path, go_on=busy) as kept:
        run = await kept.start("ok")
        await kept.until(run, "waiting")
        row = await kept.store.read(lambda tables: tables.row(run))
        assert row.wake_at > kept.store.now(), "it is due again later"
        await kept.store.write(lambda tables: RunTables.postpone_run(tables, run, row.epoch, 0.0))
    async with kept_runs(tmp_path) as kept:
        await kept.until(run, "ok")
