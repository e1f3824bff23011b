"""Question: do scripts through the portal make exactly the calls, results and final states of tasks with known answers,
and what do they cost in tokens and round trips, compared with calling the tools one by one?

    python -m benchmarks.tasks [--tasks DIR] [--only ID ...] [--kernel javascript]

Each task's scripts run as given, joined, in one `execute_code`, with the default manifest apart from `upstreams`,
`server.output_tokens` and the kernel; for javascript they are translated line by line. A recorder between portal and
upstreams notes every `tools/call` as it was on the wire. Exit status 1 when one task differs. Writes
benchmarks/results/tasks.json (tasks_javascript.json), unless only some tasks were run.
"""

import argparse
import ast
import contextlib
import gzip
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.measuring import RESULTS, free_port, machine, wait_for_port
from manifests.kernels import JAVASCRIPT, PYTHON, KernelName
from portal.base.tokens import compact, count_tokens

ROOT = Path(__file__).resolve().parent.parent
BACKEND = ROOT / ".cache" / "bfcl"
PROTOCOL = "2025-11-25"
DEADLINE_SECONDS = 120


def load_tasks(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("*.jsonl.gz"))
    if not files:
        sys.exit(f"There are no tasks in {folder}: pass --tasks DIR.")
    return [json.loads(line) for file in files for line in gzip.open(file, "rt", encoding="utf-8")]


def backend_python() -> Path:
    """An environment of its own for the tasks' backends: their package drags in what we do not want."""
    python = BACKEND / "bin" / "python"
    if not (BACKEND / "ready").exists():
        print("setting up the backends' environment ...", file=sys.stderr)
        uv = [sys.executable, "-m", "uv"]
        subprocess.run([*uv, "venv", "-q", "--clear", "--python", sys.executable, str(BACKEND)], check=True)
        install = [*uv, "pip", "install", "-q", "-p", str(python)]
        subprocess.run([*install, "mcp>=2.3,<3", "mpmath==1.3.0"], check=True)
        subprocess.run([*install, "--no-deps", "bfcl-eval==2026.3.23"], check=True)
        (BACKEND / "ready").touch()
    return python


@dataclass
class Recorder:
    """Stands between portal and upstreams, and notes each `tools/call` with its answer."""

    ports: dict[str, int]
    calls: list[dict[str, Any]] = field(default_factory=list)
    bytes_seen: int = 0

    def app(self, http: httpx2.AsyncClient) -> Starlette:
        async def forward(request: Request) -> Response:
            name, body = request.path_params["name"], await request.body()
            kept = (
                "content-type",
                "accept",
                "mcp-protocol-version",
                "mcp-method",
                "mcp-name",
                "mcp-session-id",
            )
            headers = {key: value for key, value in request.headers.items() if key in kept}
            url = f"http://127.0.0.1:{self.ports[name]}/mcp"
            answer = await http.request(request.method, url, content=body, headers=headers)
            message = json.loads(body) if body else {}
            if message.get("method") == "tools/call":
                params = message["params"]
                self.calls.append(
                    {"server": name, "tool": params["name"], "arguments": params.get("arguments") or {}}
                )
            passed = {k: v for k, v in answer.headers.items() if k in ("content-type", "mcp-session-id")}
            return Response(answer.content, answer.status_code, passed)

        return Starlette(routes=[Route("/{name}/mcp", forward, methods=["POST", "GET", "DELETE"])])


class Upstreams:
    """Raw access to the backends beside the portal, for what is not the script's business."""

    def __init__(self, ports: dict[str, int], http: httpx2.AsyncClient) -> None:
        self._ports = ports
        self._http = http

    async def request(self, name: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
        answer = await self._http.post(
            f"http://127.0.0.1:{self._ports[name]}/mcp",
            json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params},
            headers={"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": PROTOCOL},
        )
        message = answer.json()
        if "result" not in message:
            sys.exit(f"{name} answered {method} with {message}")
        return dict(message["result"])

    async def reset(self, name: str, entry: str) -> None:
        await self.request(name, "tools/call", {"name": "__reset__", "arguments": {"entry": entry}})

    async def state(self, name: str) -> str:
        result = await self.request(name, "tools/call", {"name": "__state__", "arguments": {}})
        return str(result["content"][0]["text"])

    async def definitions(self, name: str) -> list[dict[str, Any]]:
        tools = (await self.request(name, "tools/list", {}))["tools"]
        return [{key: tool.get(key) for key in ("name", "description", "inputSchema")} for tool in tools]


