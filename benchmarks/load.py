"""Question: what do 500 clients see in an hour, beside thousands of idle connections and clients that misbehave?

    python -m benchmarks.load --minutes 60

A portal (`serve --http`) answers clients that each send a script every ten seconds, over a connection of their own.
First they are alone. Then there are 5,000 connections beside them on which older clients wait for messages. Then there
are clients, by turns, that read a long answer byte by byte, that send a body byte by byte, and that send a
body of a million lines. For each phase it tells errors, latency, and the memory of the portal with its workers. Raw
numbers go to benchmarks/results/load.json. Linux only.
"""

import argparse
import asyncio
import json
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measuring import RESULTS, machine, percentile
from benchmarks.resources import memory_of_tree

CLIENTS = 500
IDLE = 5_000
PAUSE_SECONDS = 10.0
"""A client waits so long between two scripts, on average."""

COMMAND = str(Path(sys.executable).with_name("mcp-code-portal"))
ACCEPT = "application/json, text/event-stream"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "load", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "load", "version": "1"},
    },
}


@dataclass
class Phase:
    """What the clients saw meanwhile."""

    name: str
    ms: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    mib: list[float] = field(default_factory=list)

    def told(self) -> dict[str, Any]:
        return {
            "phase": self.name,
            "scripts": len(self.ms),
            "errors": dict(self.errors),
            "ms, p50": round(percentile(self.ms, 0.5), 1),
            "ms, p99": round(percentile(self.ms, 0.99), 1),
            "ms, most": round(max(self.ms), 1),
            "MiB, first and last": [round(self.mib[0]), round(self.mib[-1])],
            "MiB, most": round(max(self.mib)),
        }


class Connection:
    """One HTTP/1.1 connection, as thin as can be, so that the clients cost little beside the portal."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def send(self, method: str, body: bytes, headers: dict[str, str]) -> None:
        """Send a request, over a new connection if the portal has closed the last one."""
        if self.writer is None or self.reader is None or self.reader.at_eof():
            await self.open()
        assert self.writer is not None
        lines = [f"{method} /mcp HTTP/1.1", f"host: 127.0.0.1:{self._port}", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await self.writer.drain()

    async def open(self) -> None:
        self.close()
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def head(self) -> tuple[int, dict[str, str]]:
        assert self.reader is not None
        text = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = text.split("\r\n")
        pairs = (line.split(": ", 1) for line in lines if line)
        return int(first.split()[1]), {name.lower(): value for name, value in pairs}

    async def body(self, headers: dict[str, str]) -> bytes:
        assert self.reader is not None
        if "content-length" in headers:
            return await self.reader.readexactly(int(headers["content-length"]))
        chunks = []
        while size := int(await self.reader.readline(), 16):
            chunks.append(await self.reader.readexactly(size))
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)
        return b"".join(chunks)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


def script(code: str, number: int) -> tuple[bytes, dict[str, str]]:
    """The request that runs a script, and its headers."""
    params = {"name": "execute_code", "arguments": {"code": code}, "_meta": META}
    request = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    headers = {
        "accept": ACCEPT,
        "content-type": "application/json",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "execute_code",
    }
    return json.dumps(request).encode(), headers


class Load:
    """The clients of one portal."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.phase = Phase("warm-up")

    async def client(self, number: int) -> None:
        """One client: a script, a pause, and so on."""
        connection, chance = Connection(self.port), random.Random(number)
        await asyncio.sleep(chance.random() * PAUSE_SECONDS)
        while True:
            phase, began = self.phase, time.perf_counter()
            try:
                await connection.send("POST", *script(f"sum(range({number}))", number))
                status, headers = await connection.head()
                answer = await connection.body(headers)
                if status != 200 or b'\\"status\\":\\"ok\\"' not in answer:
                    phase.errors[f"{status}: {answer[:200]!r}"] += 1
            except (OSError, asyncio.IncompleteReadError) as error:
                connection.close()
                connection = Connection(self.port)
                phase.errors[type(error).__name__] += 1
            phase.ms.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(chance.uniform(0.5, 1.5) * PAUSE_SECONDS)

    async def idle(self) -> Connection:
        """An older client with a session, which waits for messages."""
        connection = Connection(self.port)
        given = {"accept": ACCEPT, "content-type": "application/json"}
        await connection.send("POST", json.dumps(INITIALIZE).encode(), given)
        _, headers = await connection.head()
        await connection.body(headers)
        session = {"accept": "text/event-stream", "mcp-session-id": headers["mcp-session-id"]}
        await connection.send("GET", b"", {**session, "mcp-protocol-version": "2025-11-25"})
        status, _ = await connection.head()
        if status != 200:
            raise RuntimeError(f"an idle connection got {status}")
        return connection

    async def slow_reader(self) -> None:
        """Ask for the longest answer there is, and read it byte by byte."""
        connection = Connection(self.port)
        await connection.send("POST", *script("'word ' * 10_000", 1))
        assert connection.reader is not None
        for _ in range(1_000):
            await connection.reader.read(1)
            await asyncio.sleep(0.02)
        connection.close()

    async def slow_sender(self) -> None:
        """Announce a body of a megabyte, and send it byte by byte."""
        connection = Connection(self.port)
        await connection.open()
        assert connection.writer is not None
        lines = ["POST /mcp HTTP/1.1", "host: 127.0.0.1", "content-length: 1000000", f"accept: {ACCEPT}"]
        connection.writer.write("\r\n".join([*lines, "content-type: application/json", "", ""]).encode())
        for _ in range(1_000):
            connection.writer.write(b" ")
            await asyncio.sleep(0.02)
        connection.close()

    async def many_lines(self) -> None:
        """Send a script of a million lines, four times a second."""
        body, headers = script("\n" * 1_000_000, 1)
        for _ in range(80):
            connection = Connection(self.port)
            await connection.send("POST", body, headers)
            await connection.head()
            connection.close()
            await asyncio.sleep(0.25)


