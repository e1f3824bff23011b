"""Two replicas behind a load balancer that sends each request to the other one in turn."""

import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult

from manifests.json_value import Json
from portal.records.store import postgres as database
from portal.records.store.records import short_id
from portal.runs.journal import Journal
from tests.acceptance.portal_process import HttpPortal, http_portal
from tests.portal.peers import DEADLINE_SECONDS, Peer, opened, structured, tool, write_manifest
from tests.portal.runs.test_waiting import waiting
from tests.postgres import Postgres, postgres_server
from tests.upstreams.peers import http_peer

pytestmark = pytest.mark.servers

TOKENS = [{"token": "token-of-alice", "tenant": "a"}, {"token": "token-of-bob", "tenant": "b"}]
ALICE, BOB = ({"Authorization": f"Bearer {each['token']}"} for each in TOKENS)


class LoadBalancer(httpx2.AsyncBaseTransport):
    """Sends each request to the next replica."""

    def __init__(self, replicas: list[HttpPortal]) -> None:
        self._transport = httpx2.AsyncHTTPTransport()
        self.replicas = replicas
        self._ports = (httpx2.URL(each.url).port for each in itertools.cycle(replicas))
        self.used: list[int | None] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.used.append(next(self._ports))
        request.url = request.url.copy_with(port=self.used[-1])
        return await self._transport.handle_async_request(request)


async def yes(context: Any, params: ElicitRequestParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"decision": "approve"})


@asynccontextmanager
async def client(balancer: LoadBalancer, headers: dict[str, str], **named: Any) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(transport=balancer, headers=headers, timeout=60) as http,
        Client(
            streamable_http_client("http://127.0.0.1:1/mcp", http_client=http),
            elicitation_callback=yes,
            **named,
        ) as found,
    ):
        yield found


def write(folder: Path, postgres: Postgres, **upstreams: dict[str, Json]) -> Path:
    server: Json = {"tokens": TOKENS, "check": "off", "workers": 1}
    return write_manifest(folder, upstreams, runs={"store": postgres.new_database()}, server=server)


@pytest.fixture(scope="module")
def replicas(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[HttpPortal]]:
    manifest = write(tmp_path_factory.mktemp("replicas"), postgres)
    with ExitStack() as stack:
        yield [stack.enter_context(http_portal(manifest)) for _ in range(2)]


@pytest.fixture
def balancer(replicas: list[HttpPortal]) -> LoadBalancer:
    return LoadBalancer(replicas)


async def run(client: Client, code: str, **arguments: Json) -> dict[str, Any]:
    result = await client.call_tool("execute_code", {"code": code, **arguments})
    return result.structured_content


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_does_not_notice_that_there_are_several(balancer: LoadBalancer, mode: str) -> None:
    async with client(balancer, ALICE, mode=mode) as alice:
        begun = await run(alice, "x = 1", session="new")
        written = begun["session"], short_id(begun["session"])
        values = [(await run(alice, "x += 1\nx", session=each))["result"] for each in written * 2]
        assert values == [2, 3, 4, 5]
        assert (await run(alice, 'await portal.approve("Go on?")'))["result"] is True
        kept = await run(alice, "1 + 1", background=True)
        answer = await ended(alice, short_id(kept["run_id"]))
        assert (answer["status"], answer["result"]) == ("ok", 2)
    assert len({*balancer.used}) == 2


async def test_the_session_of_another_tenant_is_as_unknown_as_none_in_every_replica(
    balancer: LoadBalancer,
) -> None:
    async with client(balancer, ALICE) as alice, client(balancer, BOB) as bob:
        begun = await run(alice, "x = 1", session="new")
        kept = await run(alice, "'of alice'", background=True)
        for name in (str, short_id, str, short_id):
            assert (await run(bob, "x", session=name(begun["session"])))["error"]["code"] == "unknown_session"
            assert (await run(bob, "", run=name(kept["run_id"])))["error"]["code"] == "unknown_run"
        assert (await run(alice, "x", session=begun["session"]))["result"] == 1


async def test_what_a_killed_replica_ran_goes_on_and_its_sessions_are_told_to_be_gone(
    postgres: Postgres, tmp_path: Path
) -> None:
    third = anyio.Event()

    async def step(arguments: dict[str, Json]) -> CallToolResult:
        if arguments["n"] == 3:
            third.set()
        return structured({"n": arguments["n"]})

    peer = Peer(tool("step"), step=step)
    async with http_peer(peer.server.streamable_http_app()) as served:
        manifest = write(tmp_path, postgres, box={"url": f"http://127.0.0.1:{served.port}/mcp"})
        with ExitStack() as stack:
            replicas = [stack.enter_context(http_portal(manifest)) for _ in range(2)]
            async with client(LoadBalancer(replicas[:1]), ALICE) as alice:
                begun = await run(alice, "x = 1", session="new")
                code = "for n in range(40):\n    await box.step(n=n)\n    await asyncio.sleep(0.1)\nn"
                kept = await run(alice, code, background=True)
                with anyio.fail_after(DEADLINE_SECONDS):
                    await third.wait()
            replicas[0].process.kill()
            async with client(LoadBalancer(replicas[1:]), ALICE) as alice:
                answer = await ended(alice, kept["run_id"])
                assert (await run(alice, "x", session=begun["session"]))["error"]["code"] == "unknown_session"
        assert answer["error"] is None or answer["error"]["code"] == "outcome_unknown", answer
        made = [arguments["n"] for _, arguments in peer.calls]
        assert made == sorted({*made}), "none twice"


async def ended(client: Client, name: str) -> dict[str, Any]:
    """The answer of a run that goes on by itself, once it has ended."""
    with anyio.fail_after(4 * DEADLINE_SECONDS):
        while (answer := await run(client, "", run=name))["status"] == "running":  # noqa: ASYNC110
            await anyio.sleep(0.1)
    return answer


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

            async def ask() -> None:
                answers.append(await waiting(portal, "await portal.approve('?')"))

            monkeypatch.setattr(Journal, "_park", parked)
            tasks.start_soon(ask)
            with anyio.fail_after(DEADLINE_SECONDS):
                await failed.wait()
                await anyio.sleep(0.5)  # the call is read while the database is away
                monkeypatch.setattr(Journal, "_park", park)
                await anyio.to_thread.run_sync(server.start)
                while not answers:  # noqa: ASYNC110
                    await anyio.sleep(0.05)
