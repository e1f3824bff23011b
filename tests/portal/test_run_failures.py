"""Whatever ends a run, its ledger says of each call whether it was not started, done, failed, or may have acted."""

from pathlib import Path

import anyio
import pytest

from tests.portal.peers import Peer, never, opened, states, tool


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