async def measured(load: Load, name: str, seconds: float, pid: int) -> Phase:
    """The clients for so long."""
    load.phase = phase = Phase(name)
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        phase.mib.append(memory_of_tree(pid))
        print(
            f"{name}: {len(phase.ms)} scripts, {phase.errors.total()} errors, {phase.mib[-1]:.0f} MiB",
            file=sys.stderr,
        )
        await asyncio.sleep(min(left, 10.0))
    return phase


async def run(minutes: float, port: int, pid: int) -> list[Phase]:
    load, seconds = Load(port), minutes * 60
    clients = [asyncio.create_task(load.client(number)) for number in range(CLIENTS)]
    await asyncio.sleep(2 * PAUSE_SECONDS)
    phases = [await measured(load, f"{CLIENTS} clients", seconds * 0.6, pid)]
    idle = []
    for _ in range(IDLE // 50):
        idle += await asyncio.gather(*(load.idle() for _ in range(50)))
    phases.append(await measured(load, f"and {IDLE:,} idle connections", seconds * 0.1, pid))
    misbehaving: dict[str, Callable[[], Awaitable[None]]] = {
        "and 20 slow readers": load.slow_reader,
        "and 20 slow senders": load.slow_sender,
        "and bodies of a million lines": load.many_lines,
    }
    for name, misbehave in misbehaving.items():

        async def keep(misbehave: Callable[[], Awaitable[None]] = misbehave) -> None:
            await asyncio.sleep(random.random() * PAUSE_SECONDS)  # not all at once
            while True:
                await misbehave()

        count = 2 if misbehave == load.many_lines else 20
        bad = [asyncio.create_task(keep()) for _ in range(count)]
        phases.append(await measured(load, name, seconds * 0.1, pid))
        for each in bad:
            each.cancel()
    for each in clients:
        each.cancel()
    for connection in idle:
        connection.close()
    return phases


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--to", type=Path, default=RESULTS / "load.json")
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory() as created:
        manifest = Path(created, "portal.yaml")
        manifest.write_text("upstreams: {}\nruns: {store: runs.sqlite}\n")
        command = [COMMAND, "serve", "--config", str(manifest), "--http", "127.0.0.1:0"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as portal:
            assert portal.stderr is not None
            port = 0
            while not port:
                if found := re.search(r"listening on http://127.0.0.1:(\d+)", portal.stderr.readline()):
                    port = int(found[1])
            drain = subprocess.Popen(["cat"], stdin=portal.stderr, stdout=subprocess.DEVNULL)
            try:
                phases = asyncio.run(run(options.minutes, port, portal.pid))
            finally:
                portal.terminate()
                portal.wait()
                drain.wait()
    found = {"minutes": options.minutes, "phases": [phase.told() for phase in phases], "machine": machine()}
    text = json.dumps(found, indent=2)
    print(text)
    options.to.write_text(text + "\n")
    sys.exit(any(phase.errors for phase in phases))


if __name__ == "__main__":
    main()
