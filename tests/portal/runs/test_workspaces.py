"""Portals that share a store know what their workspaces carry; and a name that no row can have is unknown."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from portal.records.store.tables import UNSOURCED
from portal.records.store.writer import RunStore
from portal.runs.decisions import RunsError, find_run
from portal.runs.results import KeptResults
from portal.runs.workspaces import SharedWorkspace
from sandbox_runtime.call_port import CallError
from tests.portal.runs.rows import Tables

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def store_of(tables: Tables) -> AsyncIterator[RunStore]:
    store = RunStore(tables(), tables())
    try:
        yield store
    finally:
        await store.close()


async def test_portals_know_at_once_what_another_one_wrote_into_a_folder(
    tables: Tables, tmp_path: Path
) -> None:
    async with store_of(tables) as own, store_of(tables) as others:
        one, other = (SharedWorkspace(each, tmp_path) for each in (own, others))
        for folder in ("anna", "bert", ""):
            assert await other.sources(folder) == set()
        await one.add("anna", {"mail"})
        assert [await other.sources(each) for each in ("anna", "bert", "")] == [{"mail"}, set(), {"mail"}]
        await other.add("anna", {"web", "mail"})
        await one.add("", {"note"})
        assert await other.sources("bert") == {"note"}
        assert await one.sources("anna") == {"mail", "note", "web"}
        await other.add("bert", None)
        assert [await one.sources(each) for each in ("anna", "bert", "")] == [
            {"mail", "note", "web"},
            None,
            None,
        ]
        elsewhere = SharedWorkspace(others, tmp_path / "other")
        assert await elsewhere.sources("") == set()


async def test_a_source_that_a_run_gets_while_it_writes_counts_for_its_next_write(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    async with store_of(tables) as store:
        workspace, sources = SharedWorkspace(store, tmp_path), {"note"}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(workspace.add, "", sources)
            await anyio.lowlevel.checkpoint()
            sources.add("mail")
        await workspace.add("", sources)
        assert await workspace.sources("") == {"mail", "note"}


async def test_of_what_an_earlier_version_kept_nobody_knows_the_sources(tables: Tables) -> None:
    old = tables()
    with old.transaction():
        old.keep("kept_1", "local", b"1", ["mail"])
        old.database.execute("ALTER TABLE results DROP COLUMN sources")
        old.database.execute("UPDATE meta SET value = ? WHERE key = 'format'", (b"3",))
    assert tables().kept("kept_1", "local") == (b"1", None)
    async with store_of(tables) as store:
        assert await store.read(lambda file: file.get(*UNSOURCED)) == b""


@pytest.mark.parametrize("name", ["a\0b", "\0", "kept_\0", "\ud800", "run_\udfff", "", "é", "'; --"])
async def test_a_name_that_no_row_can_have_is_unknown(tables: Tables, name: str) -> None:
    async with store_of(tables) as store:
        results = KeptResults(store, lambda text: text)
        recalled = await results.recall(name, "local", lambda sources: None)
        assert isinstance(recalled, CallError) and recalled.code == "unknown_handle"
        with pytest.raises(RunsError) as unknown:
            await store.read(lambda file: find_run(file, name, "local"))
        assert unknown.value.code == "unknown_run"
        assert not await store.read(lambda file: file.knows_hook(name))
        assert await store.read(lambda file: file.listed(written=name)) == []
        handle = await results.keep("run_1", "result", "local", 7, ["mail"])
        assert await results.recall(handle, "local", lambda sources: None) == 7
