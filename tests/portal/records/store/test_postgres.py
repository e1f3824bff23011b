"""Postgres alone locks rows, loses connections, restarts, fails over, and has a clock of its own."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count

import anyio
import anyio.to_thread
import psycopg
import pytest

from portal.records.store import postgres as database
from portal.records.store.postgres import PostgresDatabase
from portal.records.store.records import DatabaseError, StoreError
from portal.records.store.run_tables import RunTables
from portal.runs.journal import unwritten
from tests.portal.rows import Tables, alive, begun, kinds, silent, store_of
from tests.postgres import Postgres, postgres_server
from tests.security.test_standing_approvals import decide, stands, waits

pytestmark = pytest.mark.servers


@pytest.fixture
def shared(postgres: Postgres) -> Iterator[Tables]:
    """Empty tables in Postgres. Each call is another portal's connection."""
    tables = Tables(postgres.new_database())
    yield tables
    tables.close()


@pytest.fixture(scope="module")
def own_server() -> Iterator[Postgres]:
    """A server that tests may stop. They leave it running."""
    with postgres_server() as server:
        yield server


async def test_two_portals_that_lock_each_others_runs_both_get_what_they_want(shared: Tables) -> None:
    names = [begun(shared()).id for _ in range(2)]

    def note_both(file: RunTables, names: list[str]) -> None:
        for name in names:
            file.lock_run(name)
            time.sleep(0.2)
            file.note(name, "noted")

    async with store_of(shared) as one, store_of(shared) as other:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.write, partial(note_both, names=names))
            tasks.start_soon(other.write, partial(note_both, names=names[::-1]))
        for name in names:
            assert await one.read(partial(kinds, run=name)) == ["began", "noted", "noted"]


def test_a_run_is_locked_from_the_check_of_its_epoch_until_the_commit(shared: Tables) -> None:
    first, second = shared(), shared()
    run, unlocked = begun(first), "SELECT 1 FROM runs WHERE id = ? FOR UPDATE SKIP LOCKED"
    with first.transaction():
        first.advance(run.id, run.epoch)
        with second.transaction():
            assert not second.database.rows(unlocked, run.id)
    with second.transaction():
        assert second.database.rows(unlocked, run.id)


