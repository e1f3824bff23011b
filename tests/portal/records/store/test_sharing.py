"""SQLite alone: portals on one machine share a file, which may be full, damaged or another user's.

They take over what earlier versions left in files of their own.
"""

import os
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from manifests.loader import load_manifest
from manifests.manifest import Manifest
from manifests.own_files import locked
from portal.identity.approvers import Approvers, Decider
from portal.records.store.places import open_store, open_tables, place_of, present
from portal.records.store.records import StoreError
from portal.records.store.run_tables import RunTables
from portal.records.store.sqlite import portals_folder
from portal.runs.decisions import RunsError, decide_call
from tests.portal.peers import opened, write_manifest
from tests.portal.rows import Tables, alive, asked, begun, living, store_of, together
from tests.portal.rows import opened as tables_in
from tests.portal.runs.test_waiting import SOON, answer_of, waiting


@pytest.fixture
def manifest(tmp_path: Path, own_state: None) -> Manifest:
    return load_manifest(write_manifest(tmp_path, {}, runs=SOON), {})


@pytest.mark.parametrize("leaves_its_file", [True, False])
def test_runs_that_a_killed_portal_ran_or_parked_are_left_to_the_others(
    tmp_path: Path, leaves_its_file: bool
) -> None:
    tables, path = Tables(tmp_path), tmp_path / "runs.sqlite"
    with living(tables) as one:
        with living(tables) as killed:
            running, parked = begun(killed), begun(killed)
            asked(killed, parked)
            with one.transaction():
                one.decide(parked.id, 1, "approved", b"{}", "ann")
            assert (alive(one).left([None]), one.due(0, [None], 9)) == ({}, {})
            assert [*killed.due(0, [None], 9)] == [parked.id]
        if leaves_its_file:
            (portals_folder(path) / killed.holder).touch()
        assert ([*alive(one).left([None])], [*one.due(0, [None], 9)]) == ([running.id], [parked.id])
        assert [each.name for each in portals_folder(path).iterdir()] == [one.holder]
    assert not tables().has_replicas()


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


async def test_runs_that_are_parked_in_files_of_earlier_versions_go_on(
    tmp_path: Path, manifest: Manifest
) -> None:
    place, runs = place_of(manifest), list[str]()
    place.parent.mkdir(parents=True)
    for name in ("0.sqlite", "1.sqlite", "2.sqlite"):
        async with opened(tmp_path, runs={**SOON, "store": str(place.with_name(name))}) as portal:
            runs.append((await waiting(portal, "await portal.approve('?')"))["run_id"])
    place.with_name("3.sqlite").write_bytes(b"no store of runs" * 100)
    command = open_tables(place.with_name("0.sqlite"), None)
    with locked(place.with_name("2.sqlite.lock")), closing(command):  # the portal of 2 still runs
        async with opened(tmp_path, runs=SOON) as portal:
            with pytest.raises(RunsError), command.transaction():
                decide_call(command, runs[0], None, Decider("cli"), Approvers(), is_approved=False)
            for run in runs[:2]:
                await portal.portal.runs.decide(run, None, Decider("ann"), is_approved=True)
                assert (await answer_of(portal, run))["result"] is True
            listed = await portal.portal.runs.store.read(RunTables.listed)
            assert {row.id for row in listed} == {*runs[:2]}
    assert {path.name for path in place.parent.glob("*.sqlite")} == {"runs.sqlite", "2.sqlite", "3.sqlite"}
    async with opened(tmp_path, runs=SOON) as portal:
        await portal.portal.runs.decide(runs[2], None, Decider("ann"), is_approved=True)
        assert (await answer_of(portal, runs[2]))["result"] is True


def test_a_command_that_closes_the_file_leaves_the_portal_its_log(tmp_path: Path) -> None:
    writer, reader = tables_in(tmp_path), tables_in(tmp_path)  # as a portal has them
    count = (
        "import sqlite3, sys; file = sqlite3.connect(sys.argv[1]); "
        "print(*file.execute('SELECT count(*) FROM runs').fetchone()); file.close()"
    )
    for runs in range(2):
        # Another process, because SQLite's locks are those of a process.
        command = [sys.executable, "-c", count, str(tmp_path / "runs.sqlite")]
        told = subprocess.check_output(command, text=True)
        assert int(told) == len(reader.listed(limit=10)) == runs
        begun(writer)
    assert (tmp_path / "runs.sqlite-wal").exists()


def test_only_the_owner_of_the_file_can_read_it_and_a_key_hides_what_is_in_it(tmp_path: Path) -> None:
    file = tables_in(tmp_path, key="a key of some length")
    asked(file, begun(file, "the_script()"))
    with file.transaction():
        file.keep("kept_1", "local", b'"the result"', [])
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path
        content = path.read_bytes()
        assert not any(hidden in content for hidden in (b"the_script", b"the result", b'arguments":'))
    (tmp_path / "open").mkdir()
    tables_in(tmp_path / "open")
    for folder, key, how in (
        (".", None, "with a"),
        (".", "another key of it", "with another"),
        ("open", "k" * 20, "without"),
    ):
        with pytest.raises(StoreError, match=rf"written {how} runs\.key"):
            tables_in(tmp_path / folder, key)


def test_a_file_that_is_no_store_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    path.write_bytes(b"something else " * 1000)
    with pytest.raises(StoreError, match="damaged"):
        tables_in(tmp_path)
    assert path.read_bytes() == b"something else " * 1000
    path.unlink()
    newer = tables_in(tmp_path)
    with newer.transaction():
        newer.database.execute("UPDATE meta SET value = ? WHERE key = 'format'", (b"99",))
    with pytest.raises(StoreError, match="format 99"):
        tables_in(tmp_path)


async def test_a_full_disk_is_an_error_at_once_and_loses_nothing_that_was_written(tmp_path: Path) -> None:
    async with store_of(Tables(tmp_path)) as store:
        run = begun(file := tables_in(tmp_path))
        pages = file.database.rows("PRAGMA page_count")[0][0]
        await store.write(lambda file: file.database.rows(f"PRAGMA max_page_count = {pages + 2}"))

        def alone(file: RunTables) -> None:
            file.advance(run.id, 1, chunk=os.urandom(1 << 20))

        def beside_others(file: RunTables) -> None:
            with file.database.part():
                alone(file)

        for write in (alone, beside_others):
            with pytest.raises(StoreError, match="disk is full"):
                await store.write(write)
        await store.write(lambda file: file.advance(run.id, 1, chunk=b"small"))
        assert (await store.read(lambda file: file.load(run.id))).chunks == (b"small",)
