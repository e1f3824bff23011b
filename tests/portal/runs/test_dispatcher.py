"""The dispatcher: which runs are resumed when, and what becomes of those that could not be."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from portal.records.store.records import StoreError
from portal.records.store.run_tables import RunTables
from portal.runs import dispatcher
from portal.runs.answer import Answer
from portal.runs.dispatcher import MAX_RETRY_SECONDS, retry_seconds
from portal.runs.past import Piece
from sandbox_runtime.result import RunError
from tests.portal.kept_runs import kept_runs
from tests.portal.peers import DEADLINE_SECONDS


def test_attempts_to_resume_a_run_are_ever_further_apart() -> None:
    assert [retry_seconds(failures) for failures in (1, 2, 3, 4)] == [2, 4, 8, 16]
    assert {retry_seconds(failures) for failures in (10, 100, 10_000)} == {MAX_RETRY_SECONDS}


async def test_a_run_that_no_worker_can_take_up_waits_in_the_store_and_is_resumed(tmp_path: Path) -> None:
    async def busy(piece: Piece, *rest: Any) -> Answer:
        return Answer("refused", piece.run_id, error=RunError("sandbox_busy", "busy"))

    async with kept_runs(tmp_path, go_on=busy) as kept:
        run = await kept.start("ok")
        await kept.until(run, "waiting")
        row = await kept.store.read(lambda tables: tables.row(run))
        assert row.wake_at > kept.store.now(), "it is due again later"
        await kept.store.write(lambda tables: RunTables.postpone_run(tables, run, row.epoch, 0.0))
    async with kept_runs(tmp_path) as kept:
        await kept.until(run, "ok")


async def test_a_run_is_resumed_once_the_store_that_failed_meanwhile_works_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "RETRY_SECONDS", 0.001)
    attempts: list[str] = []

    async def go_on(piece: Piece, *rest: Any) -> Answer:
        attempts.append(run := piece.run_id)
        if len(attempts) < 3:
            raise StoreError("away")  # and the row says that the run is running here
        await kept.runs.end(run, "ok")
        return Answer("ok", run)

    async with kept_runs(tmp_path, go_on=go_on) as kept:
        await kept.until(run := await kept.start("ok"), "ok")
    assert attempts == [run] * 3


async def test_a_client_does_not_wait_for_a_run_that_is_tried_again_later(tmp_path: Path) -> None:
    async def fail(*args: Any) -> Answer:
        raise StoreError("away")

    async with kept_runs(tmp_path, go_on=fail) as kept:
        run = await kept.start("ok")
        with anyio.fail_after(DEADLINE_SECONDS):
            answer = await kept.runs.final_answer(run)
    assert answer.status == "running"


async def test_a_client_waits_for_a_run_that_is_being_resumed(tmp_path: Path) -> None:
    began, may_end, told = anyio.Event(), anyio.Event(), list[str]()

    async def go_on(piece: Piece, *rest: Any) -> Answer:
        began.set()
        await may_end.wait()
        await kept.runs.end(piece.run_id, "ok")
        return Answer("ok", piece.run_id)

    async def wait(run: str) -> None:
        told.append((await kept.runs.final_answer(run)).status)

    async with kept_runs(tmp_path, go_on=go_on) as kept, anyio.create_task_group() as tasks:
        run = await kept.start("ok")
        await began.wait()
        tasks.start_soon(wait, run)
        for _ in range(3):
            await kept.runs.answer(run, None)  # the client has looked, too
        may_end.set()
        await kept.until(run, "ok")
    assert told == ["ok"]


async def test_the_late_end_of_a_run_that_another_one_took_over_does_not_count(tmp_path: Path) -> None:
    async with kept_runs(tmp_path) as kept:
        run = await kept.start("hang")
        with anyio.fail_after(DEADLINE_SECONDS):
            while (held := await kept.store.read(lambda tables: tables.row(run))) and held.state == "waiting":
                await kept.runs.changes.news.wait()
        await kept.runs.end(run, "error", None, held.epoch - 1)
        assert await kept.store.read(lambda tables: tables.row(run)) == held
        await kept.runs.end(run, "error", None, held.epoch)
        await kept.until(run, "error")
