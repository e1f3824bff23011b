"""Upstreams start, fail and come back without touching each other."""

import os
from pathlib import Path

import anyio
import pytest

from manifests.portal_manifest import HttpUpstream, StdioUpstream
from tests.upstreams.peers import DEADLINE_SECONDS, fleet_of, http_peer, raw_server, text_of
from tests.upstreams.raw_http_server import RawHttpServer
from upstreams.errors import UpstreamError, UpstreamUnavailableError
from upstreams.upstream import Upstream

pytestmark = pytest.mark.anyio


async def test_a_hanging_and_a_dead_upstream_do_not_delay_a_good_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "never")
    specs = {
        "hanging": raw_server(waits_for=str(tmp_path / "never")),
        "dead": raw_server(exits_with=3),
        "absent": StdioUpstream(command="no-such-command"),
        "good": raw_server(),
    }
    async with fleet_of(settled=False, **specs) as fleet:
        result = await fleet["good"].call("echo", {"a": 1}, seconds=DEADLINE_SECONDS)
        assert text_of(result) == {"a": 1}
        await fleet.until(lambda: fleet["dead"].state.status == "down")
        assert [upstream.name for upstream in await fleet.fleet.settled(0)] == ["hanging"]
        assert [upstream.name for upstream in await fleet.fleet.settled(0, ["good", "dead"])] == []


async def test_call_waits_for_an_upstream_that_is_starting(tmp_path: Path) -> None:
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    results = []
    async with fleet_of(settled=False, slow=raw_server(waits_for=str(fifo))) as fleet:

        async def call() -> None:
            results.append(await fleet["slow"].call("echo", {}, seconds=DEADLINE_SECONDS))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await anyio.to_thread.run_sync(fifo.write_text, "go")
    assert len(results) == 1


async def test_down_upstream_answers_at_once_and_says_why_and_since_when() -> None:
    async with fleet_of(absent=StdioUpstream(command="uvx-of-nowhere")) as fleet:
        with pytest.raises(UpstreamUnavailableError) as caught:
            await fleet["absent"].call("echo", {}, seconds=DEADLINE_SECONDS)
        assert "'uvx-of-nowhere' was not found on PATH" in str(caught.value)
        assert f"{fleet['absent'].state.since:%Y-%m-%d}" in str(caught.value)
        assert caught.value.outcome == "not_started"


async def test_upstream_that_keeps_crashing_is_down_and_comes_back() -> None:
    async with fleet_of(server=raw_server()) as fleet:
        for _ in range(2):
            with pytest.raises(UpstreamError):
                await fleet["server"].call("crash", {}, seconds=DEADLINE_SECONDS)
        await fleet.until(lambda: ("server", "down") in fleet.history)
        await fleet.until(lambda: fleet["server"].state.status == "ready")
        await fleet["server"].call("echo", {}, seconds=DEADLINE_SECONDS)


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_call_under_way_when_the_fleet_closes_is_unknown(transport: str) -> None:
    server = RawHttpServer()
    server.hangs_on_calls = True
    outcomes: list[str] = []

    async def call(upstream: Upstream, tool: str) -> None:
        try:
            await upstream.call(tool, {}, seconds=DEADLINE_SECONDS)
        except UpstreamError as error:
            outcomes.append(error.outcome)

    async with http_peer(server.app) as peer, anyio.create_task_group() as callers:
        http = HttpUpstream(url=f"http://127.0.0.1:{peer.port}/mcp")
        async with fleet_of(one=http if transport == "http" else raw_server()) as fleet:
            callers.start_soon(call, fleet["one"], "hang")
            if transport == "http":
                await server.is_hanging.wait()
            else:
                await anyio.lowlevel.checkpoint()  # the caller goes first
                await fleet["one"].call("echo", {}, seconds=DEADLINE_SECONDS)  # it reads line by line
    assert outcomes == ["unknown"]