@contextlib.contextmanager
def backends(tasks: list[dict[str, Any]], script: Path) -> Iterator[dict[str, int]]:
    """One backend a server name; gives their ports."""
    specs = {row["name"]: row["spec"] for task in tasks for row in task["servers"]}
    python = backend_python()
    ports: dict[str, int] = {}
    with contextlib.ExitStack() as stack:
        for name, spec in specs.items():
            ports[name] = free_port()
            process = subprocess.Popen(
                [python, script, spec, "--http", str(ports[name])],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        for port in ports.values():
            wait_for_port(port, seconds=60)
        yield ports


@contextlib.asynccontextmanager
async def served(app: Starlette) -> AsyncIterator[int]:
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve)
        await anyio.to_thread.run_sync(partial(wait_for_port, port, seconds=30))
        yield port
        server.should_exit = True


@dataclass
class Comparison:
    """What one task showed. Tokens are o200k_base."""

    task: str
    differences: list[str]
    direct_tokens: int
    portal_tokens: int
    direct_round_trips: int
    portal_round_trips: int


def script_of(task: dict[str, Any], kernel: KernelName = PYTHON) -> str:
    lines = [line for turn in task["turns"] for line in turn["script"]]
    names = [line.split(" = ", 1)[0] for line in lines]
    own = (
        lines if kernel == PYTHON else [f"const {in_javascript(ast.parse(line).body[0])};" for line in lines]
    )
    return "\n".join([*own, f"[{', '.join(names)}]"])


def in_javascript(node: ast.AST) -> str:
    """One of the tasks' lines, `r1 = namespace.function(a=r0["key"][0])`, or a part of it, in JavaScript."""
    match node:
        case ast.Assign(targets=[ast.Name(name)], value=value):
            return f"{name} = {in_javascript(value)}"
        case ast.Call(func=ast.Attribute(value=ast.Name(namespace), attr=name), args=[], keywords=keywords):
            given = ", ".join(f"{each.arg}: {in_javascript(each.value)}" for each in keywords)
            return f"await {namespace}.{name}({{{given}}})"
        case ast.Subscript(value=value, slice=key):
            return f"{in_javascript(value)}[{in_javascript(key)}]"
        case ast.List(elts=items):
            return f"[{', '.join(map(in_javascript, items))}]"
        case ast.Name(id=name):
            return name
        case _:
            return json.dumps(ast.literal_eval(node))


def differences(task: dict[str, Any], answer: dict[str, Any], calls: list[dict[str, Any]]) -> list[str]:
    wanted_calls = [call for turn in task["turns"] for call in turn["calls"]]
    wanted = [expected["result"] for turn in task["turns"] for expected in turn["expected"]]
    found = []
    if answer["status"] != "ok":
        found.append(f"status {answer['status']}: {answer['error']}")
    for number, (call, seen) in enumerate(
        zip(wanted_calls, [*calls, *[None] * len(wanted_calls)], strict=False)
    ):
        if seen is None or {key: seen[key] for key in call} != call:
            found.append(f"call {number}: wanted {call}, saw {seen}")
    if len(calls) != len(wanted_calls):
        found.append(f"{len(calls)} calls instead of {len(wanted_calls)}")
    for number, (want, got) in enumerate(zip(wanted, answer["result"] or [], strict=False)):
        if want != got and not (
            isinstance(got, str) and got == json.dumps(want)
        ):  # a text that is a scalar stays it
            found.append(f"result {number}: wanted {want!r}, got {got!r}")
    return found


def direct_cost(task: dict[str, Any], definitions: list[dict[str, Any]]) -> int:
    """Definitions once, and each call's arguments and result through the model's context."""
    turns = task["turns"]
    exchanged = [
        [c["tool"], c["arguments"], e["result"]]
        for t in turns
        for c, e in zip(t["calls"], t["expected"], strict=True)
    ]
    return count_tokens(compact(definitions)) + sum(count_tokens(compact(row)) for row in exchanged)


async def portal_cost(portal: Client, task: dict[str, Any], script: str, answer_text: str, tools: int) -> int:
    """The two definitions, one brief docs_search a turn with the user's own words, the script and its answer."""
    tokens = tools + count_tokens(script) + count_tokens(answer_text)
    for turn in task["turns"]:
        query = turn["user"]
        found = await portal.call_tool("docs_search", {"query": query[:500]})
        tokens += count_tokens(query[:500]) + count_tokens(found.content[0].text)
    return tokens


