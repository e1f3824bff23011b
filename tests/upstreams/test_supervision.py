"""Upstreams start, stop, fail and come back, and their callers learn about it."""

import os
from pathlib import Path

import anyio
import pytest
import yaml

from manifests.loader import load_manifest
from manifests.portal_manifest import HttpUpstream, StdioUpstream
from tests.upstreams.peers import (
    DEADLINE_SECONDS,
    WatchedFleet,
    fleet_at,
    fleet_of,
    http_peer,
    raw_server,
    text_of,
)
from tests.upstreams.raw_http_server import RawHttpServer
from upstreams.errors import UpstreamAnswerError, UpstreamError
from upstreams.tools import ListingStore


async def test_a_hanging_and_a_dead_upstream_do_not_delay_a_good_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "never")
    specs = {
        "hanging": raw_server(waits_for=str(tmp_path / "never")),
        "dead": raw_server(exits_with=255),
        "absent": StdioUpstream(command="no-such-command"),
        "good": raw_server(),
    }
    async with fleet_of(settled=False, **specs) as fleet:
        result = await fleet["good"].call("echo", {"a": 1}, seconds=DEADLINE_SECONDS)
        assert text_of(result) == {"a": 1}
        await fleet.until(lambda: "exited with status 255" in fleet["dead"].state.detail)
        assert [upstream.name for upstream in await fleet.fleet.settled(0)] == ["hanging"]
        assert [upstream.name for upstream in await fleet.fleet.settled(0, ["good", "dead"])] == []


async def test_upstream_that_keeps_crashing_is_down_and_comes_back() -> None:
    async with fleet_of(one=raw_server()) as fleet:
        for _ in range(2):
            with pytest.raises(UpstreamAnswerError):  # an answer that nobody can read is no sign of health
                await fleet.call("raw", {"result": '{"resultType": "odd"}'})
            with pytest.raises(UpstreamError):
                await fleet.call("crash")
        await fleet.until(lambda: ("one", "down") in fleet.history)
        await fleet.until(lambda: fleet.one.state.status == "ready")
        await fleet.call("echo")


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_call_under_way_when_the_fleet_closes_is_unknown(transport: str) -> None:
    server = RawHttpServer()
    server.hangs_on_calls = True
    outcomes: list[str] = []

    async def call(fleet: WatchedFleet) -> None:
        try:
            await fleet.call("hang")
        except UpstreamError as error:
            outcomes.append(error.outcome)

    opening = fleet_at(server.app) if transport == "http" else fleet_of(one=raw_server())
    async with anyio.create_task_group() as callers, opening as fleet:
        callers.start_soon(call, fleet)
        if transport == "http":
            await server.is_hanging.wait()
        else:
            await anyio.lowlevel.checkpoint()  # the caller goes first
            await fleet.call("echo")  # it reads line by line
    assert outcomes == ["unknown"]


def lazy(folder: Path, **behaviour: object) -> StdioUpstream:
    return raw_server(pid_file=str(folder / "starts"), **behaviour).model_copy(update={"start": "lazy"})


def starts(folder: Path) -> int:
    return len((folder / "starts").read_text().splitlines())


def tools(fleet: WatchedFleet) -> list[str]:
    return [tool.name for tool in fleet.one.tools]


async def test_lazy_upstream_is_started_to_be_listed_and_by_its_first_call(tmp_path: Path) -> None:
    for _ in range(2):
        async with fleet_of(listings=tmp_path / "kept", one=lazy(tmp_path)) as fleet:
            assert (tools(fleet), fleet.one.state.status, starts(tmp_path)) == (["echo"], "idle", 1)
    async with fleet_of(listings=tmp_path / "kept", one=lazy(tmp_path)) as fleet:
        assert (fleet.one.server, fleet.one.instructions) == ("raw 1", "be kind")
        assert text_of(await fleet.call("echo", {"a": 1})) == {"a": 1}
        assert (fleet.one.state.status, starts(tmp_path)) == ("ready", 2)


async def test_tools_that_changed_while_nobody_asked_are_seen_at_the_first_call(tmp_path: Path) -> None:
    listed, listings = tmp_path / "tools", tmp_path / "kept"
    spec = lazy(tmp_path, tools_file=str(listed))
    listed.write_text('[{"name": "echo"}, {"name": "old"}]')
    async with fleet_of(listings=listings, one=spec):
        pass
    listed.write_text('[{"name": "echo"}, {"name": "new"}]')
    async with fleet_of(listings=listings, one=spec) as fleet:
        assert tools(fleet) == ["echo", "old"]
        await fleet.call("echo")
        assert tools(fleet) == ["echo", "new"]
    async with fleet_of(listings=listings, one=spec) as fleet:
        assert tools(fleet) == ["echo", "new"]


async def test_lazy_upstream_that_is_gone_says_so_and_is_back_later(tmp_path: Path) -> None:
    server, listings = RawHttpServer(), tmp_path / "kept"
    async with http_peer(server.app) as peer:
        spec = HttpUpstream(url=f"http://127.0.0.1:{peer.port}/mcp", start="lazy")
        async with fleet_of(listings=listings, one=spec):
            pass
    async with fleet_of(listings=listings, one=spec) as fleet:
        with pytest.raises(UpstreamError) as caught:
            await fleet.call("echo")
        assert (caught.value.outcome, fleet.one.state.status) == ("not_started", "down")
        async with http_peer(server.app, peer.port):
            await fleet.until(lambda: fleet.one.state.status == "idle")
            await fleet.call("echo")


async def test_idle_child_is_stopped_and_started_again_by_the_next_call(tmp_path: Path) -> None:
    spec = raw_server(pid_file=str(tmp_path / "starts")).model_copy(update={"idle_stop_seconds": 0.05})
    async with fleet_of(one=spec) as fleet:
        await fleet.until(lambda: fleet.one.state.status == "idle")
        assert tools(fleet) == ["echo"]
        await fleet.call("echo")
        await fleet.until(lambda: fleet.history[-1] == ("one", "idle"))
    assert starts(tmp_path) == 2
    seen = [status for _, status in fleet.history]
    assert seen == ["ready", "idle", "starting", "ready", "idle", "stopped"]


@pytest.mark.parametrize(("env", "count"), [("${DOOR}", 1), ("{door}", 2)], ids=["a reference", "a value"])
def test_listing_is_of_its_section_as_it_is_written(tmp_path: Path, env: str, count: int) -> None:
    """So a changed one is listed anew, and what a reference fills in is in no hash."""
    path, files = tmp_path / "portal.yaml", set()
    for door in ("1234", "4321"):
        entry = {"command": "server", "env": {"DOOR": env.replace("{door}", door)}}
        path.write_text(yaml.safe_dump({"upstreams": {"one": entry}}))
        written = load_manifest(path, {"DOOR": door}).section("one")
        files.add(ListingStore(tmp_path / "listings", "one", tmp_path, written).file)
    assert len(files) == count
