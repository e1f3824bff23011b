"""Question: how long does a large answer of one upstream hold the portal's event loop, and with it everybody else?

    python -m benchmarks.large_answers [--out FILE]

Servers in processes of their own answer calls with 8 MB: valid JSON of several kinds, and such as is refused. A task
that only takes its turns notes the most CPU time between two of them while one call is answered: it never sleeps, so on
an idle machine that is time. Numbers are the medians of five calls: milliseconds until the answer, and of the longest
hold. Raw numbers go to benchmarks/results/large_answers.json.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.lowlevel
import structlog

from benchmarks.measuring import RESULTS, commit, machine, percentile
from manifests.portal_manifest import HttpUpstream, StdioUpstream
from tests.upstreams.faults.http_server import Exchange, FaultyHttpServer
from tests.upstreams.peers import open_fleet
from upstreams.errors import UpstreamError
from upstreams.upstream import Upstream

ROOT = str(Path(__file__).resolve().parents[1])
CALLS = 5
ANSWER_BYTES = 8_000_000

Spec: TypeAlias = StdioUpstream | HttpUpstream

PARTS = {
    "one text": '"text": "%s"' % ("x" * ANSWER_BYTES),
    "one text, all escapes": '"text": "%s"' % ("\\n" * (ANSWER_BYTES // 2)),
    "one text, not ASCII": '"text": "%s"' % ("äöü€ " * (ANSWER_BYTES // 10)),
    "rows": '"rows": [%s1]'
    % ('{"id": 12345, "name": "row 1", "note": "xxxxxxxxxxxxxxxx"},' * (ANSWER_BYTES // 60)),
    "numbers": '"numbers": [%s1]' % ("0.1234567," * (ANSWER_BYTES // 10)),
    "lists, as many as are read": '"lists": [%s1]' % ("[]," * 440_000),
    "too many lists, refused": '"lists": [%s1]' % ("[]," * (ANSWER_BYTES // 3)),
    "no JSON, refused": '"rows": [%s' % ('{"id": 12345, "name": "row 1"},' * (ANSWER_BYTES // 31)),
    "half surrogates": '"rows": [%s1]' % ('"\\ud83d text of a row of a table",' * (ANSWER_BYTES // 34)),
}


def answer(kind: str, request_id: object) -> bytes:
    return f'{{"jsonrpc": "2.0", "id": {request_id}, "result": {{"structuredContent": {{{PARTS[kind]}}}}}}}'.encode()


def serve_stdio(kind: str) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        method, request_id = message.get("method"), message.get("id")
        if method == "tools/call":
            sys.stdout.buffer.write(answer(kind, request_id) + b"\n")
        elif request_id is not None:
            result = {"tools": [{"name": "large", "inputSchema": {"type": "object"}}]}
            if method == "initialize":
                result = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "large", "version": "1"},
                }
            message = {"jsonrpc": "2.0", "id": request_id, "result": result}
            sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
        sys.stdout.buffer.flush()


async def serve_http(kind: str, *, as_events: bool) -> None:
    async def large(exchange: Exchange) -> None:
        body = answer(kind, exchange.message["id"])
        if as_events:
            await exchange.events(b"data: " + body + b"\n\n")
            exchange.close()
        else:
            await exchange.send("200 OK", body)

    async with FaultyHttpServer(large, always=True).serving() as server:
        print(server.url, flush=True)
        await anyio.sleep_forever()


@asynccontextmanager
async def serving(wire: str, kind: str) -> AsyncIterator[Spec]:
    command = [sys.executable, "-m", "benchmarks.large_answers", "--serve", wire, "--kind", kind]
    if wire == "stdio":
        yield StdioUpstream(command=command[0], args=tuple(command[1:]), cwd=ROOT)
        return
    async with await anyio.open_process(command, stderr=None) as process:
        assert process.stdout
        yield HttpUpstream(url=(await process.stdout.receive()).decode().strip())
        process.kill()


async def longest_hold(upstream: Upstream, tool: str) -> tuple[float, float]:
    """Milliseconds of one call, and of CPU time of the longest hold between two turns meanwhile."""
    longest = 0.0

    async def take_turns() -> None:
        nonlocal longest
        last = time.thread_time()
        while True:
            await anyio.lowlevel.checkpoint()
            now = time.thread_time()
            longest, last = max(longest, now - last), now

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take_turns)
        began = time.perf_counter()
        with suppress(UpstreamError):
            await upstream.call(tool, {}, seconds=60)
        took = time.perf_counter() - began
        tasks.cancel_scope.cancel()
    return took * 1000, longest * 1000


async def measured(wire: str, kind: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        async with (
            serving(wire, kind) as spec,
            open_fleet({"large": spec}, Path(folder), lambda upstream: None) as fleet,
        ):
            await fleet.settled(60)
            pairs = [
                await longest_hold(fleet["large"], "large" if wire == "stdio" else "look")
                for _ in range(CALLS)
            ]
    took, held = (percentile(each, 0.5) for each in zip(*pairs, strict=True))
    return {"answer_ms": round(took, 1), "held_ms": round(held, 1)}


async def main(kinds: list[str]) -> dict[str, object]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    answers: dict[str, dict[str, float]] = {}
    results = {"machine": machine(), "commit": commit(), "answer_bytes": ANSWER_BYTES, "answers": answers}
    for kind in kinds:
        for wire in ("stdio", "json", "events"):
            answers[f"{kind}, {wire}"] = numbers = await measured(wire, kind)
            print(f"{kind:26} {wire:8} {numbers}", flush=True)
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=list(PARTS))
    parser.add_argument("--out", type=Path, default=RESULTS / "large_answers.json")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve == "stdio":
        serve_stdio(options.kind)
    elif options.serve:
        anyio.run(lambda: serve_http(options.kind, as_events=options.serve == "events"))
    else:
        measurements = anyio.run(main, options.kinds)
        options.out.write_text(json.dumps(measurements, indent=1) + "\n")
        print(f"raw numbers: {options.out}")
