"""What the trail has of runs, and that no run waits for it."""

import asyncio
import base64
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from mcp_types import CallToolResult
from structlog.testing import capture_logs

from manifests.json_value import Json
from manifests.portal_manifest import RunsSettings
from portal.base.caller import LOCAL
from portal.base.requests import ExecuteCode
from portal.records.ledger import MAX_ROWS, Ledger
from portal.records.store.records import StoredRun
from portal.records.store.run_tables import RunTables
from portal.records.store.trail import HistoryRow
from portal.records.store.writer import RunStore
from portal.runs import trail
from portal.runs.decisions import url_number
from portal.runs.past import Past, Piece, RunHead, new_run_id
from portal.runs.trail import Note, Trail, listed_calls
from portal.server.callers import client_of
from tests.portal.kept_runs import kept_runs
from tests.portal.peers import DEADLINE_SECONDS, Opened, opened, structured
from tests.portal.rows import Tables, failing, store_of
from tests.portal.rows import opened as tables_in
from tests.portal.runs.test_waiting import KEPT, approved, git, waiting
from upstreams.redaction import Redaction

SECRET = "s3cret-of-the-upstream"
BY_ITSELF = {"_look", "last_log", "beat", "sweep", "components", "has_replicas"}
"""What the portal does with the store at any time."""


@pytest.fixture(autouse=True)
def _is_written_by_flush_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trail, "WRITE_SECONDS", 3_600)


async def history(portal: Opened) -> list[HistoryRow]:
    await portal.portal.runs.trail.flush()
    return await portal.portal.runs.store_or_error().read(partial(RunTables.history, owner=None))


async def kept(portal: Opened, run: str) -> StoredRun | None:
    return await portal.portal.runs.store_or_error().read(partial(RunTables.load, run=run))


@pytest.mark.parametrize("setting", ["off", "calls"])
async def test_a_run_that_only_reads_has_a_row_after_its_answer_unless_the_trail_is_off(
    tmp_path: Path, setting: str
) -> None:
    async with opened(tmp_path, {"git": git()}, runs={**KEPT, "trail": setting}) as portal:
        answer = await portal.run("\n# Look\nlen([await git.status(n=n) for n in range(3)])")
        rows = await history(portal)
        assert [row.id for row in rows] == [answer["run_id"]] * (setting == "calls")
        await portal.run("await git.status()\n1 / 0")
        failed = [(row.told, row.code, row.calls) for row in (await history(portal))[:1]]
        assert failed == [("error", "script_error", 1)] * (setting == "calls")
        for row in rows:
            assert (row.title, row.told, row.calls, row.failed) == ("# Look", "ok", 3, 0)
            assert (row.is_journaled, row.client[:4], row.owner) == (False, "mcp ", "local")
            assert [call[:3] for call in row.listed] == [[n, "git.status", "done"] for n in (1, 2, 3)]
            assert 0 <= row.listed[0][3] <= row.listed[1][3] <= row.ms
            assert min(row.result_bytes, row.answer_bytes, row.check_ms) > 0
            assert await kept(portal, row.id) is None


async def test_rows_are_written_by_themselves_and_told_to_those_who_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trail, "WRITE_SECONDS", 0.01)
    wrote = asyncio.Event()
    async with trail_in(tmp_path, wrote.set) as (own, _):
        for _ in range(2):
            noted(own)
            await asyncio.wait_for(wrote.wait(), DEADLINE_SECONDS)
            wrote.clear()
    assert tables_in(tmp_path).history_counts(None)["all"] == 2


async def test_between_a_run_and_its_answer_nothing_uses_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = list[str]()

    def counted(name: str) -> Callable[..., Any]:
        method = getattr(RunStore, name)

        def call(self: RunStore, work: Any, *rest: Any, **named: Any) -> Any:
            used.append(getattr(work, "func", work).__name__)
            return method(self, work, *rest, **named)

        return call

    async with opened(tmp_path, {"git": git()}, runs={**KEPT, "trail": "full"}) as portal:
        for name in ("read", "submit"):
            monkeypatch.setattr(RunStore, name, counted(name))
        await portal.result_of("len([await git.status(n=n) for n in range(3)])")
        assert {*used} <= BY_ITSELF
        assert not any(map(asyncio.iscoroutinefunction, (Trail.add, Trail.answered)))
        await portal.result_of("1")
        await history(portal)
        # Each is kept whole in a transaction of its own, so that journals need not wait for all.
        assert [each for each in used if each not in BY_ITSELF] == [
            "write_trail",
            *["keep_whole"] * 2,
            "history",
        ]