def test_denial_ends_an_approval_that_is_being_used_at_that_moment(
    shared: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    portal, other = shared(), shared()
    run, get = begun(portal), portal.get
    for seq in (1, 2):
        waits(portal, run, seq)
    decide(portal, run.id, 1, stands=True)
    with ThreadPoolExecutor(1) as pool:

        def get_and_deny(*key: str) -> bytes | None:
            found, denial = get(*key), pool.submit(decide, other, run.id, 1, is_approved=False)
            wait([denial], 0.5)  # it is done after that, because the run is locked
            return found

        monkeypatch.setattr(portal, "get", get_and_deny)
        assert stands(portal, run.id, 2)
    assert get("stands", run.id, "git.merge") is None


async def test_what_is_written_while_the_database_restarts_is_written_once(own_server: Postgres) -> None:
    tables = Tables(own_server.new_database())
    run, numbers, is_over, written = begun(tables()), count(), anyio.Event(), list[str]()

    async def keep_writing() -> None:
        while not is_over.is_set():
            kind = f"note {next(numbers)}"
            await store.write(partial(RunTables.note, run=run.id, kind=kind), is_lasting=True)
            written.append(kind)

    async def more() -> None:
        with anyio.fail_after(60):
            before = len(written)
            while len(written) <= before + 50:  # noqa: ASYNC110  # other tasks append to it
                await anyio.sleep(0.02)

    async with store_of(tables, holder="portal") as store:
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(keep_writing)
            for mode in ("fast", "immediate"):
                await more()
                await anyio.to_thread.run_sync(own_server.restart, mode)
            await more()
            is_over.set()
        assert sorted(await store.read(partial(kinds, run=run.id))) == sorted(["began", *written])
    tables.close()


async def test_a_commit_whose_confirmation_was_lost_is_not_done_again(
    shared: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, watcher = shared(), shared()
    run = begun(file)
    execute, lost = psycopg.Connection.execute, list[int]()

    def losing(connection: object, statement: str, *values: object) -> object:
        result = execute(connection, statement, *values)  # type: ignore[call-overload]
        if statement == "COMMIT" and not lost:
            lost.append(1)
            raise psycopg.OperationalError("the connection was lost")
        return result

    monkeypatch.setattr(psycopg.Connection, "execute", losing)
    assert file.database.commit(lambda: (file.note(run.id, "noted"), "done")[1], is_lasting=True) == "done"
    assert lost and kinds(watcher, run.id) == ["began", "noted"]


async def test_a_commit_of_which_nobody_can_tell_is_told_as_such(
    own_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "PATIENCE_SECONDS", 0.5)
    tables = Tables(own_server.new_database())
    file = tables()
    run = begun(file)

    def stop() -> None:
        file.note(run.id, "noted")
        own_server.stop("immediate")

    with pytest.raises(DatabaseError) as error:
        file.database.commit(stop, is_lasting=True)
    assert error.value.is_in_doubt
    told = unwritten(error.value, "The run did not start")
    assert "as far as is known" in told.message
    own_server.start()
    tables.close()


async def test_a_database_that_is_gone_for_long_is_an_error_that_says_so(
    own_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "PATIENCE_SECONDS", 0.5)
    tables = Tables(own_server.new_database())
    run = begun(tables())
    async with store_of(tables) as store:
        await anyio.to_thread.run_sync(own_server.stop, "immediate")
        for doing in (store.write, store.read):
            with pytest.raises(StoreError, match="Is it running") as error:
                await doing(partial(RunTables.note, run=run.id, kind="lost"))
            assert f":{own_server.port}/" in str(error.value)
        await anyio.to_thread.run_sync(own_server.start)
        with anyio.fail_after(20):
            found = False
            while not found:
                with suppress(StoreError):
                    await store.write(partial(RunTables.note, run=run.id, kind="found"))
                    found = True
    tables.close()


async def test_a_row_that_cannot_be_written_spoils_nothing_of_others(shared: Tables) -> None:
    run, notes = begun(shared()), ["note 1", "with NUL \0", "note 2", "note 3"]
    async with store_of(shared) as store:
        writes = [store.write(partial(RunTables.note, run=run.id, kind=kind)) for kind in notes]
        failures = [type(each) for each in await asyncio.gather(*writes, return_exceptions=True) if each]
        assert failures == [DatabaseError]
        assert await store.read(partial(kinds, run=run.id)) == ["began", "note 1", "note 2", "note 3"]


def test_times_are_those_of_the_database(shared: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    right = time.time()
    monkeypatch.setattr(time, "time", lambda: right + 60)
    assert abs(shared().now() - right) < 30


@pytest.mark.parametrize("password", ["se?cret", "se cret", "se%zzcret"])
def test_a_password_that_is_not_encoded_is_told_without_showing_it(password: str) -> None:
    with pytest.raises(StoreError, match="%40") as error:
        PostgresDatabase(f"postgres://user:{password}@127.0.0.1:1/name")
    assert "user:se" not in str(error.value)
    assert "cret" not in str(error.value)


def test_what_is_committed_is_on_the_disk_whatever_the_database_sets(shared: Tables) -> None:
    file = shared()
    with file.transaction():
        name = file._value("SELECT current_database()")
        file._execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    assert shared()._value("SHOW synchronous_commit") == "on"


async def test_a_portal_finds_the_database_that_may_be_written_again(shared: Tables) -> None:
    run, becomes_standby = begun(shared()), "SELECT set_config('default_transaction_read_only', 'on', false)"
    async with store_of(shared) as store:
        await store.write(lambda file: file._rows(becomes_standby))
        await store.write(partial(RunTables.note, run=run.id, kind="noted"))
        assert await store.read(partial(kinds, run=run.id)) == ["began", "noted"]


def test_a_write_that_stopped_for_too_long_holds_nobody_up_and_is_done_again(
    shared: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_SETTINGS", "SET idle_in_transaction_session_timeout = '100ms'")
    stopped, other = shared(), shared()
    run = begun(stopped)
    others = iter([partial(other.note, run.id, "of the other")])

    def write() -> None:
        stopped.lock_run(run.id)
        for note in others:
            with other.transaction():
                other.lock_run(run.id)  # it waits until the first transaction is ended
                note()
        stopped.note(run.id, "noted")

    stopped.database.commit(write, is_lasting=True)
    assert kinds(other, run.id) == ["began", "of the other", "noted"]


@contextmanager
def swallowing(server: Postgres, file: RunTables) -> Iterator[None]:
    """Meanwhile the database, and what accepts connections to it, take what is sent and answer nothing."""
    first = (server.folder / "data/postmaster.pid").read_text().split()[0]
    stopped = [int(first), file.database.rows("SELECT pg_backend_pid()")[0][0]]
    for process in stopped:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in stopped:
            os.kill(process, signal.SIGCONT)


def test_a_database_that_is_silent_is_an_error_and_no_wait_for_ever(
    postgres: Postgres, shared: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("_ANSWER_SECONDS", 0.5), ("_CONNECT_SECONDS", 1), ("PATIENCE_SECONDS", 0.5)):
        monkeypatch.setattr(database, name, seconds)
    file = shared()
    run = begun(file)
    with swallowing(postgres, file):
        with pytest.raises(StoreError):
            file.database.commit(partial(file.note, run.id, "lost"), is_lasting=True)
        with pytest.raises(StoreError):
            file.log_after(0)
    with suppress(StoreError):  # it is silent for a moment
        file.log_after(0)
    monkeypatch.setattr(database, "PATIENCE_SECONDS", 10)
    file.database.commit(partial(file.note, run.id, "found"), is_lasting=True)
    assert kinds(file, run.id) == ["began", "found"]


def test_a_portal_whose_machine_was_suspended_is_alive_with_its_next_sign(
    shared: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    portal, other = alive(shared(holder="portal")), alive(shared(holder="other"))
    run = begun(portal)
    silent(other, "portal")
    own = portal.database
    assert isinstance(own, PostgresDatabase)
    at, theirs = own._clock
    monkeypatch.setattr(own, "_clock", (at, theirs - 60))  # its clock stood still
    assert [*other.left([None])] == [run.id]
    alive(portal)
    assert not other.left([None])


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_encoding_of_the_database_does_not_matter(postgres: Postgres, encoding: str) -> None:
    tables = Tables(postgres.new_database(encoding))
    begun(tables(holder="first"), code="print('é')", owner="zoë")
    [found] = tables(holder="second").listed(limit=1)
    assert (found.title, found.owner) == ("print('é')", "zoë")
    tables.close()