async def replay(
    portal: Client,
    task: dict[str, Any],
    upstreams: Upstreams,
    recorder: Recorder,
    tools: int,
    kernel: KernelName,
) -> Comparison:
    names = [row["name"] for row in task["servers"]]
    for name in names:
        await upstreams.reset(name, task["entry"])
    definitions = [tool for name in names for tool in await upstreams.definitions(name)]
    recorder.calls.clear()
    script = script_of(task, kernel)
    asked = {"code": script} if kernel == PYTHON else {"code": script, "kernel": kernel}
    with anyio.fail_after(DEADLINE_SECONDS):
        result = await portal.call_tool("execute_code", asked)
    found = differences(task, result.structured_content, recorder.calls)
    for name, wanted in task["final_state"].items():
        if (state := await upstreams.state(name)) != wanted:
            found.append(f"final state of {name}: wanted {wanted[:12]}…, found {state[:12]}…")
    calls = sum(len(turn["calls"]) for turn in task["turns"])
    return Comparison(
        task["id"],
        found,
        direct_tokens=direct_cost(task, definitions),
        portal_tokens=await portal_cost(portal, task, script, result.content[0].text, tools),
        direct_round_trips=calls,
        portal_round_trips=1 + len(task["turns"]),
    )


async def replay_split(
    tasks: list[dict[str, Any]], script: Path, folder: Path, kernel: KernelName
) -> list[Comparison]:
    with backends(tasks, script) as ports:
        recorder = Recorder(ports)
        async with httpx2.AsyncClient(timeout=60) as http, served(recorder.app(http)) as port:
            manifest = folder / "portal.yaml"
            rows = "\n".join(f"  {name}: {{url: 'http://127.0.0.1:{port}/{name}/mcp'}}" for name in ports)
            server = f"{{output_tokens: 200000, structured: true, kernels: {{{kernel}: true}}}}"
            manifest.write_text(f"upstreams:\n{rows}\nserver: {server}\n", "utf-8")
            command = StdioServerParameters(
                command=sys.executable,
                args=["-m", "portal", "serve", "--config", str(manifest), "--log-level", "error"],
                env=dict(os.environ),
            )
            async with Client(stdio_client(command)) as portal:
                listed = (await portal.list_tools()).tools
                tools = count_tokens(
                    compact(
                        [
                            {"name": t.name, "description": t.description, "inputSchema": t.input_schema}
                            for t in listed
                        ]
                    )
                )
                upstreams = Upstreams(ports, http)
                done = []
                for task in tasks:
                    done.append(await replay(portal, task, upstreams, recorder, tools, kernel))
                    print(".", end="", flush=True, file=sys.stderr)
                print(file=sys.stderr)
                return done


def report(done: list[Comparison], kernel: KernelName, *, writes: bool) -> int:
    right = [row for row in done if not row.differences]
    for row in done:
        for difference in row.differences[:4]:
            print(f"{row.task}: {difference[:400]}")
    direct, portal = sum(r.direct_tokens for r in done), sum(r.portal_tokens for r in done)
    trips, fewer = sum(r.direct_round_trips for r in done), sum(r.portal_round_trips for r in done)
    print(f"{len(right)} of {len(done)} tasks: every call, result and final state equal")
    print(
        f"tokens       {direct:>9,} calling tools one by one   {portal:>9,} through the portal  ({portal / direct:.0%})"
    )
    print(f"round trips  {trips:>9,}                             {fewer:>9,} (one search a turn, one script)")
    if writes:
        rows = {"machine": machine(), "tasks": [vars(row) for row in done]}
        name = "tasks.json" if kernel == PYTHON else f"tasks_{kernel}.json"
        (RESULTS / name).write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    return 0 if len(right) == len(done) else 1


async def run(options: argparse.Namespace) -> int:
    tasks = [t for t in load_tasks(options.tasks) if not options.only or t["id"] in options.only]
    done: list[Comparison] = []
    folder = ROOT / ".cache" / "tasks"
    folder.mkdir(parents=True, exist_ok=True)
    for split in sorted({task["split"] for task in tasks}):
        chosen = [task for task in tasks if task["split"] == split]
        done.extend(await replay_split(chosen, options.tasks / "upstream.py", folder, options.kernel))
    return report(done, options.kernel, writes=not options.only)


def parse_options(description: str | None) -> argparse.Namespace:
    """The options of the benchmarks that run the tasks."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=Path, default=ROOT.parent / "shared" / "tasks")
    parser.add_argument("--only", nargs="*", metavar="ID")
    parser.add_argument("--kernel", choices=[PYTHON, JAVASCRIPT], default=PYTHON)
    return parser.parse_args()


def main() -> None:
    sys.exit(anyio.run(run, parse_options(__doc__)))


if __name__ == "__main__":
    main()
