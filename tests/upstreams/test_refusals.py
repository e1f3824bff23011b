"""Calls that are refused as if the session or the credentials were, on a connection that serves all others."""

from contextlib import AsyncExitStack

import anyio
import pytest

from manifests.upstream_sections import HttpUpstream
from tests.upstreams.peers import DEADLINE_SECONDS, WatchedFleet, fleet_of, http_peer
from tests.upstreams.raw_http_server import RawHttpServer
from upstreams import connection
from upstreams.errors import UpstreamError
from upstreams.refusals import Looks

pytestmark = pytest.mark.anyio

CALLS = 20


async def fleet_before(server: RawHttpServer, stack: AsyncExitStack) -> WatchedFleet:
    peer = await stack.enter_async_context(http_peer(server.app))
    url = f"http://127.0.0.1:{peer.port}/mcp"
    return await stack.enter_async_context(fleet_of(raw=HttpUpstream(url=url)))


async def refused_call(fleet: WatchedFleet) -> None:
    with pytest.raises(UpstreamError):
        await fleet["raw"].call("act", {}, seconds=DEADLINE_SECONDS)


@pytest.mark.parametrize("status", [401, 404])
async def test_calls_that_are_refused_at_the_same_time_ask_together_whether_others_are_taken(
    status: int,
) -> None:
    server = RawHttpServer()
    server.refused_tools = {"act": status}
    async with AsyncExitStack() as stack:
        fleet = await fleet_before(server, stack)
        await refused_call(fleet)
        listings, server.lists_when_refused = server.listings, server.refused + CALLS
        async with anyio.create_task_group() as tasks:
            for _ in range(CALLS):
                tasks.start_soon(refused_call, fleet)
        # One for the first, and one for all who were refused meanwhile: what that one saw may have changed.
        assert (server.listings - listings, server.refused) == (2, server.lists_when_refused)
        await fleet["raw"].call("echo", {}, seconds=DEADLINE_SECONDS)
        assert server.sessions_opened == 2


async def test_upstream_that_lists_slowly_may_take_as_long_to_show_that_it_takes_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "LOOK_SECONDS", 0.0)
    server = RawHttpServer()
    server.refused_tools = {"act": 404}
    server.listing_seconds = 0.5
    async with AsyncExitStack() as stack:
        fleet = await fleet_before(server, stack)
        for _ in range(3):
            await refused_call(fleet)
        assert (server.refused, server.sessions_opened) == (4, 2)


class Look:
    """Sees what it is told, when it is told."""

    def __init__(self) -> None:
        self.looks = 0
        self.sees = True
        self.may_see = anyio.Event()

    async def __call__(self) -> bool:
        self.looks += 1
        await self.may_see.wait()
        return self.sees


async def test_what_was_seen_before_a_call_was_refused_is_not_told_to_it() -> None:
    look, told = Look(), list[bool]()
    looks = Looks(look)

    async def refused() -> None:
        told.append(await looks.takes_others(DEADLINE_SECONDS))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(refused)
        await anyio.wait_all_tasks_blocked()
        for _ in range(3):
            tasks.start_soon(refused)
        await anyio.wait_all_tasks_blocked()
        look.may_see.set()
        look.may_see = anyio.Event()
        await anyio.wait_all_tasks_blocked()
        look.sees = False
        look.may_see.set()
    assert (told, look.looks) == ([True, False, False, False], 2)


async def test_who_has_no_time_left_leaves_the_look_to_the_others() -> None:
    look = Look()
    looks = Looks(look)
    told = list[bool]()

    async def refused() -> None:
        told.append(await looks.takes_others(DEADLINE_SECONDS))

    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as impatient:
            async with anyio.create_task_group() as first:
                first.start_soon(looks.takes_others, DEADLINE_SECONDS)
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(refused)
                await anyio.wait_all_tasks_blocked()
                impatient.cancel()
        await anyio.wait_all_tasks_blocked()
        look.may_see.set()
    assert (told, look.looks) == ([True], 2)
    look.may_see = anyio.Event()
    assert not await looks.takes_others(0.0)
