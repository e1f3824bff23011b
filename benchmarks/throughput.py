"""Question: what does a trivial script cost over HTTP, beside an echo that the SDK serves by itself?

    python -m benchmarks.throughput [--rounds 1000]

An echo (the SDK's low-level server) and a portal without upstreams, each in its own process under uvicorn with the same
settings, answer the same client in turns, in both eras of the protocol: first one caller, then sixteen. The client
`raw` sends prepared bytes, so that little of it is measured; `sdk` is the SDK's own, which computes longer than the
echo. Goals: at most 2.5 ms more than the echo, and at least 0.7 of its calls per second.

`cpu_ms` is what the serving process computes for a call, without the portal's workers. `functions` does not depend on
how busy the machine is: calls of Python functions for one modern request in the serving process, by cProfile, without
uvicorn. Writes benchmarks/results/throughput.json.
"""

import argparse
import cProfile
import gc
import json
import pstats
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import uvicorn
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp import Client
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import CLIENT_CAPABILITIES_META_KEY, PROTOCOL_VERSION_META_KEY, ListToolsResult, Tool
from starlette.applications import Starlette

from benchmarks import echo_upstream, processes
from benchmarks.measuring import RESULTS, commit, free_port, machine, percentile, wait_for_port
from manifests.loader import load_manifest
from portal.app.composition import open_portal
from portal.app.http_access import HttpAccess
from portal.app.serving import build_http_app
from portal.cli.serve import OBJECTS_BETWEEN_COLLECTIONS
from portal.records.logs import configure_logs
from portal.server.server import build_server

CALLERS, TURNS, START_SECONDS = 16, 10, 120
ERAS = {"modern": "2026-07-28", "legacy": "2025-11-25"}
TOOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "echo": ("echo", {"number": 2}),
    "portal": ("execute_code", {"code": "1 + 1"}),
}

Call: TypeAlias = Callable[[], Awaitable[None]]


def echo_app() -> Starlette:
    async def list_tools(context: object, params: object) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="echo", input_schema=echo_upstream.SCHEMA)])

    server: Server[Any] = Server(
        "echo", version="1", on_list_tools=list_tools, on_call_tool=echo_upstream.call_tool
    )
    unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    return server.streamable_http_app(streamable_http_path="/mcp", transport_security=unchecked)


def prepared(served: str, era: str, session: str = "") -> tuple[dict[str, str], bytes]:
    """Headers and body of a call."""
    name, arguments = TOOLS[served]
    headers = {"host": "127.0.0.1", "content-type": "application/json", "mcp-protocol-version": ERAS[era]}
    headers["accept"] = "application/json, text/event-stream"
    params: dict[str, Any] = {"name": name, "arguments": arguments}
    if era == "modern":
        headers |= {"mcp-method": "tools/call", "mcp-name": name}
        params["_meta"] = {PROTOCOL_VERSION_META_KEY: ERAS[era], CLIENT_CAPABILITIES_META_KEY: {}}
    elif session:
        headers["mcp-session-id"] = session
    return headers, message("tools/call", params, id=1)


def message(method: str, params: dict[str, Any], **identity: int) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **identity, "method": method, "params": params}).encode()


@asynccontextmanager
async def raw(served: str, era: str, port: int) -> AsyncIterator[Call]:
    """One connection that is kept alive, with a session of its own in the older era."""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        reader = BufferedByteReceiveStream(stream)

        async def exchange(request: bytes) -> tuple[bytes, bytes]:
            await stream.send(request)
            head = (await reader.receive_until(b"\r\n\r\n", 1 << 16)).lower()
            if b"transfer-encoding: chunked" in head:
                return head, await reader.receive_until(b"\r\n0\r\n\r\n", 1 << 20)
            length = int(field(head, b"content-length") or 0)
            return head, await reader.receive_exactly(length) if length else b""

        def posted(headers: dict[str, str], body: bytes) -> bytes:
            lines = (
                f"{name}: {value}\r\n" for name, value in {**headers, "content-length": len(body)}.items()
            )
            return f"POST /mcp HTTP/1.1\r\n{''.join(lines)}\r\n".encode() + body

        headers, body = prepared(served, era)
        if era == "legacy":
            client = {"clientInfo": {"name": "benchmark", "version": "1"}, "capabilities": {}}
            begin = message("initialize", {"protocolVersion": ERAS[era], **client}, id=0)
            head, _ = await exchange(posted(headers, begin))
            headers, body = prepared(served, era, field(head, b"mcp-session-id").decode())
            await exchange(posted(headers, message("notifications/initialized", {})))
        request = posted(headers, body)

        async def call() -> None:
            _, answer = await exchange(request)
            assert b'"isError":false' in answer, answer

        yield call


def field(head: bytes, name: bytes) -> bytes:
    return head.partition(b"\r\n" + name + b": ")[2].partition(b"\r\n")[0]


@asynccontextmanager
async def sdk(served: str, era: str, port: int) -> AsyncIterator[Call]:
    mode: Any = ERAS[era] if era == "modern" else "legacy"
    async with Client(f"http://127.0.0.1:{port}/mcp", mode=mode) as client:

        async def call() -> None:
            answer = await client.call_tool(*TOOLS[served])
            assert not answer.is_error, answer

        yield call


