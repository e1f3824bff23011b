"""Servers on releases of the Python SDK that came before the current protocol, each over the transports it has."""

import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.acceptance import real_servers
from tests.acceptance.model import Json, Model
from tests.acceptance.portal_process import stdio_model, write_manifest
from tests.ports import closed_port

pytestmark = [pytest.mark.anyio, pytest.mark.servers]

SERVER = Path(__file__).with_name("peers") / "sdk1_server.py"
STDIO = ("sdk1_2", "sdk1_6", "sdk1_9", "sdk1")
HTTP = {"sdk1_2": "sse", "sdk1_6": "sse", "sdk1_9": "streamable-http", "sdk1": "streamable-http"}


@pytest.fixture(scope="module")
def http_servers() -> Iterator[dict[str, dict[str, Json]]]:
    upstreams: dict[str, dict[str, Json]] = {}
    processes = []
    try:
        for release, transport in HTTP.items():
            port = closed_port()
            command = [real_servers.sdk1_python(release), str(SERVER), transport, str(port)]
            processes.append(
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            )
            path, more = ("sse", {"transport": "sse"}) if transport == "sse" else ("mcp", {})
            upstreams[f"{release}_http"] = {"url": f"http://127.0.0.1:{port}/{path}", **more}
        for process in processes:
            assert process.stderr is not None
            assert any("Uvicorn running" in line for line in process.stderr), "a server ended"
        yield upstreams
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
async def model(
    tmp_path_factory: pytest.TempPathFactory, http_servers: dict[str, dict[str, Json]]
) -> AsyncIterator[Model]:
    folder = tmp_path_factory.mktemp("releases")
    stdio = {
        name: {"command": real_servers.sdk1_python(name), "args": [str(SERVER), "stdio"]} for name in STDIO
    }
    async with stdio_model(write_manifest(folder, {**stdio, **http_servers})) as model:
        yield model


@pytest.mark.parametrize("upstream", [*STDIO, *(f"{release}_http" for release in HTTP)])
async def test_server_on_an_old_release_answers(model: Model, upstream: str) -> None:
    # Structured results came with SDK 1.10; a number in a text stays the text that it is.
    three = 3 if upstream in ("sdk1", "sdk1_http") else "3"
    assert await model.result_of(f"await {upstream}.add(a=1, b=2)") == three


async def test_script_goes_on_when_a_server_restarts_in_its_midst(model: Model) -> None:
    script = """
lives = [await sdk1_http.process()]
await sdk1_http.restart()
for attempt in range(100):
    try:
        lives.append(await sdk1_http.process())
    except ToolError as error:
        if error.code not in ("upstream_unavailable", "upstream_lost"):
            raise
    if lives[-1]:
        break
    await asyncio.sleep(0.2)
[lives[0], lives[-1], await sdk1_http.add(a=1, b=2)]
"""
    assert await model.result_of(script) == ["", "I", 3]
