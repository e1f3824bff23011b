"""Clients of a portal over each transport in each era, before upstreams over each transport in each era."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from anyio.abc import UNIXSocketStream
from mcp import Client, StdioServerParameters
from mcp.client._transport import Transport
from mcp_types import CallToolResult, ElicitResult

from manifests.json_value import Json
from manifests.loader import load_manifest
from portal.app.composition import open_portal
from portal.app.serving import ClientAnswers, ClientMessages
from portal.server.portal import Portal
from portal.server.server import build_server
from tests.one_sandbox import shared
from tests.portal.chatty_server import SECRET, Chatty
from tests.portal.peers import DEADLINE_SECONDS, http_app, write_manifest
from tests.upstreams.peers import Changing, http_peer
from tests.warm_commands import relayed

CLIENTS = [("http", "legacy"), ("stdio", "auto")]
UPSTREAMS = [f"{transport}_{era}" for transport in ("http", "stdio") for era in ("modern", "legacy")]


@dataclass
class Ear(Changing):
    """A client, and what it was told while it waited."""

    client: Client
    progress: list[tuple[float, float | None, str | None]] = field(default_factory=list)

    async def run(self, code: str) -> dict[str, Json]:
        """Return execute_code's answer, after dropping earlier notifications."""
        self.progress.clear()
        with anyio.fail_after(DEADLINE_SECONDS):
            result: CallToolResult = await self.client.call_tool(
                "execute_code", {"code": code}, progress_callback=self.note_progress
            )
        return result.structured_content

    async def note_progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append((progress, total, message))
        self.tell()


class Person:
    """Answers what is asked, and remembers it."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.action = "accept"

    async def __call__(self, context: Any, params: Any) -> ElicitResult:
        self.asked.append(params)
        is_form = params.mode == "form" and self.action == "accept"
        content = dict.fromkeys(params.requested_schema["properties"], "Ada") if is_form else None
        return ElicitResult(action=self.action, content=content)


@asynccontextmanager
async def chatty_upstreams(**settings: Json) -> AsyncIterator[dict[str, dict[str, Json]]]:
    """A manifest's entries for all of them, with these settings; their environment holds a secret."""
    entries: dict[str, dict[str, Json]] = {}
    async with AsyncExitStack() as stack:
        for name in UPSTREAMS:
            transport, era = name.split("_")
            if transport == "stdio":
                command, *args = await stack.enter_async_context(stdio_peer(Chatty(era).serve_stdio))
                entries[name] = {"command": command, "args": args, "env": {"TOKEN": SECRET}}
            else:
                app = Chatty(era).server.streamable_http_app()
                peer = await stack.enter_async_context(http_peer(app))
                headers = {"Authorization": f"Bearer {SECRET}"}
                entries[name] = {"url": f"http://127.0.0.1:{peer.port}/mcp", "headers": headers}
        yield {name: {**entry, **settings} for name, entry in entries.items()}


@asynccontextmanager
async def stdio_peer(serve: Callable[[Any, Any], Awaitable[None]]) -> AsyncIterator[list[str]]:
    """The command of a server over stdio: each start of it is served in this process, by `serve(reader, writer)`."""

    async def handle(relay: UNIXSocketStream) -> None:
        async with relay:
            told, streams = await relay.receive_fds(1 << 16, 3)
            while not told.endswith(b"\n"):
                told = await relay.receive()
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(until_signalled, relay, tasks.cancel_scope)
                    messages = ClientMessages(streams[0])
                    while True:  # again, if it opens anew in another revision
                        answers = ClientAnswers(streams[1])
                        tasks.start_soon(answers.write)
                        await serve(messages, answers)
                        if not messages.is_reopened:
                            break
                    tasks.cancel_scope.cancel()
            except* BrokenPipeError:  # no one reads any longer
                pass
            finally:
                for each in streams:
                    os.close(each)
            with suppress(anyio.BrokenResourceError):
                await relay.send(b"0\n")

    async def until_signalled(relay: UNIXSocketStream, scope: anyio.CancelScope) -> None:
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            await relay.receive()
        scope.cancel()

    with TemporaryDirectory() as folder:
        path = f"{folder}/socket"
        async with await anyio.create_unix_listener(path) as listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, handle)
            yield relayed(path)
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def one_chatty() -> AsyncIterator[tuple[Chatty, dict[str, dict[str, Json]]]]:
    """One of them over HTTP, and a manifest's entry for it under the name `up`."""
    up = Chatty("modern")
    async with http_peer(up.server.streamable_http_app()) as peer:
        yield up, {"up": {"url": f"http://127.0.0.1:{peer.port}/mcp"}}


@asynccontextmanager
async def client_of(
    folder: Path,
    upstreams: dict[str, dict[str, Json]],
    transport: str,
    mode: str,
    options: dict[str, Any] | None = None,
    **sections: Json,
) -> AsyncIterator[Ear]:
    """A client of a portal over these upstreams, which is in this process: over HTTP, or over stdio."""
    manifest = write_manifest(folder, upstreams, **sections)
    async with AsyncExitStack() as stack:
        server: StdioServerParameters | str
        if transport == "stdio":
            own = build_server(await stack.enter_async_context(portal_of(manifest)))
            initial = own.create_initialization_options()
            serving = stdio_peer(lambda reader, writer: own.run(reader, writer, initial))
            command, *args = await stack.enter_async_context(serving)
            server = StdioServerParameters(command=command, args=args)
        else:
            server = await stack.enter_async_context(served(manifest))
        yield await stack.enter_async_context(ear_of(server, mode, options))


@asynccontextmanager
async def served(manifest: Path) -> AsyncIterator[str]:
    """The URL of a portal over HTTP in this process."""
    async with portal_of(manifest) as portal, http_peer(http_app(portal)) as peer:
        yield f"http://127.0.0.1:{peer.port}/mcp"


@asynccontextmanager
async def portal_of(manifest: Path) -> AsyncIterator[Portal]:
    loaded = load_manifest(manifest, {})
    async with open_portal(loaded, lambda line: None, sandbox=await shared(loaded)) as portal:
        yield portal


@asynccontextmanager
async def ear_of(
    server: StdioServerParameters | str | Transport, mode: str, options: dict[str, Any] | None = None
) -> AsyncIterator[Ear]:
    """A client that records its notifications."""
    async with Client(server, mode=mode, **(options or {})) as client:
        yield Ear(client)
