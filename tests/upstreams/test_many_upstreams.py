"""Five hundred upstreams that start at once: all that can be reached are, and nobody is held up by the others."""

from pathlib import Path

import anyio
import pytest

from manifests.upstream_sections import HttpUpstream, StdioUpstream
from tests.upstreams.faults.http_server import FaultyHttpServer
from tests.upstreams.peers import DEADLINE_SECONDS, closed_port, fleet_of, raw_server
from upstreams.supervisor import STARTED_AT_ONCE, StartTurns

pytestmark = pytest.mark.anyio


@pytest.mark.timeout(400)
async def test_five_hundred_configurations_start_at_once(tmp_path: Path) -> None:
    server = FaultyHttpServer()
    async with server.serving():
        specs: dict[str, HttpUpstream | StdioUpstream] = {
            **{f"hanging{n}": HttpUpstream(url=url_of_silence(), connect_seconds=0.5) for n in range(5)},
            **{f"well{n}": HttpUpstream(url=server.url) for n in range(150)},
            **{f"child{n}": raw_server() for n in range(5)},
            **{f"refused{n}": HttpUpstream(url=f"http://127.0.0.1:{closed_port()}/mcp") for n in range(170)},
            **{f"absent{n}": StdioUpstream(command="no-such-command") for n in range(170)},
        }
        async with fleet_of(settled=False, **specs) as fleet:
            with anyio.fail_after(DEADLINE_SECONDS * 3):
                await fleet.fleet["well0"].call("fine", {}, seconds=60)
                while await fleet.fleet.settled(DEADLINE_SECONDS):
                    pass
            statuses = {upstream.name: upstream.state.status for upstream in fleet.fleet}
    assert len(statuses) == 500
    for name, status in statuses.items():
        assert status == ("ready" if name.startswith(("well", "child")) else "down"), name
    assert len(server.sessions) == 150


def url_of_silence() -> str:
    """An address that nothing answers from: packets to it are dropped or refused, depending on the machine."""
    return "http://192.0.2.1:9/mcp"


async def test_no_more_than_so_many_start_at_the_same_time() -> None:
    starts = StartTurns()
    here = most = 0

    async def start() -> None:
        nonlocal here, most
        end = await starts.begin()
        here += 1
        most = max(most, here)
        for _ in range(STARTED_AT_ONCE * 8):
            await anyio.lowlevel.checkpoint()
        here -= 1
        end()

    async with anyio.create_task_group() as tasks:
        for _ in range(STARTED_AT_ONCE * 4):
            tasks.start_soon(start)
    assert most == STARTED_AT_ONCE


async def test_those_that_hang_keep_their_turn_only_for_a_while() -> None:
    starts = StartTurns()
    with anyio.fail_after(DEADLINE_SECONDS):
        for _ in range(STARTED_AT_ONCE * 3):
            await starts.begin()  # and never end
