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
HTTP = {"sdk1_2": "sse", "sdk1_6": "sse", "sdk1_9": "streamable-http", "sdk1": "streamable-http"}
RELEASES = [
    "sdk1_2",
    *(pytest.param(name, marks=pytest.mark.release) for name in ("sdk1_6", "sdk1_9")),
    "sdk1",
]


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def http_server(release: str) -> Iterator[dict[str, Json]]:
    transport, port = HTTP[release], closed_port()
    command = [real_servers.sdk1_python(release), str(SERVER), transport, str(port)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert any("Uvicorn running" in line for line in process.stderr), "the server ended"
        path, more = ("sse", {"transport": "sse"}) if transport == "sse" else ("mcp", {})
        yield {"url": f"http://127.0.0.1:{port}/{path}", **more}
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
async def model(
    tmp_path_factory: pytest.TempPathFactory, release: str, http_server: dict[str, Json]
) -> AsyncIterator[Model]:
    stdio = {"command": real_servers.sdk1_python(release), "args": [str(SERVER), "stdio"]}
    manifest = write_manifest(tmp_path_factory.mktemp("releases"), {"stdio": stdio, "http": http_server})
    async with stdio_model(manifest) as model:
        yield model


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_server_on_an_old_release_answers(model: Model, release: str, transport: str) -> None:
    # Structured results came with SDK 1.10; a number in a text stays the text that it is.
    three = 3 if release == "sdk1" else "3"
    assert await model.result_of(f"await {transport}.add(a=1, b=2)") == three


@pytest.mark.parametrize("release", ["sdk1"], indirect=True, scope="module")
async def test_script_goes_on_when_a_server_restarts_in_its_midst(model: Model) -> None:
    script = """
lives = [await http.process()]
await http.restart()
for attempt in range(100):
    try:
        lives.append(await http.process())
    except ToolError as error:
        if error.code not in ("upstream_unavailable", "upstream_lost"):
            raise
    if lives[-1]:
        break
    await asyncio.sleep(0.2)
[lives[0], lives[-1], await http.add(a=1, b=2)]
"""
    assert await model.result_of(script) == ["", "I", 3]
