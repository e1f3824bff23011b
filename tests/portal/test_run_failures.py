"""Whatever ends a run, its ledger says of each call whether it was not started, done, failed, or may have acted."""

from pathlib import Path

import anyio
import pytest

from manifests.json_value import Json
from tests.portal.peers import DEADLINE_SECONDS, Opened, Peer, never, opened, raw, raw_tools, states, tool

pytestmark = pytest.mark.anyio


async def test_an_exception_ends_the_calls_in_flight_and_tells_they_may_have_acted(tmp_path: Path) -> None:
    peer = Peer(tool("echo"), tool("hang"), hang=never)
    async with opened(tmp_path, {"store": peer}) as portal:
        code = (
            "import asyncio\n"
            "call = asyncio.create_task(store.hang())\n"
            "await asyncio.sleep(0)\n"
            "await store.echo()\n"
            "raise ValueError('enough')"
        )
        answer = await portal.run(code)
        await peer.until(lambda: peer.cancelled == ["hang"])
    assert answer["error"]["code"] == "script_error"
    assert states(answer) == [("store.hang", "unknown"), ("store.echo", "done")]
    assert "1 done, 1 unknown" in answer["error"]["hint"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_request_that_its_client_cancels_ends_its_run_and_its_calls(
    tmp_path: Path, mode: str
) -> None:
    peer = Peer(tool("echo"), tool("hang"), hang=never)
    async with opened(tmp_path, {"store": peer}, mode=mode) as portal, anyio.create_task_group() as tasks:
        tasks.start_soon(portal.run, "await store.hang()\nawait store.echo(after=True)")
        await peer.until(lambda: bool(peer.calls))
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await peer.until(lambda: peer.cancelled == ["hang"])
            assert await portal.result_of("await store.echo(a=1)") == {"a": 1}
    assert peer.calls == [("hang", {}), ("echo", {"a": 1})]


async def test_an_upstream_that_dies_during_a_call_leaves_it_unknown_and_comes_back(tmp_path: Path) -> None:
    upstream = raw(tools=raw_tools("crash", "echo"))
    async with opened(tmp_path, {"raw": upstream}) as portal:
        answer = await portal.run("await raw.echo()\nawait raw.crash()")
        assert answer["error"]["code"] == "upstream_lost"
        assert states(answer) == [("raw.echo", "done"), ("raw.crash", "unknown")]
        assert await again(portal, "await raw.echo(a=1)") == {"a": 1}


async def again(portal: Opened, code: str) -> Json:
    """The value of a script, as soon as the upstream it needs is back."""
    with anyio.fail_after(DEADLINE_SECONDS):
        while (answer := await portal.run(code))["status"] != "ok":
            assert answer["error"]["code"] == "upstream_unavailable", answer
            assert all(row["state"] == "not_started" for row in answer["calls"])
    return answer["result"]
