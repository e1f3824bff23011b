"""Clients of both major versions of the SDK, in both eras of the protocol, over both transports."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance import real_servers
from tests.acceptance.model import Json, Model
from tests.acceptance.portal_process import (
    COMMAND,
    HttpPortal,
    http_model,
    http_portal,
    stdio_model,
    write_manifest,
)
from tests.warm_commands import warm_command

pytestmark = pytest.mark.anyio

CLIENT_SECONDS = 100
SDK1_CLIENT = Path(__file__).parent / "peers/sdk1_client.py"
TOOLS = ["docs_search", "execute_code"]
SCRIPT = "(await time_.get_current_time(timezone='UTC'))['timezone']"
ERAS = [("auto", "2026-07-28"), ("legacy", "2025-11-25")]


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_manifest(tmp_path_factory.mktemp("clients"), {"time": real_servers.time()})


@pytest.fixture(scope="module")
def portal(manifest: Path) -> Iterator[HttpPortal]:
    with http_portal(manifest) as portal:
        yield portal


@pytest.mark.parametrize(("mode", "version"), ERAS)
async def test_sdk2_client_over_stdio(manifest: Path, mode: str, version: str) -> None:
    async with stdio_model(manifest, mode) as model:
        await assert_both_tools_answer(model, version)


@pytest.mark.parametrize(("mode", "version"), ERAS)
async def test_sdk2_client_over_http(portal: HttpPortal, mode: str, version: str) -> None:
    async with http_model(portal, mode) as model:
        await assert_both_tools_answer(model, version)


def test_sdk1_client_over_stdio(manifest: Path) -> None:
    assert_sdk1_told(sdk1_client("stdio", COMMAND, "serve", "--config", str(manifest)))


def test_sdk1_client_over_http(portal: HttpPortal) -> None:
    assert_sdk1_told(sdk1_client("http", portal.url))


@pytest.mark.parametrize(("waits", "goes_on"), [(False, "older"), (True, "older"), (False, "newer")])
def test_client_may_probe_for_the_newer_protocol_and_open_with_the_older(
    manifest: Path, waits: bool, goes_on: str
) -> None:
    """Vercel's AI SDK gives the probe one second; GitHub's Copilot CLI reads the answer and ignores it. Another portal
    sends both to a portal that starts slowly, and goes on with the newer.
    """
    envelope = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    opening = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "tests", "version": "1"},
    }
    with subprocess.Popen(
        [*warm_command(), "serve", "--config", str(manifest)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as portal:
        assert portal.stdin is not None and portal.stdout is not None

        def send(**message: Json) -> None:
            portal.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            portal.stdin.flush()

        def answer(number: int) -> dict[str, Json]:
            return next(said["result"] for said in map(json.loads, portal.stdout) if said.get("id") == number)

        send(id=0, method="server/discover", params={"_meta": envelope})
        if waits:
            assert "2026-07-28" in answer(0)["supportedVersions"]
        send(id=1, method="initialize", params=opening)
        if goes_on == "older":
            send(method="notifications/initialized")
        send(id=2, method="tools/list", params={"_meta": envelope} if goes_on == "newer" else {})
        assert answer(1)["protocolVersion"] == "2025-11-25"
        assert [tool["name"] for tool in answer(2)["tools"]] == TOOLS
        if goes_on == "older":
            send(id=3, method="server/discover", params={"_meta": envelope})
            send(id=4, method="initialize", params=opening)
            assert answer(4)["protocolVersion"] == "2025-11-25"
        portal.stdin.close()


async def test_two_clients_share_one_http_portal(portal: HttpPortal) -> None:
    async with http_model(portal) as one, http_model(portal, "legacy") as other:
        assert await one.result_of("1 + 1") == 2
        assert await other.result_of(SCRIPT) == "UTC"
    async with http_model(portal) as later:
        assert await later.result_of(SCRIPT) == "UTC"


async def assert_both_tools_answer(model: Model, version: str) -> None:
    assert model.client.protocol_version == version
    assert [tool.name for tool in (await model.client.list_tools()).tools] == TOOLS
    assert (await model.search("current time"))["functions"][0]["name"] == "time_.get_current_time"
    assert await model.result_of(SCRIPT) == "UTC"


def sdk1_client(*args: str) -> dict[str, Json]:
    done = subprocess.run(
        [real_servers.sdk1_python(), str(SDK1_CLIENT), *args],
        capture_output=True,
        text=True,
        timeout=CLIENT_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Json] = json.loads(done.stdout)
    return answer


def assert_sdk1_told(told: dict[str, Json]) -> None:
    assert told["version"] == "2025-11-25"
    assert told["tools"] == TOOLS
    assert told["search"]["functions"][0]["name"] == "time_.get_current_time"
    assert (told["run"]["status"], told["run"]["result"]) == ("ok", "UTC")