async def measured(
    client: Callable[..., Any], era: str, ports: dict[str, int], pids: dict[str, int], rounds: int
) -> dict[str, Any]:
    """Both take turns at being first."""
    row: dict[str, Any] = {"client": client.__name__, "era": era}
    times: dict[str, list[float]] = {name: [] for name in ports}
    rates: dict[str, list[float]] = {name: [] for name in ports}
    cpu: dict[str, list[float]] = {name: [] for name in ports}
    async with AsyncExitStack() as stack:
        calls = {each: await stack.enter_async_context(client(each, era, ports[each])) for each in ports}
        for number in range(-rounds // 5, rounds):
            for name in sorted(ports, reverse=bool(number % 2)):
                began = time.perf_counter()
                await calls[name]()
                if number >= 0:
                    times[name].append((time.perf_counter() - began) * 1000)
    for number in range(TURNS):
        for name in sorted(ports, reverse=bool(number % 2)):
            async with AsyncExitStack() as stack:
                many = [
                    await stack.enter_async_context(client(name, era, ports[name])) for _ in range(CALLERS)
                ]
                used, began = processes.cpu_ms(pids[name]), time.perf_counter()
                async with anyio.create_task_group() as tasks:
                    for each in many:
                        tasks.start_soon(repeated, each, rounds // 20)
                count = CALLERS * (rounds // 20)
                rates[name].append(count / (time.perf_counter() - began))
                cpu[name].append((processes.cpu_ms(pids[name]) - used) / count)
    for name in ports:
        row[f"{name}_ms"] = [round(percentile(times[name], share), 2) for share in (0.5, 0.99)]
        row[f"{name}_per_second"] = round(statistics.median(rates[name]))
        row[f"{name}_cpu_ms"] = round(statistics.median(cpu[name]), 2)
    row["more_ms"] = round(in_pairs(lambda one, other: one - other, times), 2)
    row["share"] = round(in_pairs(lambda one, other: one / other, rates), 2)
    return row


def in_pairs(compare: Callable[[float, float], float], values: dict[str, list[float]]) -> float:
    return statistics.median(map(compare, values["portal"], values["echo"]))


async def repeated(call: Call, times: int) -> None:
    for _ in range(times):
        await call()


async def functions(served: str, app: Starlette, rounds: int = 200) -> int:
    headers, body = prepared(served, "modern")
    sent = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": sent, "query_string": b""}

    async def call() -> None:
        given = iter([{"type": "http.request", "body": body}])

        async def receive() -> dict[str, Any]:
            for given_once in given:
                return given_once
            await anyio.sleep_forever()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            pass

        await app({**scope}, receive, send)

    async with app.router.lifespan_context(app):
        await repeated(call, 20)
        with cProfile.Profile() as profile:
            await repeated(call, rounds)
    calls: int = vars(pstats.Stats(profile))["total_calls"]
    return round(calls / rounds)


async def functions_of_both(manifest: Path) -> dict[str, int]:
    loaded = load_manifest(manifest, {})
    async with open_portal(loaded, lambda line: None) as portal:
        await portal.sandbox()
        access = HttpAccess("127.0.0.1", loaded.portal)
        app = build_http_app(portal, build_server(portal), lambda: access)
        return {"echo": await functions("echo", echo_app()), "portal": await functions("portal", app)}


async def compared(rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        manifest = Path(folder) / "portal.yaml"
        manifest.write_text(json.dumps({"runs": {"store": "runs.sqlite"}}), "utf-8")
        found: dict[str, Any] = {"functions": await functions_of_both(manifest), "rows": []}
        print(found["functions"], flush=True)
        ports = {"echo": free_port(), "portal": free_port()}
        address = f"127.0.0.1:{ports['portal']}"
        serve = ["portal", "serve", "--log-level", "warning", "--config", str(manifest), "--http", address]
        commands = {"echo": ["benchmarks.throughput", "--echo", str(ports["echo"])], "portal": serve}
        async with AsyncExitStack() as stack:
            pids = {}
            for name, command in commands.items():
                running = await anyio.open_process([sys.executable, "-m", *command], stdout=None, stderr=None)
                stack.push_async_callback(running.wait)
                stack.callback(running.terminate)
                pids[name] = running.pid
                wait_for_port(ports[name], seconds=START_SECONDS)
            for client in (raw, sdk):
                for era in ERAS:
                    found["rows"].append(await measured(client, era, ports, pids, rounds))
                    print(found["rows"][-1], flush=True)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1_000)
    parser.add_argument("--echo", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    configure_logs("error")
    if options.echo:
        gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)  # as `serve` does
        uvicorn.run(echo_app(), port=options.echo, log_config=None, access_log=False, server_header=False)
        return
    question = (__doc__ or "").splitlines()[0]
    result = {"question": question, "machine": machine(), "commit": commit(), "rounds": options.rounds}
    result |= anyio.run(compared, options.rounds)
    (RESULTS / "throughput.json").write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
