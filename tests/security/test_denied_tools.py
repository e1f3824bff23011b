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


@pytest.mark.parametrize("mode", ["warn", "off"])
async def test_denied_call_is_a_refusal_that_names_the_rule_and_can_be_caught(
    tmp_path: Path, mode: str
) -> None:
    peer = Peer(tool("read"), tool("wipe"))
    capabilities = {"tools": {"deny": ["up.wipe*"]}}
    caught = (
        "try:\n    await up.wipe()\nexcept ToolError as error:\n    told = error.code, str(error)\n"
        "[told, await up.read()]"
    )
    async with opened(tmp_path, {"up": peer}, capabilities=capabilities, server={"check": mode}) as portal:
        answer = await portal.run(caught)
        uncaught = await portal.error_of("await up.wipe()")
    (code, message), read = answer["result"]
    assert (code, read, states(answer)) == ("not_granted", {}, [("up.wipe", "refused"), ("up.read", "done")])
    assert "capabilities.tools.deny" in message
    assert uncaught["code"] == "not_granted"
    assert [name for name, _ in peer.calls] == ["read"]


@pytest.mark.parametrize(
    "listing", ["dir(up)", "up.__all__", "(lambda: (exec('from up import *', g := {}), g)[1])()"]
)
async def test_denied_tool_is_in_no_listing(portal: Opened, listing: str) -> None:
    assert [name for name in await portal.result_of(f"[*{listing}]") if "__" not in name] == ["read"]
    assert (await portal.error_of("up.wip"))["message"].count("wipe") == 0


async def test_namespace_of_which_all_is_denied_refuses_each_call(tmp_path: Path) -> None:
    capabilities = {"tools": {"deny": ["*"]}}
    async with opened(tmp_path, {"up": Peer()}, capabilities=capabilities, server={"check": "off"}) as portal:
        answer = await portal.run("await up.echo()")
    assert (answer["error"]["code"], states(answer)) == ("not_granted", [("up.echo", "refused")])


async def test_thousands_of_unknown_functions_hold_nobody_up(portal: Opened) -> None:
    """Each used to be compared with every function there is."""
    names = "\\n".join(f"{i} up.nothing_{i} {{}}" for i in range(1, 201))
    answer = await portal.run(RAW_HOST + f"host.exchange('{names}', 2000).count('Nearest:')")
    assert answer["status"] == "ok"
    assert answer["result"] <= 10
