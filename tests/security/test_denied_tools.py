"""No way of writing a call leads to a tool that is not granted, and the ledger tells of every attempt."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.portal.peers import Opened, Peer, opened, states, tool
from tests.security.hostile import RAW_HOST

pytestmark = pytest.mark.anyio

WAYS = [
    "await up.wipe()",
    "await getattr(up, 'wi' + 'pe')()",
    "import importlib\nawait importlib.import_module('tools.up').wipe()",
    "await (lambda: up.__getattr__('wi' + 'pe'))()()",
    "call = up.read()\ncall._function = 'up.wipe'\nawait call",
    RAW_HOST + "host.exchange('1 up.wipe {}', 2000)\n1 / 0",
    RAW_HOST + "host.exchange('1 up.read {}\\n2 up.wipe {}', 2000)\n1 / 0",
    RAW_HOST + "host.exchange('1 up.wi\\\\u0070e {}', 2000)\n1 / 0",
    RAW_HOST + "host.exchange('1 UP.WIPE {}', 2000)\n1 / 0",
    RAW_HOST + "host.exchange('1 up.wipe-out {}', 2000)\n1 / 0",
    RAW_HOST + "host.exchange('1 up.\u0077\u0131pe {}', 2000)\n1 / 0",
    RAW_HOST + "host.exchange('1 tools.up.wipe {}', 2000)\n1 / 0",
]


@pytest.fixture(scope="module")
def peer() -> Peer:
    return Peer(tool("read"), tool("wipe"), tool("wipe-out"))


@pytest.fixture(scope="module")
async def portal(
    anyio_backend: str, peer: Peer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Opened]:
    folder: Path = tmp_path_factory.mktemp("denied")
    capabilities = {"tools": {"deny": ["up.wipe*"]}}
    async with opened(folder, {"up": peer}, capabilities=capabilities, server={"check": "off"}) as portal:
        yield portal


@pytest.mark.parametrize("script", WAYS)
async def test_denied_tool_is_never_reached(portal: Opened, peer: Peer, script: str) -> None:
    peer.calls.clear()
    answer = await portal.run(script)
    assert answer["status"] == "error"
    assert {name for name, _ in peer.calls} <= {"read"}
    assert not [row for row in states(answer) if row[0] != "up.read" and row[1] != "refused"]


@pytest.mark.parametrize(
    "script", [way.replace("wipe-out", "read").replace("wipe", "read") for way in WAYS[:6]]
)
async def test_granted_tool_is_reached_the_same_way(portal: Opened, peer: Peer, script: str) -> None:
    peer.calls.clear()
    answer = await portal.run(script.replace("'wi' + 'pe'", "'re' + 'ad'"))
    assert [name for name, _ in peer.calls] == ["read"], answer
    assert states(answer) == [("up.read", "done")]


async def test_thousands_of_unknown_functions_hold_nobody_up(portal: Opened) -> None:
    """Each used to be compared with every function there is."""
    names = "\\n".join(f"{i} up.nothing_{i} {{}}" for i in range(1, 201))
    answer = await portal.run(RAW_HOST + f"host.exchange('{names}', 2000).count('Nearest:')")
    assert answer["status"] == "ok"
    assert answer["result"] <= 10
