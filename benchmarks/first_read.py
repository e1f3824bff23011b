"""Question: does somebody who reads only `tools/list` and answers solve tasks, and how many turns are wasted?

    python -m benchmarks.first_read [--tasks DIR]

Ten tasks of `benchmarks.tasks`, drawn once, behind one portal with the default manifest. It reads a command from each
line of stdin, and prints what a client would show: `tools`, `start N`, `call NAME JSON`, `next` (what the user asks
next), `end` (whether the final state is the expected one). Whoever drives it, a person or a model, has seen nothing
else of the portal.

The transcript, a JSON line for each request of the user, call and answer, goes to .cache/tasks/first_read.jsonl. A turn
is wasted if a better answer before it would have spared it. results/first_read.jsonl is of a model that had not seen
the project, on 2026-11-28: 62 calls, 2 wasted, both in the first task, where five summaries began with the same
sentence. The two final states that differ come of 5000.0 instead of 5000, and of the words of a tweet, which the task
leaves open. It knew the kind of these servers from elsewhere, which spared it some first looks at results.
"""

import json
import os
import random
import sys
from pathlib import Path
from typing import Any, TextIO

import anyio
import anyio.to_thread
import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from benchmarks.tasks import ROOT, Upstreams, backends, load_tasks, parse_options

SEED = 34
COUNT = 10
MOST_ALIKE = 2
"""Tasks with the same servers."""


def drawn(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tasks of several requests each, with servers as different as can be."""
    chosen: list[dict[str, Any]] = []
    rows = [task for task in tasks if task["split"] == "base"]
    random.Random(SEED).shuffle(rows)
    for task in rows:
        alike = [each for each in chosen if servers(each) == servers(task)]
        if len(task["turns"]) > 1 and len(alike) < MOST_ALIKE and len(chosen) < COUNT:
            chosen.append(task)
    return chosen


def servers(task: dict[str, Any]) -> set[str]:
    return {row["name"] for row in task["servers"]}


class Reading:
    """One reader at one portal."""

    def __init__(
        self, portal: Client, upstreams: Upstreams, tasks: list[dict[str, Any]], transcript: TextIO
    ) -> None:
        self._portal, self._upstreams, self._tasks, self._transcript = portal, upstreams, tasks, transcript
        self._task: dict[str, Any] = tasks[0]
        self._turn = 0

    async def answer(self, command: str, rest: str) -> str:
        match command:
            case "tools":
                tools = (await self._portal.list_tools()).tools
                shown = [{"name": t.name, "description": t.description, "in": t.input_schema} for t in tools]
                return json.dumps(shown, indent=1)
            case "start":
                self._task, self._turn = self._tasks[int(rest)], 0
                for name in servers(self._task):
                    await self._upstreams.reset(name, self._task["entry"])
                return self._asked()
            case "next" if self._turn + 1 < len(self._task["turns"]):
                self._turn += 1
                return self._asked()
            case "call":
                name, _, arguments = rest.partition(" ")
                return await self._call(name, json.loads(arguments))
            case "end":
                states = {name: await self._upstreams.state(name) for name in servers(self._task)}
                wrong = [name for name, wanted in self._task["final_state"].items() if states[name] != wanted]
                return self._noted(f"other states: {wrong}" if wrong else "the expected state", "ended")
        return "tools | start N | call NAME JSON | next | end"

    def _asked(self) -> str:
        return self._noted(str(self._task["turns"][self._turn]["user"]), "user")

    async def _call(self, name: str, arguments: dict[str, Any]) -> str:
        result = await self._portal.call_tool(name, arguments)
        shown = "\n".join(getattr(block, "text", f"[{block.type}]") for block in result.content)
        return self._noted(shown, "answer", tool=name, arguments=arguments, is_error=result.is_error)

    def _noted(self, shown: str, key: str, **more: Any) -> str:
        self._transcript.write(
            json.dumps({"task": self._task["id"], **more, key: shown}, ensure_ascii=False) + "\n"
        )
        self._transcript.flush()
        return shown


async def read(folder: Path) -> None:
    tasks = drawn(load_tasks(folder))
    manifest = ROOT / ".cache" / "tasks" / "first_read.yaml"
    transcript = manifest.with_suffix(".jsonl")
    manifest.parent.mkdir(parents=True, exist_ok=True)
    with backends(tasks, folder / "upstream.py") as ports, transcript.open("w", encoding="utf-8") as file:
        rows = "\n".join(f"  {name}: {{url: 'http://127.0.0.1:{port}/mcp'}}" for name, port in ports.items())
        manifest.write_text(f"upstreams:\n{rows}\n", "utf-8")
        command = StdioServerParameters(
            command=sys.executable,
            args=["-m", "portal", "serve", "--config", str(manifest), "--log-level", "error"],
            env=dict(os.environ),
        )
        async with httpx2.AsyncClient(timeout=60) as http, Client(stdio_client(command)) as portal:
            reading = Reading(portal, Upstreams(ports, http), tasks, file)
            while line := await anyio.to_thread.run_sync(sys.stdin.readline):
                try:
                    print(await reading.answer(*line.strip().partition(" ")[::2]), flush=True)
                except (ValueError, IndexError) as error:
                    print(f"not understood: {error}", flush=True)


if __name__ == "__main__":
    anyio.run(read, parse_options(__doc__).tasks)
