"""Question: does each run of the tasks replay from its journal with the same answer, bit for bit?

    python -m benchmarks.replays [--tasks DIR] [--only ID ...]

The scripts of benchmarks/tasks.py run in the background, so that each is journaled. Then each is repeated from the
store, as `mcp-code-portal runs replay` does it, without a call, and result, output and error are compared. Exit status
1 when one differs. Writes benchmarks/results/replays.json, unless only some tasks were run.
"""

import argparse
import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2

from benchmarks.measuring import RESULTS, machine, percentile
from benchmarks.tasks import (
    DEADLINE_SECONDS,
    Recorder,
    Upstreams,
    backends,
    differences,
    load_tasks,
    parse_options,
    script_of,
    served,
)
from manifests.loader import load_manifest
from portal.app.composition import open_portal
from portal.base.caller import LOCAL
from portal.base.requests import ExecuteCode
from portal.records.logs import configure_logs
from portal.runs.answer import Answer
from portal.runs.past import Past
from portal.server.portal import Portal
from sandbox_runtime.errors import DivergenceError
from sandbox_runtime.guest_json import encode
from sandbox_runtime.recording import Record
from sandbox_runtime.replay import replay


async def journaled(portal: Portal, code: str) -> tuple[Answer, Record]:
    """Run a script in the background to its end. Returns its answer, and the record in the store."""
    run = (await portal.runs.start(portal.execution.profile, ExecuteCode(code), LOCAL)).run_id
    with anyio.fail_after(DEADLINE_SECONDS):
        while True:
            news = portal.runs.changes.news
            stored = await portal.runs.load(run, None)
            if stored.answer is not None:
                break
            await news.wait()
    record = Past.of(stored)[1].record
    assert record is not None
    environment = portal.manifest.portal.capabilities.environment
    return await portal.runs.answer(run, None), record.with_environment(environment)


async def difference(portal: Portal, answer: Answer, record: Record) -> tuple[str, float]:
    """How the replay differs from the answer, "" if it does not, and its milliseconds."""
    where = partial(portal.manifest.where, "capabilities", "limits")
    began = anyio.current_time()
    try:
        result = await replay(await portal.sandbox(), record, where)
    except DivergenceError as error:
        return str(error), 0.0
    ms = (anyio.current_time() - began) * 1000
    errors = [error and (error.code, error.line, error.traceback) for error in (answer.error, result.error)]
    if errors[0] != errors[1]:
        return f"error {errors[1]} instead of {errors[0]}", ms
    for name, want, got in (
        ("result", encode(answer.result), encode(result.value)),
        ("output", answer.stdout.encode(), result.stdout.encode()),
    ):
        if want != got:
            return f"{name} {got[:200]!r} instead of {want[:200]!r}", ms
    return "", ms


async def of_split(tasks: list[dict[str, Any]], script: Path, folder: Path) -> list[dict[str, Any]]:
    with backends(tasks, script) as ports:
        recorder = Recorder(ports)
        async with httpx2.AsyncClient(timeout=60) as http, served(recorder.app(http)) as port:
            urls = {name: {"url": f"http://127.0.0.1:{port}/{name}/mcp"} for name in ports}
            path = folder / f"{tasks[0]['split']}.yaml"
            path.write_text(
                json.dumps({"upstreams": urls, "runs": {"store": f"{path.stem}.sqlite"}}), "utf-8"
            )
            upstreams, done = Upstreams(ports, http), []
            async with open_portal(load_manifest(path, {}), lambda line: None) as portal:
                for task in tasks:
                    for row in task["servers"]:
                        await upstreams.reset(row["name"], task["entry"])
                    recorder.calls.clear()
                    answer, record = await journaled(portal, script_of(task))
                    wrong, calls = (
                        differences(task, answer.structured(), recorder.calls),
                        len(recorder.calls),
                    )
                    differs, ms = await difference(portal, answer, record)
                    if len(recorder.calls) != calls:
                        differs = differs or "the replay made a call"
                    done.append(
                        {
                            "task": task["id"],
                            "calls": calls,
                            "wrong": wrong,
                            "differs": differs,
                            "ms": round(ms, 1),
                        }
                    )
                    print(".", end="", flush=True, file=sys.stderr)
            print(file=sys.stderr)
            return done


def report(done: list[dict[str, Any]], *, writes: bool) -> int:
    for row in done:
        if row["wrong"] or row["differs"]:
            print(f"{row['task']}: {row['differs'] or 'the run itself: ' + row['wrong'][0][:400]}")
    same = [row for row in done if not row["differs"]]
    right = [row for row in done if not row["wrong"]]
    print(
        f"{len(same)} of {len(done)} runs replay bit for bit, p50 {percentile([row['ms'] for row in done], 0.5)} ms; "
        f"{len(right)} did what the task says"
    )
    if writes:
        rows = {"question": (__doc__ or "").splitlines()[0], "machine": machine(), "runs": done}
        (RESULTS / "replays.json").write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    return 0 if len(same) == len(done) else 1


async def run(options: argparse.Namespace) -> int:
    tasks = [t for t in load_tasks(options.tasks) if not options.only or t["id"] in options.only]
    done: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for split in sorted({task["split"] for task in tasks}):
            chosen = [task for task in tasks if task["split"] == split]
            done.extend(await of_split(chosen, options.tasks / "upstream.py", Path(folder)))
    return report(done, writes=not options.only)


def main() -> None:
    configure_logs("error")
    sys.exit(anyio.run(run, parse_options(__doc__)))


if __name__ == "__main__":
    main()
