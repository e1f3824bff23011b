"""Each limit of the manifest ends or refuses what goes beyond it, and says which it was and where it is set."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mcp_types import CallToolResult

from manifests.json_value import Json
from tests.portal.peers import Opened, Peer, never, opened, states, text, tool

LIMITS = {
    "wall_seconds": 20,
    "cpu_seconds": 0.5,
    "memory_mib": 64,
    "tool_calls": 5,
    "parallel_calls": 2,
    "argument_bytes": 1_000,
    "outcome_bytes": 2_000,
    "result_bytes": 3_000,
    "stdout_bytes": 400,
}


async def flood(arguments: dict[str, Json]) -> CallToolResult:
    return text("y" * 5_000)


@pytest.fixture(scope="module")
def peer() -> Peer:
    return Peer(tool("echo"), tool("flood"), tool("hang"), flood=flood, hang=never)


@pytest.fixture(scope="module")
async def portal(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    folder = tmp_path_factory.mktemp("run_limits")
    async with opened(folder, {"store": peer}, capabilities={"limits": LIMITS}) as portal:
        yield portal


def assert_told(message: str, limit: str, folder: Path) -> None:
    """The message names the limit, its value and the place in the file."""
    lines = (folder / "portal.yaml").read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if text.strip().startswith(f"{limit}:"))
    assert limit in message
    assert f"{LIMITS[limit]:,g}" in message or f"{LIMITS[limit]:g}" in message, message
    assert f"portal.yaml:{line}:" in message, message


async def test_the_wall_limit_ends_a_run_and_keeps_its_ledger(tmp_path: Path) -> None:
    peer = Peer(tool("echo"), tool("hang"), hang=never)
    limits = {"wall_seconds": 0.5, "parallel_calls": 2}
    async with opened(tmp_path, {"store": peer}, capabilities={"limits": limits}) as portal:
        code = (
            "import asyncio\nawait store.echo()\nawait asyncio.gather(*[store.hang(i=i) for i in range(4)])"
        )
        answer = await portal.run(code)
        await peer.until(lambda: len(peer.cancelled) == 2)
        assert await portal.result_of("await store.echo(a=1)") == {"a": 1}
    assert (answer["status"], answer["error"]["code"]) == ("error", "wall_limit")
    assert "portal.yaml:" in answer["error"]["message"]
    assert states(answer) == [
        ("store.echo", "done"),
        ("store.hang", "unknown"),
        ("store.hang", "unknown"),
        ("store.hang", "not_started"),
        ("store.hang", "not_started"),
    ]


async def test_a_shorter_timeout_is_kept_and_a_longer_one_lowered_and_told(portal: Opened) -> None:
    answer = await portal.run("await store.hang()", timeout_seconds=0.3)
    assert answer["error"]["code"] == "wall_limit"
    assert states(answer) == [("store.hang", "unknown")]
    answer = await portal.run("1", timeout_seconds=1e308)
    assert answer["status"] == "ok"
    assert_told(answer["notices"][0], "wall_seconds", portal.portal.manifest.folder)


async def test_a_call_beyond_a_limit_stands_in_the_ledger(portal: Opened) -> None:
    answer = await portal.run("for i in range(7):\n    await store.echo(i=i)")
    assert [row["state"] for row in answer["calls"]] == ["done"] * 5 + ["refused"]
    answer = await portal.run("await store.echo(x='x' * 2_000)")
    assert states(answer) == [("store.echo", "refused")]
    answer = await portal.run("await store.flood()")
    assert states(answer) == [("store.flood", "done")]
    assert answer["calls"][0]["error"]["code"] == "outcome_limit"
