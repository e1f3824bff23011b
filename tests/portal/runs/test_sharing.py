"""Portals on one machine share a SQLite file, and take over what earlier versions left in files of their own."""

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path

import pytest
from mcp import Client

from manifests.json_value import Json
from manifests.loader import load_manifest
from manifests.manifest import Manifest
from manifests.own_files import locked
from portal.app.composition import open_portal
from portal.identity.approvers import Approvers, Decider
from portal.records.store.places import open_store, open_tables, place_of, present
from portal.records.store.records import StoreError
from portal.records.store.run_tables import RunTables
from portal.records.store.sqlite import SqliteDatabase, portals_folder
from portal.runs.decisions import RunsError, decide_call
from portal.server.server import build_server
from tests.portal.peers import Opened, write_manifest
from tests.portal.runs.rows import asked, begun, together
from tests.portal.runs.test_waiting import SOON, answer_of, found, waiting

ASKS = "await portal.approve('?')"


@pytest.fixture
def manifest(tmp_path: Path, own_state: None) -> Manifest:
    return load_manifest(write_manifest(tmp_path, {}, runs=SOON), {})


@asynccontextmanager
async def portal_of(manifest: Manifest) -> AsyncIterator[Opened]:
    async with open_portal(manifest, lambda line: None) as portal, Client(build_server(portal)) as client:
        yield Opened(portal, client)


async def holder_of(portal: Opened, run: str) -> str:
    row = await found(portal, lambda tables: tables.row(run), bool)
    return str(row.holder)


def living(path: Path, stack: ExitStack) -> RunTables:
    """The tables of a portal that lives until the stack ends."""
    tables = RunTables(SqliteDatabase(path), None, stack.enter_context(present(path)))
    stack.callback(tables.close)
    with tables.transaction():
        tables.beat("")
    return tables


@pytest.mark.anyio
async def test_a_run_stays_with_its_portal_while_that_lives_and_then_goes_on_in_another(
    manifest: Manifest,
) -> None:
    async with portal_of(manifest) as one:
        async with portal_of(manifest) as other:
            first, second = [(await waiting(other, ASKS))["run_id"] for _ in range(2)]
            await one.portal.runs.decide(first, None, Decider("ann"), is_approved=True)
            await answer_of(one, first)
            assert await holder_of(one, first) == other.portal.runs.store.holder
        await one.portal.runs.decide(second, None, Decider("ann"), is_approved=True)
        await answer_of(one, second)
        assert await holder_of(one, second) == one.portal.runs.store.holder


@pytest.mark.parametrize("leaves_its_file", [True, False])
def test_runs_of_a_portal_that_was_killed_are_left_to_the_others(
    tmp_path: Path, leaves_its_file: bool
) -> None:
    path = tmp_path / "runs.sqlite"
    with ExitStack() as stack:
        one = living(path, stack)
        with ExitStack() as life:
            killed = living(path, life)
            running, parked = begun(killed), begun(killed)
            asked(killed, parked)
            with one.transaction():
                one.decide(parked.id, 1, "approved", b"{}", "ann")
                one.beat("")
            assert (one.left([None]), one.due(0, [None], 9)) == ({}, {})
            assert [*killed.due(0, [None], 9)] == [parked.id]
        if leaves_its_file:
            (portals_folder(path) / killed.holder).touch()
        with one.transaction():
            one.beat("")
        assert ([*one.left([None])], [*one.due(0, [None], 9)]) == ([running.id], [parked.id])
        assert [each.name for each in portals_folder(path).iterdir()] == [one.holder]
    assert not RunTables(SqliteDatabase(path), None).has_replicas()


def test_portals_that_start_at_once_share_a_new_file(manifest: Manifest) -> None:
    place = place_of(manifest)
    with ExitStack() as stack:
        holders = [stack.enter_context(present(place)) for _ in range(6)]
        stores = together(*(lambda holder=holder: open_store(place, manifest, holder) for holder in holders))
        assert {id for (id,) in stores[0]._tables.database.rows("SELECT id FROM replicas")} == {*holders}


def test_a_portal_of_an_earlier_version_shares_its_file_with_nobody(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    with (
        locked(tmp_path / "runs.sqlite.lock"),
        pytest.raises(StoreError, match="earlier version"),
        present(path),
    ):
        pass
    with present(path), present(path), locked(tmp_path / "runs.sqlite.lock") as is_alone:
        assert not is_alone


@pytest.mark.anyio
async def test_runs_that_are_parked_in_files_of_earlier_versions_go_on(
    tmp_path: Path, manifest: Manifest
) -> None:
    place, runs = place_of(manifest), list[str]()
    place.parent.mkdir(parents=True)
    for name in ("0.sqlite", "1.sqlite", "2.sqlite"):
        sections: dict[str, Json] = {"runs": {**SOON, "store": str(place.with_name(name))}}
        async with portal_of(load_manifest(write_manifest(tmp_path, {}, **sections), {})) as portal:
            runs.append((await waiting(portal, ASKS))["run_id"])
    place.with_name("3.sqlite").write_bytes(b"no store of runs" * 100)
    command = open_tables(place.with_name("0.sqlite"), None)
    with locked(place.with_name("2.sqlite.lock")), closing(command):  # the portal of 2 still runs
        async with portal_of(manifest) as portal:
            with pytest.raises(RunsError), command.transaction():
                decide_call(command, runs[0], None, Decider("cli"), Approvers(), is_approved=False)
            for run in runs[:2]:
                await portal.portal.runs.decide(run, None, Decider("ann"), is_approved=True)
                assert (await answer_of(portal, run))["result"] is True
            listed = await portal.portal.runs.store.read(RunTables.listed)
            assert {row.id for row in listed} == {*runs[:2]}
    assert {path.name for path in place.parent.glob("*.sqlite")} == {"runs.sqlite", "2.sqlite", "3.sqlite"}
    async with portal_of(manifest) as portal:
        await portal.portal.runs.decide(runs[2], None, Decider("ann"), is_approved=True)
        assert (await answer_of(portal, runs[2]))["result"] is True