async def test_a_row_wakes_lists_and_no_run_that_waits(tmp_path: Path) -> None:
    async with opened(tmp_path, {"git": git()}, runs=KEPT) as portal:
        await portal.run("1")
        await history(portal)  # by then the portal has looked for expired runs, which is news
        await portal.run("1")
        runs = portal.portal.runs
        news, rows = runs.changes.news, runs.changes.rows
        await history(portal)
        assert (news.is_set(), rows.is_set()) == (False, True)
        runs.changes.wake()
        assert news.is_set()


async def test_a_run_with_a_journal_has_the_sizes_of_all_its_segments(tmp_path: Path) -> None:
    async with opened(tmp_path, {"git": git()}, runs=KEPT) as portal:
        code = "await git.push(n=1)\nawait portal.approve('Go on?')\nawait git.status(n='more')"
        run = (await waiting(portal, code))["run_id"]
        (first,) = await history(portal)
        assert (first.told, first.waiting) == ("waiting", ("approve",))
        assert (first.calls, first.is_journaled) == (2, True)
        await approved(portal, run)
        with anyio.fail_after(DEADLINE_SECONDS):
            # The client has the answer as soon as it is in the journal, before the segment's row.
            while (last := (await history(portal))[0]).ms == first.ms:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        assert (last.id, last.told, last.calls, last.waiting) == (run, "ok", 3, ())
        assert [row.result_bytes for row in (first, last)] == [len('{"n":1}'), len('{"n":1}true{"n":"more"}')]
        assert last.ms > first.ms and last.answer_bytes > first.answer_bytes > 0
        assert [call[3] for call in last.listed[:2]] == [call[3] for call in first.listed]


async def test_full_keeps_what_a_run_that_only_reads_did_and_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "[len(await git.status(n=7)), len(await git.status(n=8))]"
    hook = {"url": "http://127.0.0.1:9/hook", "events": ["run.ok"], "secret": "${S}"}
    runs = {**KEPT, "trail": "full", "webhooks": [hook]}
    async with opened(tmp_path, {"git": git()}, runs=runs, environ={"S": f"whsec_{'ab' * 16}"}) as portal:
        answer = await portal.run(code)
        (row,) = await history(portal)
        assert (row.is_journaled, row.told, row.calls) == (True, "ok", 2)
        stored = await kept(portal, row.id)
        assert (stored.row.ended, row.ended) == (row.began + row.ms / 1000,) * 2
        head, past = Past.of(stored)
        assert (head.request.code, [*past.entries], past.record.calls_made) == (code, [1, 2], 2)
        again = await portal.call("execute_code", run=row.id)
        assert again.structured_content["result"] == answer["result"]
        store = portal.portal.runs.store_or_error()
        assert await store.read(partial(RunTables.deliveries, hook=url_number(hook["url"]), limit=9)) == []
        for limit in ("MAX_WHOLE_BYTES", "MAX_WHOLE"):
            with monkeypatch.context() as patch:
                patch.setattr(trail, limit, 0)
                await portal.run(code)
                assert (await history(portal))[0].is_journaled is False


async def test_what_full_keeps_leaves_room_for_runs_that_need_a_journal(tmp_path: Path) -> None:
    async def much(arguments: dict[str, Json]) -> CallToolResult:
        return structured({"data": base64.b64encode(os.urandom(300_000)).decode()})

    runs = {**KEPT, "trail": "full", "quota_mib": 1}
    async with opened(tmp_path, {"git": git(status=much)}, runs=runs) as portal:
        for _ in range(4):
            await portal.result_of("len(str(await git.status()))")
            await history(portal)
        assert await portal.result_of("await git.push(n=1)") == {"n": 1}


async def test_a_run_that_cannot_be_kept_whole_takes_no_other_row_with_it(tmp_path: Path) -> None:
    async with opened(tmp_path, {"git": git()}, runs={**KEPT, "trail": "full"}) as portal:
        for code in ("# \ud800\n1", "2"):
            await portal.run(code)
        assert [row.is_journaled for row in await history(portal)] == [True, False]


def noted(own: Trail, run: str = "", code: str = "1 + 1", *functions: str) -> None:
    ledger = Ledger()
    for seq, function in enumerate(functions, 1):
        ledger.open(seq, function)
    head = RunHead(ExecuteCode(code), LOCAL, None, began=100.0)
    own.add(Piece(run or new_run_id(), head), ledger, Note("ok", ""))


