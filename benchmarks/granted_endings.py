"""Ways in which a run ends badly with what it was granted: files, and a host to fetch from."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.ways_to_end import Way, fault_of
from manifests.grants import FileGrant, Limits, NetworkGrant
from manifests.portal_manifest import Capabilities
from portal.calls.fetch import Fetcher, FetchError, Network
from sandbox_runtime.call_port import Outcome, ToolCall
from sandbox_runtime.grants.files import Workspaces, open_workspaces
from sandbox_runtime.grants.run_grants import open_grants
from sandbox_runtime.sandbox import Sandbox

_HEAD = b"HTTP/1.1 200 OK\r\n"
_ANSWERS = {
    "/long": _HEAD + b"Content-Length: 2000\r\n\r\n" + bytes(2000),
    "/half": _HEAD + b"Content-Length: 2000\r\n\r\n" + bytes(10),
    "/round": b"HTTP/1.1 302 Found\r\nLocation: /round\r\nContent-Length: 0\r\n\r\n",
}
_OPEN = 'f = open("f", "w")\nf.write("x" * 100)\n'
_HANGS = 'await portal.fetch(BASE + "/hangs"'
_FEW_SECONDS = {"cpu_seconds": 0.05}

WAYS = (
    Way("file that is not there", 'open("x")', "script_error"),
    Way("file too long", 'with open("f", "w") as f: f.write("x" * 2000)', "script_error"),
    Way("file operations used up", "import os\nwhile True: os.listdir()", "file_operations_limit"),
    Way("stopped amid a file", f"{_OPEN}while True: pass", "cpu_limit", limits=_FEW_SECONDS),
    Way("lost amid a file", f"{_OPEN}import os\nos.abort()", "script_error"),
    Way("database that fails", 'import sqlite3\nsqlite3.connect("f.db").execute("nonsense")', "script_error"),
    Way("fetch that is not granted", 'await portal.fetch("http://127.0.0.1:1/")', "not_granted"),
    Way("fetch of too much", 'await portal.fetch(BASE + "/long")', "response_limit"),
    Way("fetch of half an answer", 'await portal.fetch(BASE + "/half")', "fetch_failed"),
    Way("fetch that goes in circles", 'await portal.fetch(BASE + "/round")', "too_many_redirects"),
    Way("fetch that takes too long", f"{_HANGS}, timeout=0.02)", "fetch_timeout"),
    Way("stopped amid a fetch", f"{_HANGS})", "wall_limit", limits={"wall_seconds": 0.1}),
)


@asynccontextmanager
async def granted_endings() -> AsyncIterator[Mapping[str, Callable[[Sandbox], Awaitable[str]]]]:
    """The ways by name, as long as what they are granted is there."""
    with tempfile.TemporaryDirectory() as folder:
        listening = await asyncio.start_server(_serve, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        granted = Capabilities(
            files=FileGrant(workspace=folder, mode="write", share="run", file_bytes=1000, operations=50),
            network=NetworkGrant(private=(f"127.0.0.1:{port}",), response_bytes=1000),
        )

        def where(*keys: object) -> str:
            return ".".join(map(str, keys))

        try:
            async with open_workspaces(granted.files, Path(folder), where) as workspaces:
                ending = _Ending(
                    granted, workspaces, Network(granted.network, where), f"http://127.0.0.1:{port}"
                )
                yield {
                    **{way.name: partial(ending.take, way) for way in WAYS},
                    "cancelled amid a fetch": ending.cancelled,
                }
        finally:
            listening.close()


@dataclass(frozen=True)
class _Ending:
    granted: Capabilities
    workspaces: Workspaces
    network: Network
    base: str

    async def take(self, way: Way, sandbox: Sandbox) -> str:
        async with open_grants(self.granted, self.workspaces, None) as granted:
            limits = Limits.model_validate(way.limits)
            async with sandbox.run(limits, str, grants=granted) as run:
                await run.prepare(f"BASE = {self.base!r}\n{way.script}", ())
                result = await run.execute({}, partial(_answer, Fetcher(self.network)))
        return fault_of(result, way.code, way.value, way.stdout)

    async def cancelled(self, sandbox: Sandbox) -> str:
        hanging = Way("", f"{_HANGS})")
        task = asyncio.create_task(self.take(hanging, sandbox))
        await asyncio.sleep(0.02)
        task.cancel()
        with suppress(asyncio.CancelledError):
            return f"a cancelled run went on: {await task}"
        return ""


async def _answer(fetcher: Fetcher, call: ToolCall) -> Outcome:
    try:
        return Outcome(text=await fetcher.fetch(call.arguments, lambda: None))
    except FetchError as error:
        return Outcome(error=error.call_error)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        request = await reader.readuntil(b"\r\n\r\n")
        answer = _ANSWERS.get(request.split(b" ")[1].decode())
        if answer is None:
            await reader.read()  # until the client has gone
        else:
            writer.write(answer)
            await writer.drain()
    writer.close()
