"""With `audit: {to: store}` all portals write one chain into their database, and no call precedes its line."""

import threading
from contextlib import closing
from pathlib import Path

import anyio
import psycopg
import pytest

from manifests.json_value import Json
from portal.records.audit.audit import Audit, StoreSink
from portal.records.audit.chain import verify
from portal.records.store.postgres import PostgresDatabase
from portal.records.store.run_tables import RunTables
from tests.portal.commands import PortalCommand
from tests.portal.peers import Peer, opened, text, tool, write_manifest
from tests.portal.rows import Tables, store_of
from tests.postgres import Postgres

KEY = "a-key-of-32-characters-0123456789"


def log(tables: RunTables, folder: Path) -> Path:
    path = folder / "exported.jsonl"
    path.write_text("".join(f"{line}\n" for line in tables.audit_lines(0)))
    return path


async def test_portals_write_one_chain_at_the_same_time(tables: Tables, tmp_path: Path) -> None:
    async def write(holder: str) -> None:
        async with store_of(tables, KEY, holder) as own:
            audit = Audit(StoreSink(own))
            for n in range(60):
                assert audit.note("e", n=n)
                await own.write(
                    lambda found: found.lock("test", "", holder)
                )  # as a run that another one asks for
            assert audit.batch is not None and await audit.batch.written()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write, "one")
        tasks.start_soon(write, "two")
    path = log(tables(KEY), tmp_path)
    assert (verify([path]).lines, verify([path]).problems) == (120, [])
    assert path.read_text().count('"replica": "one"') == 60


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("DELETE FROM audit WHERE seq > 8", True),
        ("DELETE FROM audit", True),
        ("DELETE FROM audit WHERE seq = 5", True),
        ("UPDATE audit SET line = replace(line, '\"n\": 9', '\"n\": 8') WHERE seq = 10", True),
        ("UPDATE audit SET line = line", False),
    ],
)
async def test_change_of_the_log_is_found(tables: Tables, tmp_path: Path, change: str, found: bool) -> None:
    async with store_of(tables, KEY) as own:
        audit = Audit(StoreSink(own))
        for n in range(11):
            if n == 10:
                file = tables(KEY)
                with file.transaction():
                    file.database.execute(change)
            audit.note("e", n=n)
            assert audit.batch is not None and await audit.batch.written()
        assert bool(verify([log(file, tmp_path)]).problems) is found


async def test_no_line_follows_one_that_is_none(tables: Tables, tmp_path: Path) -> None:
    async with store_of(tables, KEY) as own:
        audit, file = Audit(StoreSink(own)), tables(KEY)
        audit.note("e")
        assert audit.batch is not None and await audit.batch.written()
        with file.transaction():
            file.add_audit_lines([(2, next(file.audit_lines(0)))])
        audit.note("e")
        assert not await audit.batch.written()
        assert [*file.audit_lines(0)][1:] == [*file.audit_lines(1)]


async def test_lock_of_the_chain_is_taken_last(tables: Tables) -> None:
    order: list[str] = []
    begun, may_go_on = threading.Event(), threading.Event()
    async with store_of(tables, KEY) as own, anyio.create_task_group() as tasks:
        tasks.start_soon(own.write, lambda found: (begun.set(), may_go_on.wait(5)))
        await anyio.to_thread.run_sync(begun.wait, 5)
        for name in ("audit", "run"):
            own.submit(
                lambda found, name=name: order.append(name), lambda *ended: None, is_last=name == "audit"
            )
        may_go_on.set()
    assert order == ["run", "audit"]


@pytest.mark.servers
async def test_call_is_sent_after_its_line_is_committed(tmp_path: Path, postgres: Postgres) -> None:
    url = postgres.new_database()
    seen: list[list[str]] = []

    async def look(arguments: Json) -> Json:
        with psycopg.connect(url) as connection:
            rows = connection.execute("SELECT line::json->>'event' FROM audit ORDER BY seq").fetchall()
        seen.append([event for (event,) in rows])
        return text("")

    repeatable = {"annotations": {"idempotentHint": True}}
    up = Peer(tool("unsafe"), tool("again", **repeatable), unsafe=look, again=look)
    async with opened(tmp_path, {"up": up}, runs={"store": url, "key": KEY}, audit={"to": "store"}) as portal:
        await portal.run("await up.unsafe()\nawait up.again()")
    assert seen[0] == ["portal_started", "run_began", "call_decided"]
    assert seen[1] == [*seen[0], "call_ended", "call_decided"]
    with closing(RunTables(PostgresDatabase(url), KEY)) as file:
        assert verify([log(file, tmp_path)]).problems == []


@pytest.mark.servers
def test_log_is_exported_and_verified(portal: PortalCommand, tmp_path: Path, postgres: Postgres) -> None:
    write_manifest(tmp_path, {}, runs={"store": postgres.new_database(), "key": KEY}, audit={"to": "store"})
    (tmp_path / "script.py").write_text("1 + 1")
    for _ in range(2):
        assert portal("run", "script.py", cwd=tmp_path).returncode == 0
    exported = portal("audit", "export", cwd=tmp_path)
    (tmp_path / "log.jsonl").write_text(exported.stdout)
    assert exported.returncode == 0 and len(exported.stdout.splitlines()) == 8
    assert portal("audit", "verify", "log.jsonl", cwd=tmp_path).returncode == 0
    head = portal("audit", "head", "log.jsonl", cwd=tmp_path).stdout.strip()
    later = portal("audit", "export", "--after", head, cwd=tmp_path)
    assert (later.returncode, later.stdout) == (0, "")
