"""A portal that shares its store, and whose sign of life was late."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from mcp_types import CallToolResult

from manifests.json_value import Json
from portal.records.store import postgres as database
from portal.records.store.run_tables import RunTables
from portal.records.store.tables import LEASE_SECONDS
from portal.runs import service
from portal.runs.journal import Journal
from tests.acceptance.portal_process import http_portal
from tests.portal.peers import DEADLINE_SECONDS, Opened, Peer, opened, structured, tool, write_manifest
from tests.portal.runs.rows import Tables
from tests.portal.runs.test_waiting import waiting
from tests.postgres import Postgres, postgres_server

pytestmark = [pytest.mark.anyio, pytest.mark.servers]

CODE = "for n in range(3):\n    await git.push(n=n)\nn"


@pytest.mark.parametrize("is_taken", [False, True])
async def test_a_portal_that_was_silent_goes_on_with_a_run_unless_another_one_has_it(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_taken: bool
) -> None:
    monkeypatch.setattr(service, "BEAT_SECONDS", 1000)
    url = postgres.new_database()
    other, portals = Tables(url)(holder="other"), list[Opened]()

    async def push(arguments: dict[str, Json]) -> CallToolResult:
        if arguments["n"] == 1:
            portals[0].portal.runs._beaten -= LEASE_SECONDS + 1
            if is_taken:
                take_over(other)
        return structured({"n": arguments["n"]})

    peer = Peer(tool("push"), push=push)
    sections: dict[str, Json] = {"runs": {"store": url}, "server": {"check": "off"}}
    async with opened(tmp_path, {"git": peer}, **sections) as portal:
        portals.append(portal)
        with anyio.fail_after(20):
            result = await portal.client.call_tool("execute_code", {"code": CODE})
    answer = result.structured_content
    assert isinstance(answer, dict)
    made = [arguments["n"] for _, arguments in peer.calls]
    assert (answer["status"], made) == (("running", [0, 1]) if is_taken else ("ok", [0, 1, 2]))
    other.close()


def take_over(file: RunTables) -> None:
    with file.transaction():
        file.database.execute("UPDATE replicas SET seen = seen - ?", (LEASE_SECONDS + 1,))
        file.beat("")
        (run,) = file.left([None])
        file.claim(run)


async def test_a_replica_that_listens_can_be_reached_by_the_others_at_once(
    postgres: Postgres, tmp_path: Path
) -> None:
    url = postgres.new_database()
    manifest = write_manifest(tmp_path, {}, runs={"store": url})
    with http_portal(manifest) as portal:
        found = Tables(url)().database.rows("SELECT url FROM replicas")
        assert found == [(portal.origin,)]


async def test_a_script_that_waits_for_a_person_survives_a_database_that_is_away_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "PATIENCE_SECONDS", 0.2)
    failed = anyio.Event()
    park = Journal._park

    async def parked(journal: Journal, waiting: Sequence[int]) -> bool:
        await anyio.to_thread.run_sync(server.stop, "fast")
        is_parked = await park(journal, waiting)
        failed.set()
        return is_parked

    with postgres_server() as server:
        runs: Json = {"store": server.new_database(), "park_after_seconds": 1}
        async with opened(tmp_path, runs=runs) as portal, anyio.create_task_group() as tasks:
            answers: list[dict[str, Json]] = []

            async def run() -> None:
                answers.append(await waiting(portal, "await portal.approve('?')"))

            monkeypatch.setattr(Journal, "_park", parked)
            tasks.start_soon(run)
            with anyio.fail_after(DEADLINE_SECONDS):
                await failed.wait()
                await anyio.sleep(0.5)  # the call is read while the database is away
                monkeypatch.setattr(Journal, "_park", park)
                await anyio.to_thread.run_sync(server.start)
                while not answers:  # noqa: ASYNC110
                    await anyio.sleep(0.05)
