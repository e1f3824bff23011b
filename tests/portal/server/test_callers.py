"""Callers over HTTP: each has its own sessions where it is known, and its turn for a worker where it is not."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from manifests.json_value import Json
from tests.portal.app.test_http_app import served
from tests.portal.peers import DEADLINE_SECONDS, Peer, never, opened, text_of, tool


class Visitor:
    """A client of the portal over HTTP."""

    def __init__(self, client: Client, seen: list[str]) -> None:
        self._client = client
        self._seen = seen

    @property
    def mcp_session(self) -> str:
        return self._seen[0]

    async def run(self, code: str, **arguments: Json) -> dict[str, Json]:
        with anyio.fail_after(DEADLINE_SECONDS):
            result = await self._client.call_tool("execute_code", {"code": code, **arguments})
        return result.structured_content

    async def read(self, code: str, **arguments: Json) -> dict[str, Json]:
        """The text that a model reads."""
        result = await self._client.call_tool("execute_code", {"code": code, **arguments})
        return json.loads(text_of(result))

    async def begin(self, code: str) -> str:
        return (await self.run(code, session="new"))["session"]

    async def error_of(self, code: str, session: str) -> tuple[str, str]:
        error = (await self.run(code, session=session))["error"]
        return error["code"], error["message"]


@asynccontextmanager
async def visitor(
    url: str, mode: str = "legacy", headers: dict[str, str] | None = None
) -> AsyncIterator[Visitor]:
    seen: list[str] = []

    async def note(response: httpx2.Response) -> None:
        seen.extend(response.headers.get_list("mcp-session-id"))

    hooks = {"response": [note]}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=DEADLINE_SECONDS, event_hooks=hooks) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield Visitor(client, seen)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_ids_are_whole_where_they_are_secrets(mode: str, tmp_path: Path) -> None:
    async with opened(tmp_path) as portal, served(portal) as origin, visitor(f"{origin}/mcp", mode) as one:
        told = await one.read("1", background=True), await one.read("'a word ' * 9000")
        assert told[0]["run"].startswith("run_") and told[1]["result"]["kept"].startswith("kept_")
        session = (await one.read("x = 1", session="new"))["session"]
        assert (await one.run("x", session=session))["result"] == 1


async def test_nobody_learns_of_a_session_of_another(tmp_path: Path) -> None:
    peer = Peer(tool("hang"), hang=never)
    async with (
        opened(tmp_path, {"store": peer}) as portal,
        served(portal) as origin,
        visitor(f"{origin}/mcp") as one,
        visitor(f"{origin}/mcp") as other,
    ):
        parked, running = await one.begin("x = 1"), await one.begin("x = 1")
        told = set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: one.run("await store.hang()", session=running))
            await peer.until(lambda: len(peer.calls) == 1)
            assert (await one.error_of("x", running))[0] == "session_busy"
            for name in (parked, running, "never-was"):
                code, message = await other.error_of("x", name)
                told.add((code, message.replace(name, "NAME")))
            tasks.cancel_scope.cancel()
        assert {code for code, _ in told} == {"unknown_session"}
        assert len(told) == 1


async def test_a_full_queue_is_told_with_its_limit_and_nothing_runs(tmp_path: Path) -> None:
    peer = Peer(tool("hang"), tool("echo"), hang=never)
    server = {"workers": 1, "queue": 0}
    async with opened(tmp_path, {"store": peer}, server=server) as portal, anyio.create_task_group() as tasks:
        tasks.start_soon(portal.run, "await store.hang()")
        await peer.until(lambda: len(peer.calls) == 1)
        answer = await portal.run("await store.echo()")
        tasks.cancel_scope.cancel()
    assert (answer["status"], answer["error"]["code"]) == ("refused", "sandbox_busy")
    assert "portal.yaml:" in answer["error"]["message"]
    assert len(peer.calls) == 1
