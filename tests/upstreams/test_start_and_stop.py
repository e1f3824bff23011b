"""When upstreams are started and stopped: at once or at the first call, and after a while without one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from manifests.portal_manifest import HttpUpstream, StdioUpstream
from tests.upstreams.peers import DEADLINE_SECONDS, fleet_of, http_peer, raw_server, text_of
from tests.upstreams.raw_http_server import RawHttpServer
from upstreams.errors import UpstreamError

pytestmark = pytest.mark.anyio

AT_ONCE = 0.05


def lazy(folder: Path, **behaviour: object) -> StdioUpstream:
    spec = raw_server(pid_file=str(folder / "starts"), **behaviour)
    return spec.model_copy(update={"start": "lazy"})


def starts(folder: Path) -> int:
    file = folder / "starts"
    return len(file.read_text().splitlines()) if file.exists() else 0


@pytest.fixture
def listings(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "state" / "listings"


async def test_lazy_upstream_that_was_never_listed_is_started_once_to_be_listed(
    tmp_path: Path, listings: Path
) -> None:
    async with fleet_of(listings=listings, one=lazy(tmp_path)) as fleet:
        assert [tool.name for tool in fleet["one"].tools] == ["echo"]
        assert (fleet["one"].state.status, starts(tmp_path)) == ("idle", 1)


async def test_lazy_upstream_that_is_known_is_started_by_its_first_call(
    tmp_path: Path, listings: Path
) -> None:
    async with fleet_of(listings=listings, one=lazy(tmp_path)):
        pass
    async with fleet_of(listings=listings, one=lazy(tmp_path)) as fleet:
        assert [tool.name for tool in fleet["one"].tools] == ["echo"]
        assert (fleet["one"].server, fleet["one"].instructions) == ("raw 1", "be kind")
        assert (fleet["one"].state.status, starts(tmp_path)) == ("idle", 1)
        assert text_of(await fleet["one"].call("echo", {"a": 1}, seconds=DEADLINE_SECONDS)) == {"a": 1}
        assert (fleet["one"].state.status, starts(tmp_path)) == ("ready", 2)


async def test_tools_that_changed_while_nobody_asked_are_seen_at_the_first_call(
    tmp_path: Path, listings: Path
) -> None:
    spec = lazy(tmp_path, tools_file=str(tmp_path / "tools"))
    (tmp_path / "tools").write_text('[{"name": "echo"}, {"name": "old"}]')
    async with fleet_of(listings=listings, one=spec):
        pass
    (tmp_path / "tools").write_text('[{"name": "echo"}, {"name": "new"}]')
    async with fleet_of(listings=listings, one=spec) as fleet:
        assert [tool.name for tool in fleet["one"].tools] == ["echo", "old"]
        await fleet["one"].call("echo", {}, seconds=DEADLINE_SECONDS)
        assert [tool.name for tool in fleet["one"].tools] == ["echo", "new"]
    async with fleet_of(listings=listings, one=spec) as fleet:
        assert [tool.name for tool in fleet["one"].tools] == ["echo", "new"]


async def test_lazy_upstream_that_is_gone_says_so_and_is_back_later(tmp_path: Path, listings: Path) -> None:
    server = RawHttpServer()
    async with http_peer(server.app) as peer:
        spec = HttpUpstream(url=f"http://127.0.0.1:{peer.port}/mcp", start="lazy")
        async with fleet_of(listings=listings, one=spec):
            pass
    async with fleet_of(listings=listings, one=spec) as fleet:
        with pytest.raises(UpstreamError) as caught:
            await fleet["one"].call("echo", {}, seconds=DEADLINE_SECONDS)
        assert (caught.value.outcome, fleet["one"].state.status) == ("not_started", "down")
        async with http_peer(server.app, peer.port):
            await fleet.until(lambda: fleet["one"].state.status == "idle")
            await fleet["one"].call("echo", {}, seconds=DEADLINE_SECONDS)


async def test_idle_child_is_stopped_and_started_again_by_the_next_call(tmp_path: Path) -> None:
    spec = raw_server(pid_file=str(tmp_path / "starts")).model_copy(update={"idle_stop_seconds": AT_ONCE})
    async with fleet_of(one=spec) as fleet:
        await fleet.until(lambda: fleet["one"].state.status == "idle")
        assert [tool.name for tool in fleet["one"].tools] == ["echo"]
        await fleet["one"].call("echo", {}, seconds=DEADLINE_SECONDS)
        await fleet.until(lambda: fleet.history[-1] == ("one", "idle"))
    assert starts(tmp_path) == 2
    assert [status for _, status in fleet.history] == [
        "ready",
        "idle",
        "starting",
        "ready",
        "idle",
        "stopped",
    ]
