"""Question: what does Claude Code's model read for one task, with seven real servers directly, and with the portal in
front of the same servers?

    python -m benchmarks.before_after        (needs npm, and the servers of `scripts/servers --all`)

The real Claude Code runs, and a model server of this program answers it: always with the same steps, those of a model
that knows the right tools and makes no mistake. So what is counted are the requests that Claude Code really sends, and
no skill of a model. The task: how many lines of each of six logs are errors, and on which weekday are most orders?

- directly: list the folder, read the six logs in parallel, ask the database; the model counts what it read.
- through the portal: two searches in parallel, then one script, which counts.

By default Claude Code hides the tools of MCP servers behind a search of its own. Directly the model then first loads
the three definitions that it needs. `all listed` is with that switched off (ENABLE_TOOL_SEARCH=false).

The logs stand for all results that are longer than what they are needed for. Claude Code could search local files with
its own tools, too; not those of a remote server.

A request's tokens are its system prompt, definitions and messages as JSON, in o200k_base. What the same session has
without any MCP server is taken off, so what is left is due to the servers and the task:

- at the start: the first request: definitions, names of hidden tools, instructions of servers
- at the end: the last request, which holds everything that was read
- in all: the sum of all requests, because a model reads all of it anew each time (cached, mostly)
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml

from benchmarks.measuring import RESULTS, commit, machine
from benchmarks.model_server import model_server, send
from benchmarks.peers.environments import node_environment
from benchmarks.scene import lay_out
from portal.base.tokens import compact, count_tokens

CLAUDE_CODE: Final = "@anthropic-ai/claude-code@2.1.197"
SECONDS: Final = 300
LINES, ERRORS = 200, 7
TASK = "How many lines of each log in reports are errors? On which weekday are most orders in the database?"
QUERY = "SELECT weekday, count(*) AS orders FROM orders GROUP BY weekday ORDER BY orders DESC LIMIT 1"
MODES: Final = {"by default": "true", "all listed": "false"}
"""The first is what Claude Code does with Anthropic's own API; with another address it has to be asked for."""

SCRIPT = """
listing = await filesystem.list_directory(path="$FILES/reports")
names = [line.removeprefix("[FILE] ") for line in listing["content"].splitlines()]
logs = await asyncio.gather(*[filesystem.read_text_file(path=f"$FILES/reports/{name}") for name in names])
errors = {n: sum(" ERROR " in line for line in log["content"].splitlines()) for n, log in zip(names, logs)}
[errors, await sqlite.read_query(query="$QUERY")]
"""

Step = list[tuple[str, dict[str, Any]]]
"""What the model answers: calls of tools, or nothing if it is done."""


def main() -> None:
    print(" ".join(__doc__.splitlines()[:2]), end="\n\n")
    claude = node_environment("claude-code", CLAUDE_CODE) / "claude"
    rows = []
    with TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        manifest = lay_out(folder)
        for number in range(1, 7):
            (folder / f"reports/r{number}.log").write_text(error_log(number))
        servers = yaml.safe_load(manifest.read_text())["upstreams"]
        serve = {
            "args": ["serve", "--config", str(manifest)],
            "env": {"XDG_STATE_HOME": str(folder / "state")},
        }
        portal = {"portal": {"command": str(Path(sys.executable).with_name("mcp-code-portal")), **serve}}
        for mode, search in MODES.items():
            ways = {
                "none": ({}, []),
                "directly": (servers, _directly(folder, search)),
                "portal": (portal, _portal(folder)),
            }
            spent = {way: _session(claude, folder, search, *setup) for way, setup in ways.items()}
            bare = spent.pop("none")[0]
            rows += [_row(mode, way, requests, bare) for way, requests in spent.items()]
    for row in rows:
        print(compact(row))
    facts = {"machine": machine(), "commit": commit(), "claude_code": CLAUDE_CODE, "task": TASK, "rows": rows}
    (RESULTS / "before_after.json").write_text(json.dumps(facts, indent=1) + "\n", "utf-8")


def _row(
    mode: str, way: str, requests: Sequence[Mapping[str, Any]], bare: Mapping[str, Any]
) -> dict[str, Any]:
    beyond = [_tokens(each) - _tokens(bare) for each in requests]
    listed = [each for each in requests[0]["tools"] if each["name"].startswith("mcp__")]
    return {
        "tools": mode,
        "way": way,
        "requests": len(requests),
        "definitions": len(listed),
        "definitions_tokens": count_tokens(compact(listed)) if listed else 0,
        "at_the_start": beyond[0],
        "at_the_end": beyond[-1],
        "in_all": sum(beyond),
    }


