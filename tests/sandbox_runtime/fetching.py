"""Runs scripts that are granted hosts; and a server on a loopback port that sends the very bytes a test tells it to."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, TypeAlias

from manifests.constraints import Address
from manifests.grants import FETCH, NetworkGrant
from manifests.json_value import Json
from portal.calls.fetch import Fetcher, FetchError, Network
from sandbox_runtime.call_port import CallPort, Outcome, ToolCall
from sandbox_runtime.result import RunResult
from tests.sandbox_runtime.running import Runner, where

Answer: TypeAlias = Callable[["Request", asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class Request:
    """The bytes that arrived at the server."""

    line: str
    headers: dict[str, str]
    body: bytes
    reader: asyncio.StreamReader
    """The bytes after it, until the client closes."""

    @property
    def path(self) -> str:
        return self.line.split(" ")[1]


@dataclass
class Server:
    """Keeps the requests that arrive. `answers` are by path; anything else is answered with its own path."""

    port: int = 0
    requests: list[Request] = field(default_factory=list)
    answers: dict[str, bytes | Answer] = field(default_factory=dict)

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await _read(reader)
            self.requests.append(request)
            answer = self.answers.get(request.path.partition("?")[0], response(request.path.encode()))
            if isinstance(answer, bytes):
                writer.write(answer)
            else:
                await answer(request, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def response(body: bytes = b"", status: str = "200 OK", **headers: str) -> bytes:
    """A whole answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def redirect(location: str, status: str = "302 Found") -> bytes:
    return response(b"", status, Location=location)


async def hanging(request: Request, writer: asyncio.StreamWriter) -> None:
    """Answers nothing until the client has gone."""
    await request.reader.read()


@asynccontextmanager
async def served(trusted: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """A server on a loopback port; with `trusted`, over TLS."""
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=trusted)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()


@dataclass
class Names:
    """A resolver whose answers the test chooses, one after the other; the last one stays."""

    answers: dict[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        self.asked.append(host)
        answers = self.answers.get(host)
        if not answers:
            raise OSError("not known")
        return [ip_address(text) for text in answers[min(self.asked.count(host), len(answers)) - 1]]


@dataclass
class FetchRunner:
    """Runs scripts as the portal does, and keeps the states in which their fetches ended."""

    run: Runner
    network: Network
    states: list[str] = field(default_factory=list)

    async def __call__(self, script: str, **more: Any) -> RunResult:
        return await self.run(script, port=self.port(), **more)

    def port(self) -> CallPort:
        """The port for one run's calls."""
        fetcher = Fetcher(self.network)
        self.states.clear()

        async def answer(call: ToolCall) -> Outcome:
            assert call.function == FETCH
            try:
                text = await fetcher.fetch(call.arguments, lambda: None)
            except FetchError as error:
                self.states.append(error.state)
                return Outcome(error=error.call_error)
            self.states.append("done")
            return Outcome(text=text)

        return answer

    async def value(self, script: str) -> Json:
        result = await self(script)
        assert result.error is None, result.error
        return result.value

    async def code(self, script: str) -> str:
        result = await self(script)
        assert result.error is not None, result.value
        return result.error.code


def granting(run: Runner, *private: str, names: Names | None = None, **grant: Any) -> FetchRunner:
    """Grant these hosts although they are private, and what `grant` says besides."""
    trusted = grant.pop("trusted", None)
    wanted = NetworkGrant(private=private, **{"allow": ("public.example",), **grant})
    return FetchRunner(run, Network(wanted, where, resolve=names or Names(), trusted=trusted))


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *rest = head.split("\r\n")
    headers = {
        name.lower(): value.strip() for name, _, value in (text.partition(":") for text in rest if text)
    }
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(line, headers, body, reader)