@asynccontextmanager
async def trail_in(
    folder: Path, wrote: Callable[[], None] = lambda: None
) -> AsyncIterator[tuple[Trail, RunStore]]:
    """A trail, which is flushed at the end, and its store."""
    async with store_of(Tables(folder)) as store, anyio.create_task_group() as tasks:
        own = Trail(store, RunsSettings(), Redaction([SECRET]), wrote)
        tasks.start_soon(own.keep)
        yield own, store
        await own.flush()
        tasks.cancel_scope.cancel()


async def test_secrets_are_not_written(tmp_path: Path) -> None:
    async with trail_in(tmp_path) as (own, _):
        noted(own, "", f"# {SECRET}", f"git.{SECRET}")
        noted(own, "", f"#{' ' * 190}{SECRET}")
    cut, row = sorted(tables_in(tmp_path).history(None), key=lambda row: row.calls)
    assert (row.title, row.listed[0][1]) == ("# [hidden]", "git.[hidden]")
    assert cut.title == f"#{' ' * 190}[hidden]"


async def test_while_the_store_hangs_the_newest_thousand_rows_wait_and_the_others_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(tables: RunTables) -> None:
        hangs.set()
        goes_on.wait()

    async with trail_in(tmp_path) as (own, store):
        store.submit(hang, lambda *_: None)
        await asyncio.to_thread(hangs.wait)
        try:
            monkeypatch.setattr(trail, "_FLUSH_SECONDS", 0)
            noted(own, "run_under_way")
            await own.flush()
            with capture_logs() as logs:
                for n in range(1_003):
                    noted(own, f"run_{n}")
                    own.answered(f"run_{n}", 1)
            assert [(each["event"], each["runs"]) for each in logs] == [("trail_dropped", 1)]
            assert len(own._waiting) == len(own._read) == 1_000
        finally:
            monkeypatch.undo()
            goes_on.set()
    found = {row.id for row in tables_in(tmp_path).history(None, limit=2_000)}
    assert len(found) == 1_001 and {"run_2", "run_3"} & found == {"run_3"}


async def test_what_cannot_be_written_is_dropped_and_the_next_is_written(tmp_path: Path) -> None:
    wrote = list[bool]()
    async with trail_in(tmp_path, lambda: wrote.append(True)) as (own, store):
        with failing(store), capture_logs() as logs:
            for _ in range(2):
                noted(own)
                await own.flush()
        assert [each["event"] for each in logs] == ["trail_dropped"]
        noted(own)
    assert (tables_in(tmp_path).history_counts(None)["all"], wrote) == (1, [True])


def test_a_client_cannot_hide_anything_in_its_name() -> None:
    info = SimpleNamespace(title=None, name=f"a\u202eb\x1b[2J\n{SECRET}", version="9" * 100)
    session = SimpleNamespace(client_params=SimpleNamespace(client_info=info))
    name = client_of(SimpleNamespace(session=session, request=None), Redaction([SECRET]))
    assert name.startswith("ab[2J [hidden] 999") and len(name) == 60


async def test_the_program_that_posts_a_run_is_named(tmp_path: Path) -> None:
    async with kept_runs(tmp_path) as kept, kept.client(**{"User-Agent": "curl/8.5.0 (x)"}) as client:
        run = (await client.post("/runs", json={"code": "ok"})).json()["run_id"]
        stored = await kept.store.read(partial(RunTables.load, run=run))
    assert stored is not None and Past.of(stored)[0].caller.client == "curl 8.5.0"


def test_of_many_calls_one_of_each_function_and_those_that_are_not_done_are_listed_first() -> None:
    ledger = Ledger()
    for seq in range(1, 301):
        ledger.open(seq, "crm.delete" if seq == 200 else "crm.get" if seq % 2 else "crm.put")
        ledger[seq].at = 100.0 + seq
        ledger[seq].end("failed" if seq == 150 else "done")
    rows = listed_calls(ledger, 100.0)
    assert [[*row[:4], row[5]] for row in rows[-3:]] == [
        [98, "crm.put", "done", 98_000.0, ""],
        [150, "crm.put", "failed", 150_000.0, ""],
        [200, "crm.delete", "done", 200_000.0, ""],
    ]
    assert len(rows) == MAX_ROWS