def _tokens(request: Mapping[str, Any]) -> int:
    return count_tokens(compact({key: request[key] for key in ("system", "tools", "messages")}))


def _directly(folder: Path, search: str) -> list[Step]:
    names = ("filesystem__list_directory", "filesystem__read_text_file", "sqlite__read_query")
    load: list[Step] = [[("ToolSearch", {"query": "select:" + ",".join(f"mcp__{name}" for name in names)})]]
    read: Step = [(names[1], {"path": f"{folder}/reports/r{number}.log"}) for number in range(1, 7)]
    first: Step = [(names[0], {"path": f"{folder}/reports"}), (names[2], {"query": QUERY})]
    return [*(load if search == "true" else []), first, read]


def _portal(folder: Path) -> list[Step]:
    searches = ("read a text file", "run a select query")
    script = portal_script(folder)
    return [[("docs_search", {"query": query}) for query in searches], [("execute_code", {"code": script})]]


def portal_script(folder: Path) -> str:
    return SCRIPT.strip().replace("$FILES", str(folder)).replace("$QUERY", QUERY)


def _session(
    claude: Path, folder: Path, search: str, servers: Mapping[str, Any], steps: Sequence[Step]
) -> list[dict[str, Any]]:
    """The requests that Claude Code sends for the task, each with what the model reads."""
    config = folder / "servers.json"
    config.write_text(json.dumps({"mcpServers": servers}))
    home = folder / "home"
    home.mkdir(exist_ok=True)
    with _model(steps) as (address, requests):
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "ENABLE_TOOL_SEARCH": search,
            "ANTHROPIC_BASE_URL": address,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            # Else the first request may come before the servers have started.
            "MCP_CONNECTION_NONBLOCKING": "0",
            "MCP_CONNECT_TIMEOUT_MS": "120000",
            "MCP_TIMEOUT": "120000",
        }
        allowed = [f"mcp__{name}" for name in servers] + ["ToolSearch"]
        options = ["--strict-mcp-config", "--mcp-config", str(config), "--allowedTools", *allowed]
        command = [str(claude), "-p", TASK, *options]
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    if done.returncode or len(requests) != len(steps) + 1 or "error" in _results(requests[-1]):
        raise RuntimeError(f"{done.stdout}{done.stderr}{_results(requests[-1]) if requests else ''}"[-2000:])
    return requests


def _results(request: Mapping[str, Any]) -> str:
    """`error` if a call failed: then the steps are not those of this version."""
    contents = [each["content"] for each in request["messages"] if isinstance(each["content"], list)]
    failed = [part for content in contents for part in content if part.get("is_error")]
    return f"error: {compact(failed)}" if failed else ""


@contextmanager
def _model(steps: Sequence[Step]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve Anthropic's Messages API: the answer to the nth request with tools is the nth step, then an end."""
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if "count_tokens" in self.path or not request.get("tools"):
                send(self, "application/json", json.dumps({"input_tokens": 1}))
                return
            step = steps[len(requests)] if len(requests) < len(steps) else []
            requests.append(request)
            names = [each["name"] for each in request["tools"]]
            calls = [(next((full for full in names if full.endswith(name)), name), its) for name, its in step]
            send(self, "text/event-stream", "".join(_events(request["model"], calls)))

        def do_HEAD(self) -> None:
            send(self, "text/plain", "")

        def log_message(self, *_: object) -> None: ...

    with model_server(Handler) as url:
        yield url, requests


def _events(model: str, calls: Step) -> Iterator[str]:
    def event(kind: str, **data: object) -> str:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n"

    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": []}
    yield event("message_start", message={**message, "usage": {"input_tokens": 1, "output_tokens": 1}})
    blocks = [
        (
            {"type": "tool_use", "id": f"toolu_{os.urandom(6).hex()}", "name": name, "input": {}},
            json.dumps(arguments),
        )
        for name, arguments in calls
    ] or [({"type": "text", "text": ""}, "done")]
    for index, (block, text) in enumerate(blocks):
        delta = (
            {"type": "input_json_delta", "partial_json": text}
            if calls
            else {"type": "text_delta", "text": text}
        )
        yield event("content_block_start", index=index, content_block=block)
        yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    reason = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    yield event("message_delta", delta=reason, usage={"output_tokens": 1})
    yield event("message_stop")


def error_log(number: int) -> str:
    kinds = ["ERROR" if line % (LINES // ERRORS) == number else "INFO" for line in range(LINES)]
    lines = [
        f"2026-11-28T10:{line % 60:02} {kind} worker {line % 7} job {line:05} 1234 ms"
        for line, kind in enumerate(kinds)
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
