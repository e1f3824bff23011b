"""Brief writes are committed on the event loop while the disk is fast, and never otherwise."""

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from manifests.grants import Limits
from portal.base.caller import LOCAL
from portal.base.requests import ExecuteCode
from portal.records.store.records import RunRow
from portal.records.store.run_tables import RunTables
from portal.records.store.sqlite import SqliteDatabase
from portal.records.store.writer import Pace, RunStore, resolve
from portal.runs.answer import Answer
from portal.runs.past import RunHead
from portal.runs.segment_state import BRIEF_BYTES, Rows, Written
from sandbox_runtime.call_port import Outcome
from sandbox_runtime.recording import Origin, Record
from tests.portal.rows import Tables, begun, kinds, store_of
from tests.portal.rows import opened as tables_in

FAST, SLOW, HICCUP = 0.0001, 0.003, 0.2


class AlwaysFast(Pace):
    is_fast = True


class FastDisk(Pace):
    """Every commit counts as fast."""

    def note_thread(self, seconds: float) -> None:
        super().note_thread(FAST)

    def note_loop(self, seconds: float) -> None:
        super().note_loop(FAST)


class SlowDatabase(SqliteDatabase):
    """A disk that takes 3 ms, and notes whom each commit holds up."""

    def __init__(self, path: Path) -> None:
        self.held = list[threading.Thread]()
        super().__init__(path)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> int:
        if statement == "COMMIT":
            time.sleep(SLOW)
            self.held.append(threading.current_thread())
        return super().execute(statement, values)


def paced(*threads: float, to: Pace | None = None) -> Pace:
    """After such commits of the thread."""
    pace = to or Pace()
    for seconds in threads:
        pace.note_thread(seconds)
    return pace


def in_thread(pace: Pace) -> int:
    """How many fast commits the thread makes before the loop may."""
    for number in range(2_000):
        if pace.is_fast:
            return number
        pace.note_thread(FAST)
    return -1


def note(file: RunTables, run: str, kind: str) -> None:
    file.note(run, kind)


def brief(store: RunStore, work: Any) -> "asyncio.Future[Any]":
    """Submit it. The future is done already if the loop has committed it."""
    future = asyncio.get_running_loop().create_future()
    store.submit(work, partial(resolve, future), is_lasting=True, is_brief=True)
    return future


# When the loop may commit


@pytest.mark.parametrize(("held", "wanted"), [(FAST, 0), (0.002, 4), (SLOW, 6), (HICCUP, 400), (60.0, 1_000)])
def test_slow_commit_on_the_loop_is_paid_back_by_fast_ones_of_the_thread(held: float, wanted: int) -> None:
    pace = Pace()
    assert in_thread(pace) == 4
    pace.note_loop(held)
    assert in_thread(pace) == wanted
    pace.note_loop(held)
    assert in_thread(paced(*[SLOW] * 1_000, to=pace)) == max(wanted, 1), "slow ones pay nothing back"


def test_loop_leaves_a_disk_alone_on_which_4_commits_of_the_thread_in_a_row_were_slow() -> None:
    pace = paced(*[FAST] * 4, *[SLOW] * 3)
    assert pace.is_fast, "they may have waited for the interpreter's lock"
    assert not paced(SLOW, to=pace).is_fast
    assert paced(FAST, to=pace).is_fast


def rows_of(*outcomes: Outcome, code: str = "1") -> Rows:
    head, noted = RunHead(ExecuteCode(code), LOCAL, None), tuple((1, "done", each) for each in outcomes)
    return Rows("run", Written(1, 1, 0, head), True, head, (), (), (), noted, None)  # type: ignore[arg-type]


def test_what_takes_long_to_write_is_not_brief() -> None:
    shown = [{"type": "text", "text": "x" * 20_000}]
    short = [Outcome({"n": [1, 2]}), Outcome(text=b"1"), Outcome(content=[{"type": "text", "text": "x"}])]
    long = [
        Outcome("x" * 20_000),
        Outcome(text=b"x" * 20_000),
        Outcome(1, content=[*shown]),
        Outcome(data=shown),
    ]
    many = [
        Outcome([0] * 20_000),
        Outcome({str(n): [n] for n in range(2_000)}),
        Outcome([[{"n": "x" * 20_000}]]),
    ]
    assert rows_of(*short).is_within(BRIEF_BYTES) and rows_of(code="x" * 100).is_within(BRIEF_BYTES)
    assert not any(rows_of(outcome).is_within(BRIEF_BYTES) for outcome in (*long, *many))
    assert not rows_of(code="x" * 20_000).is_within(BRIEF_BYTES)
    assert rows_of()._replace(answer=Answer("ok", "run", result=[1])).is_within(BRIEF_BYTES)
    assert not rows_of()._replace(answer=Answer("ok", "run", result="x" * 20_000)).is_within(BRIEF_BYTES)
    record = Record(Origin.now("0" * 64), "1", (), Limits(), 0, "x" * 20_000, ())
    rows = rows_of()
    rows = rows._replace(head=replace(rows.head, record=record))
    assert not rows.is_within(BRIEF_BYTES), "a library of many functions"


# What it does then


async def test_brief_write_is_done_when_it_returns_unless_it_is_in_postgres(tables: Tables) -> None:
    run = begun(tables())
    async with store_of(tables, pace=AlwaysFast()) as store:
        done = brief(store, partial(note, run=run.id, kind="noted"))
        assert done.done() is not isinstance(tables.place, str)
        await done
        assert await store.read(partial(kinds, run=run.id)) == ["began", "noted"]


