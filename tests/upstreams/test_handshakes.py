"""Servers that do not know the first request of 2026-07-28 start as if it had not been sent, and are remembered."""

from pathlib import Path

import pytest
from mcp.server.mcpserver import Context, MCPServer

from manifests.json_value import Json
from tests.upstreams.peers import DEADLINE_SECONDS, fleet_of, raw_server
from tests.upstreams.test_sdk_servers import in_memory
from upstreams import session
from upstreams.tools import ToolResult
from upstreams.transports.messages import known_handshake

pytestmark = pytest.mark.anyio

ONCE = ["initialize", "notifications/initialized", "tools/list"]


@pytest.mark.parametrize(
    "probe", ["ignores", "has no id", "complains", "odd result", "dies", "dies later", "is deaf"]
)
async def test_server_that_does_not_know_the_probe_starts(tmp_path: Path, probe: str) -> None:
    log = tmp_path / "log"
    spec = raw_server(probe=probe, log=str(log), connect_seconds=1.5 if probe == "is deaf" else 20)
    async with fleet_of(tmp_path, listings=tmp_path / "kept", settled=False, old=spec) as fleet:
        await fleet.until(lambda: fleet["old"].state.status == "ready")
        assert fleet["old"].stderr_tail() == ""
    assert log.read_text().splitlines() == ["server/discover", *ONCE]


@pytest.mark.parametrize("probe", ["ignores", "dies", "dies later"])
async def test_next_portal_sends_the_handshake_first(tmp_path: Path, probe: str) -> None:
    log = tmp_path / "log"
    for first in ("server/discover", "initialize"):
        async with fleet_of(
            tmp_path, listings=tmp_path / "kept", old=raw_server(probe=probe, log=str(log))
        ) as fleet:
            assert fleet["old"].state.status == "ready"
        assert log.read_text().splitlines()[0] == first
        log.unlink()


async def test_server_that_refuses_the_probe_is_probed_at_each_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for _ in range(2):
        async with fleet_of(tmp_path, listings=tmp_path / "kept", old=raw_server(log=str(log))):
            pass
    assert log.read_text().splitlines() == ["server/discover", *ONCE] * 2


async def test_modern_server_that_is_slow_to_start_is_spoken_to_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "PROBE_SECONDS", 0.0)
    server = MCPServer("modern")

    @server.tool()
    def revision(context: Context) -> str:
        return str(context.session.protocol_version)

    async with in_memory(server._lowlevel_server) as upstream:
        result: ToolResult = await upstream.call("revision", {}, seconds=DEADLINE_SECONDS)
        assert result.structured == {"result": "2026-07-28"}


@pytest.mark.parametrize(
    ("info", "known"),
    [
        ({"name": "a", "version": "1", "icons": "nope", "websiteUrl": 3}, {"name": "a", "version": "1"}),
        ({"name": "a"}, {"name": "a", "version": ""}),
        ({"name": "a", "version": 1.5}, {"name": "a", "version": "1.5"}),
        ("a", "a"),
    ],
)
def test_odd_informational_fields_cost_nothing_but_themselves(info: Json, known: Json) -> None:
    needed = {"protocolVersion": "2025-06-18", "capabilities": {}}
    result = {**needed, "serverInfo": info, "instructions": 7, "_meta": []}
    assert known_handshake(result) == {**needed, "serverInfo": known}


@pytest.mark.parametrize(
    ("handshake", "field"),
    [
        ({"serverInfo": None}, "serverInfo"),
        ({"serverInfo": {"version": "1"}}, "serverInfo.name"),
        ({"capabilities": {"tools": True}}, "capabilities.tools"),
        ({"protocolVersion": None}, "protocolVersion"),
    ],
)
async def test_invalid_answer_to_initialize_is_told_by_its_field(handshake: Json, field: str) -> None:
    async with fleet_of(odd=raw_server(handshake=handshake)) as fleet:
        assert f"`{field}`" in fleet["odd"].state.detail
