"""What networks do to a connection: routes that vanish, resets, servers that go and come back, wrong TLS."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.upstreams.faults.bench import Seen, bench
from tests.upstreams.faults.http_server import FaultyHttpServer
from tests.upstreams.faults.proxy import Proxy

pytestmark = pytest.mark.anyio

OK = Seen("ok", "done")
LATE = Seen("upstream_timeout", "unknown")
LOST = Seen("upstream_lost", "unknown")
DOWN = Seen("upstream_unavailable", "not_started")


async def test_vanished_route_is_noticed_and_the_upstream_comes_back_with_it(tmp_path: Path) -> None:
    async with FaultyHttpServer().serving() as server, Proxy(server.port).serving() as proxy:
        entry = {"url": proxy.url, "call_seconds": 0.5, "connect_seconds": 1}
        async with bench(tmp_path, entry) as bench_:
            assert await bench_.call("faulty.fine") == OK
            proxy.mode = "hole"
            assert await bench_.call_beside("faulty.act") == LATE
            await bench_.watched.until(lambda: bench_.watched["faulty"].state.status == "down")
            assert await bench_.call("faulty.act") == DOWN
            proxy.mode = "pass"
            await bench_.watched.until(lambda: bench_.watched["faulty"].state.status == "ready")
            assert await bench_.call("faulty.fine") == OK
            assert server.arrivals["act"] == 0


async def test_answer_that_is_cut_is_unknown(tmp_path: Path) -> None:
    async with (
        FaultyHttpServer().serving() as server,
        Proxy(server.port).serving() as proxy,
        bench(tmp_path, {"url": proxy.url}) as bench_,
    ):
        proxy.mode = "cut"
        assert await bench_.call_beside("faulty.act") == LOST
        assert server.effects["act"] == 1
        proxy.mode = "pass"
        assert await bench_.call("faulty.fine") == OK


async def test_server_that_goes_away_is_down_and_ready_when_it_is_back(tmp_path: Path) -> None:
    async with FaultyHttpServer().serving() as server, AsyncExitStack() as there:
        proxy = await there.enter_async_context(Proxy(server.port).serving())
        async with bench(tmp_path, {"url": proxy.url}) as bench_:
            await there.aclose()
            assert await bench_.call_beside("faulty.act") == DOWN
            assert bench_.watched["faulty"].state.status == "down"
            async with Proxy(server.port).serving(proxy.port):
                await bench_.watched.until(lambda: bench_.watched["faulty"].state.status == "ready")
                assert await bench_.call("faulty.act") == OK
        assert server.effects["act"] == 1
