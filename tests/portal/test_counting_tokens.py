"""The tokens of an answer are first counted in a thread: what counts them takes a third of a second to load."""

import threading
from pathlib import Path

import pytest
from mcp_types import CallToolResult

from manifests.json_value import Json
from portal.budget import encoding
from tests.portal.peers import Peer, opened, text, tool

pytestmark = pytest.mark.anyio


async def fail(arguments: dict[str, Json]) -> CallToolResult:
    return text("there is no such row, and here is why: " + "it is gone, " * 20, is_error=True)


@pytest.mark.parametrize(
    "script",
    [
        "'it ' * 5000",
        "print('it ' * 5000)",
        "import json\n[{'number': n, 'text': 'word ' * 20} for n in range(200)]",
        "for n in range(100):\n    try:\n        await store.fail(n=n)\n    except ToolError:\n        pass",
    ],
)
async def test_a_first_long_answer_is_counted_in_a_thread(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, {"store": Peer(tool("fail"), fail=fail)}) as portal:
        threads = loading_threads(monkeypatch)
        await portal.client.call_tool("execute_code", {"code": script})
    assert threads != []
    assert threading.main_thread() not in threads


async def test_a_first_long_search_is_counted_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = Peer(*(tool(f"echo_number_{number}") for number in range(200)))
    async with opened(tmp_path, {"store": peer}, server={"output_tokens": 1_000}) as portal:
        threads = loading_threads(monkeypatch)
        await portal.client.call_tool("docs_search", {"query": "echo", "limit": 50, "detail": "full"})
    assert threads != []
    assert threading.main_thread() not in threads


def loading_threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Forget that it was loaded; those that load it from now on."""
    threads: list[threading.Thread] = []
    ranks = encoding._ranks

    def noting() -> dict[bytes, int]:
        threads.append(threading.current_thread())
        return ranks()

    encoding.o200k_base.cache_clear()
    monkeypatch.setattr(encoding, "_ranks", noting)
    return threads
