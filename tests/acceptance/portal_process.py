"""A portal as its users start it: a process of its own, over stdio or over HTTP."""

import queue
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import yaml
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.acceptance.model import Json, Model
from tests.warm_commands import warm_command

COMMAND = str(Path(sys.executable).with_name("mcp-code-portal"))
START_SECONDS = 60
STOP_SECONDS = 15


@dataclass(frozen=True)
class HttpPortal:
    """A portal that listens on a free port of the loopback interface; `url` ends in /mcp."""

    url: str
    process: subprocess.Popen[str]

    @property
    def origin(self) -> str:
        return self.url.removesuffix("/mcp")


def write_manifest(folder: Path, upstreams: dict[str, dict[str, Json]], **sections: Json) -> Path:
    """Write `folder`/portal.yaml; the upstreams get a minute to start, because machines that test are busy.

    Answers have their whole shape beside the text that a model reads.
    """
    server = {"start_seconds": 60, "structured": True, **sections.pop("server", {})}
    path = folder / "portal.yaml"
    path.write_text(yaml.safe_dump({"upstreams": upstreams, "server": server, **sections}))
    return path


def stdio_parameters(
    manifest: Path, environment: dict[str, str] | None = None, *, is_warm: bool = True
) -> StdioServerParameters:
    """How a client starts the portal; what `environment` has comes to what the SDK lets through."""
    command, *args = [*_command(is_warm), "serve", "--config", str(manifest)]
    return StdioServerParameters(command=command, args=args, cwd=manifest.parent, env=environment)


@asynccontextmanager
async def stdio_model(
    manifest: Path,
    mode: str = "auto",
    environment: dict[str, str] | None = None,
    *,
    is_warm: bool = True,
) -> AsyncIterator[Model]:
    """A model whose client has started the portal."""
    async with Client(stdio_parameters(manifest, environment, is_warm=is_warm), mode=mode) as client:
        yield Model(client)


@asynccontextmanager
async def http_model(
    portal: HttpPortal, mode: str = "auto", token: str | None = None
) -> AsyncIterator[Model]:
    """A model whose client talks to a running portal."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30, read=120)) as http,
        Client(streamable_http_client(portal.url, http_client=http), mode=mode) as client,
    ):
        yield Model(client)


@contextmanager
def http_portal(
    manifest: Path, address: str = "127.0.0.1:0", *, is_warm: bool = True
) -> Iterator[HttpPortal]:
    """Start `serve --http` and wait for the line that says where it listens."""
    process = subprocess.Popen(
        [*_command(is_warm), "serve", "--config", str(manifest), "--http", address],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=manifest.parent,
        start_new_session=True,  # it has no terminal: SIGHUP accepts
    )
    try:
        yield HttpPortal(listening_url(process), process)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


def _command(is_warm: bool) -> list[str]:
    """`mcp-code-portal` itself unless it is warm: for tests that stop it, or look at what it started."""
    return warm_command() if is_warm else [COMMAND]


def listening_url(process: subprocess.Popen[str]) -> str:
    """The URL the portal tells; its stderr is read to the end, so that it never blocks on a full pipe."""
    told: queue.Queue[str] = queue.Queue()

    def read() -> None:
        said = []
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"listening on (http://\S+)", line):
                told.put(found[1])
        told.put("ended: " + "".join(said)[-2000:])

    threading.Thread(target=read, daemon=True).start()
    url = told.get(timeout=START_SECONDS)
    assert url.startswith("http://"), url
    return url
