"""Question: what does the model of a client with a code mode of its own read for one task, with seven servers directly,
and with the portal in front of them?

    python -m benchmarks.code_mode        (needs npm, and the servers of `scripts/servers --all`)

The client is Codex, whose code mode is on with its default model: the model writes JavaScript that calls tools of MCP
servers, which it finds in ALL_TOOLS. Task, servers and tokens are those of `before_after.py`. The steps are again those
of a model that makes no mistake:

- directly: look up three definitions, then one program, which reads, counts and asks the database.
- through the portal: look up its two definitions, two searches in one program, then one program with one script.
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

import tomlkit
import yaml

from benchmarks.before_after import QUERY, SECONDS, TASK, error_log, portal_script
from benchmarks.measuring import RESULTS, commit, machine
from benchmarks.model_server import model_server, send
from benchmarks.peers.environments import node_environment
from benchmarks.scene import lay_out
from portal.base.tokens import compact, count_tokens

CODEX: Final = "@openai/codex@0.171.0"

FIND = (
    "text(ALL_TOOLS.filter(t => /$NAMES/.test(t.name)).map(t => t.name + ': ' + t.description).join('\\n'));"
)
PROGRAM = """
const dir = "$FILES/reports";
const listing = (await tools.mcp__filesystem__list_directory({path: dir})).content[0].text;
const names = listing.split("\\n").map((line) => line.replace("[FILE] ", ""));
const logs = await Promise.all(names.map((name) => tools.mcp__filesystem__read_text_file({path: `${dir}/${name}`})));
const errors = Object.fromEntries(names.map((n, i) => [n, logs[i].content[0].text.split(" ERROR ").length - 1]));
const days = await tools.mcp__sqlite__read_query({query: "$QUERY"});
text([errors, days.content[0].text]);
"""
SEARCHES = """
for (const query of ["read a text file", "run a select query"]) {
  text((await tools.mcp__portal__docs_search({query})).content[0].text);
}
"""


def main() -> None:
    print(" ".join(__doc__.splitlines()[:2]), end="\n\n")
    codex = node_environment("codex", CODEX) / "codex"
    with TemporaryDirectory(dir=Path.home()) as temporary:  # Codex takes no home below /tmp
        folder = Path(temporary).resolve()
        manifest = lay_out(folder)
        for number in range(1, 7):
            (folder / f"reports/r{number}.log").write_text(error_log(number))
        servers = yaml.safe_load(manifest.read_text())["upstreams"]
        own = {"XDG_STATE_HOME": str(folder / "state"), "HOME": str(Path.home())}
        program = str(Path(sys.executable).with_name("mcp-code-portal"))
        portal = {"portal": {"command": program, "args": ["serve", "--config", str(manifest)], "env": own}}
        directly = [
            FIND.replace("$NAMES", "__(list_directory|read_text_file|read_query)$"),
            PROGRAM.replace("$FILES", str(folder)).replace("$QUERY", QUERY),
        ]
        script = json.dumps(portal_script(folder))
        call = f"text((await tools.mcp__portal__execute_code({{code: {script}}})).content[0].text);"
        bare = _session(codex, folder, {}, [])[0]
        rows = [
            _row("directly", _session(codex, folder, servers, directly), bare),
            _row(
                "portal",
                _session(codex, folder, portal, [FIND.replace("$NAMES", "portal"), SEARCHES, call]),
                bare,
            ),
        ]
    for row in rows:
        print(compact(row))
    facts = {"machine": machine(), "commit": commit(), "codex": CODEX, "task": TASK, "rows": rows}
    (RESULTS / "code_mode.json").write_text(json.dumps(facts, indent=1) + "\n", "utf-8")


def _row(way: str, requests: Sequence[Mapping[str, Any]], bare: Mapping[str, Any]) -> dict[str, Any]:
    beyond = [_tokens(each) - _tokens(bare) for each in requests]
    ends = {"at_the_start": beyond[0], "at_the_end": beyond[-1], "in_all": sum(beyond)}
    return {"way": way, "requests": len(requests), **ends}


def _tokens(request: Mapping[str, Any]) -> int:
    return count_tokens(compact({key: request.get(key) for key in ("instructions", "tools", "input")}))


def _session(
    codex: Path, folder: Path, servers: Mapping[str, Any], programs: Sequence[str]
) -> list[dict[str, Any]]:
    """The requests that Codex sends for the task, each with what the model reads."""
    home = folder / "codex"
    home.mkdir(exist_ok=True)
    rest = {"required": True, "startup_timeout_sec": 120, "default_tools_approval_mode": "approve"}
    with _model(programs) as (address, requests):
        provider = {"name": "none", "base_url": f"{address}/v1", "wire_api": "responses", "env_key": "NO_KEY"}
        config = {
            "model_provider": "none",
            "model_providers": {"none": provider},
            "mcp_servers": {name: {**server, **rest} for name, server in servers.items()},
        }
        (home / "config.toml").write_text(tomlkit.dumps(config))
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "CODEX_HOME": str(home),
            "NO_KEY": "none",
        }
        done = subprocess.run(
            [str(codex), "exec", "--skip-git-repo-check", TASK],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    answers = [compact(each) for each in requests[-1]["input"] if each["type"] == "custom_tool_call_output"]
    if (
        done.returncode
        or len(requests) != len(programs) + 1
        or any("Script failed" in each for each in answers)
    ):
        raise RuntimeError(f"{done.stdout}{done.stderr}{answers}"[-2000:])
    return requests


@contextmanager
def _model(programs: Sequence[str]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve OpenAI's Responses API: the answer to the nth request is the nth program, then an end."""
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            number = len(requests)
            item: dict[str, Any] = {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
            }
            item["content"] = [{"type": "output_text", "text": "done", "annotations": []}]
            if number <= len(programs):
                item = {"type": "custom_tool_call", "id": f"ctc_{number}", "call_id": f"call_{number}"}
                item |= {"name": "exec", "input": programs[number - 1].strip()}
            whole = {"id": f"resp_{number}", "object": "response", "status": "completed", "output": [item]}
            usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
            events = [
                {"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}},
                {"type": "response.output_item.done", "output_index": 0, "item": item},
                {"type": "response.completed", "response": {**whole, "usage": usage}},
            ]
            send(
                self,
                "text/event-stream",
                "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events),
            )

        def do_GET(self) -> None:
            send(self, "application/json", '{"data": [], "models": []}')

        def log_message(self, *_: object) -> None: ...

    with model_server(Handler) as url:
        yield url, requests


if __name__ == "__main__":
    main()