async def test_commit_on_the_loop_is_on_the_disk_and_neither_waits_for_a_lock_nor_checkpoints(
    tmp_path: Path,
) -> None:
    def settings(file: RunTables) -> list[int]:
        pragmas = ("synchronous", "busy_timeout", "wal_autocheckpoint")
        return [file.database.rows(f"PRAGMA {each}")[0][0] for each in pragmas]

    async with store_of(Tables(tmp_path), pace=AlwaysFast()) as store:
        for _ in range(2):
            assert brief(store, settings).result() == [2, 0, 0]
            assert await store.write(settings, is_lasting=True) == [2, 5_000, 1_000]
            assert await store.write(settings) == [1, 5_000, 1_000]


async def test_brief_write_that_fails_changes_nothing(tmp_path: Path) -> None:
    def fail(file: RunTables) -> None:
        file.note(run.id, "undone")
        raise ValueError("its own failure")

    run = begun(tables_in(tmp_path))
    async with store_of(Tables(tmp_path), pace=AlwaysFast()) as store:
        assert isinstance(brief(store, fail).exception(), ValueError)
        assert await store.read(partial(kinds, run=run.id)) == ["began"]
        assert brief(store, partial(note, run=run.id, kind="noted")).done()


async def test_brief_write_waits_for_what_the_thread_has_to_do(tmp_path: Path) -> None:
    run, ended = begun(tables_in(tmp_path)), list[str]()
    async with store_of(Tables(tmp_path), pace=AlwaysFast()) as store:
        for number in range(20):
            name = f"{number}"
            store.submit(
                partial(note, run=run.id, kind=name),
                lambda *_, name=name: ended.append(name),
                is_brief=number % 3 > 0,
            )
        assert not ended
        await store.write(lambda file: None)
        wanted = [str(number) for number in range(20)]
        assert ended == wanted
        assert await store.read(partial(kinds, run=run.id)) == ["began", *wanted]
        assert store.written == {"loop": 0, "thread": 21}
        assert brief(store, lambda file: None).done()


async def test_slow_disk_holds_the_loop_once_and_a_disk_that_was_never_fast_not_at_all(
    tmp_path: Path,
) -> None:
    for pace, held in ((paced(*[FAST] * 4), 1), (Pace(), 0)):
        database = SlowDatabase(tmp_path / "runs.sqlite")
        store = RunStore(RunTables(database, None), tables_in(tmp_path), pace=pace)
        database.held.clear()
        for _ in range(10):
            await brief(store, lambda file: None)
        assert database.held.count(threading.current_thread()) == store.written["loop"] == held
        await store.close()


async def test_lock_of_another_process_does_not_hold_the_loop(tmp_path: Path) -> None:
    run = begun(tables_in(tmp_path))
    with closing(sqlite3.connect(tmp_path / "runs.sqlite", isolation_level=None)) as other:
        async with store_of(Tables(tmp_path), pace=AlwaysFast()) as store:
            other.execute("BEGIN IMMEDIATE")
            writes = [brief(store, partial(note, run=run.id, kind=kind)) for kind in ("first", "second")]
            assert not any(write.done() for write in writes)  # it had to return: this thread holds the lock
            other.execute("COMMIT")
            await asyncio.gather(*writes)
            assert await store.read(partial(kinds, run=run.id)) == ["began", "first", "second"]
            assert brief(store, lambda file: None).done()


async def test_write_ahead_log_stays_short_though_only_the_loop_has_something_to_write(
    tmp_path: Path,
) -> None:
    def append(file: RunTables, run: RunRow, n: int) -> None:
        file.advance(run.id, run.epoch, chunk=os.urandom(4_000), n=n)

    run, longest = begun(tables_in(tmp_path)), 0
    async with store_of(Tables(tmp_path), pace=paced(*[FAST] * 4, to=FastDisk())) as store:
        for number in range(1, 1_001):
            await brief(store, partial(append, run=run, n=number))
            longest = max(longest, (tmp_path / "runs.sqlite-wal").stat().st_size)
    assert store.written["loop"] > 950
    assert longest < 8 << 20


@pytest.mark.parametrize("is_lasting", [True, False])
async def test_60_writes_in_one_commit_say_of_the_disk_no_more_than_one_and_those_that_do_not_wait_nothing(
    tmp_path: Path, is_lasting: bool
) -> None:
    run, may_go_on = begun(tables_in(tmp_path)), threading.Event()
    async with store_of(Tables(tmp_path)) as store:
        works = [partial(note, run=run.id, kind=f"{number}") for number in range(60)]
        if is_lasting:
            store.submit(lambda file: may_go_on.wait(), lambda *_: None)
            writes = [asyncio.ensure_future(store.write(work, is_lasting=True)) for work in works]
            asyncio.get_running_loop().call_soon(may_go_on.set)
            await asyncio.gather(*writes)
        for work in works if not is_lasting else ():
            await store.write(work)
        alone = brief(store, works[0])
        assert not alone.done(), "how long the disk takes for one is not known yet"
        await alone


async def test_write_to_a_closed_store_is_dropped_on_the_loop_as_by_the_thread(tmp_path: Path) -> None:
    async with store_of(Tables(tmp_path), pace=AlwaysFast()) as store:
        assert brief(store, lambda file: None).done()
    assert not brief(store, lambda file: None).done(), "no journal reports that it cannot be written"
