"""Question: is a call made twice, or lost, when the portal is killed at any instant and another one goes on?

    python -m benchmarks.durable --kills 1000

A script makes calls that may not be repeated, one by one and gathered, beside calls that may, to an upstream that
counts its effects in a file. Its portal gets SIGKILL at a random moment, or at an edge of the barrier: before and after
the commit of an intent, before and after the call is sent, before and after the commit of an outcome and of the answer.
Each time another portal goes on, until the run ends. Then each outcome that the script saw must be true: a value means
one effect, `outcome_unknown` one or none; none has two. Raw numbers go to benchmarks/results/durable.json.
"""

import argparse
import functools
import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from benchmarks.measuring import RESULTS, machine, percentile
from manifests.loader import load_manifest
from portal.composition import Portal, open_portal
from portal.definitions import ExecuteCode
from portal.logs import configure_logs
from portal.runs.store import RunFile
from portal.runs.writer import RunStore
from portal.sessions import LOCAL
from upstreams.upstream import Upstream

SCRIPT = """
async def unsafe(n):
    try:
        return (await box.effect(n=n))["n"]
    except ToolError as error:
        return error.code

one_by_one = [await unsafe(n) for n in range(3)]
gathered = await asyncio.gather(
    *(unsafe(n) for n in range(3, 13)), *(box.read(n=n) for n in range(5)), *(box.put(n=n) for n in range(4))
)
[*one_by_one, *gathered[:10], *[await unsafe(n) for n in range(13, 16)]]
"""
CALLS = 16
"""Calls of the script that may not be repeated, numbered from 0."""

EDGES = (
    "before an intent", "after an intent", "before a call", "after a call", "before an outcome", "after an outcome",
    "before the answer", "after the answer",
)  # fmt: skip
LIFE_SECONDS = 60.0
MOMENT_SECONDS = 0.35
"""Random kills come at most this long after the portal began to go on with the run."""


@dataclass
class Tally:
    """What was seen over all runs."""

    runs: int = 0
    kills: int = 0
    effects: int = 0
    unknown: int = 0
    doubled: int = 0
    lost: int = 0
    wrong: list[str] = field(default_factory=list)
    by_edge: Counter[str] = field(default_factory=Counter)
    resumed_ms: list[float] = field(default_factory=list)


class CountingUpstream:
    """An MCP server in a process of its own, which appends a line to a file for each effect."""

    def __init__(self, folder: Path) -> None:
        self.effects = folder / "effects"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "benchmarks.counting_upstream", str(self.port), str(self.effects)]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + LIFE_SECONDS
        while socket.socket().connect_ex(("127.0.0.1", self.port)):
            if time.monotonic() > deadline:
                raise TimeoutError("the upstream did not start")
            time.sleep(0.05)

    def counts(self, run: str) -> Counter[int]:
        """How often each call of a run had its effect."""
        lines = self.effects.read_text().split("\n") if self.effects.exists() else []
        return Counter(int(line.split()[1]) for line in lines if line.startswith(f"{run} "))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def kill_at(edge: str, number: int) -> None:
    """Let this process kill itself when it reaches an edge for the `number`th time."""
    left = [number]

    def reached(name: str) -> None:
        if name == edge:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    commit = RunStore._commit

    def watched(store: RunStore, jobs: list[Any]) -> None:
        kinds = {_kind(job.work) for job in jobs} - {""}
        for kind in kinds:
            reached(f"before {kind}")
        commit(store, jobs)
        for kind in kinds:
            reached(f"after {kind}")

    call = Upstream.call

    async def sent(upstream: Upstream, *parts: Any, **named: Any) -> Any:
        on_sent = named.pop("on_sent")

        def note(was_seen: bool) -> None:
            on_sent(was_seen)
            reached("before a call")

        result = await call(upstream, *parts, **named, on_sent=note)
        reached("after a call")
        return result

    RunStore._commit = watched  # type: ignore[method-assign]
    Upstream.call = sent  # type: ignore[assignment, method-assign]


def _kind(work: Any) -> str:
    named = getattr(work, "keywords", {})
    for key, kind in (("answer", "the answer"), ("calls", "an intent"), ("outcomes", "an outcome")):
        if named.get(key):
            return kind
    return ""


async def live(manifest: Path, run_file: Path, started: int) -> None:
    """One life of a portal: begins the run, or goes on with it, until it has ended."""
    async with open_portal(load_manifest(manifest, {}), lambda line: None) as portal:
        await portal.sandbox()
        await portal.fleet.settled(LIFE_SECONDS)
        began = time.perf_counter()
        os.write(started, b"x")
        run = await _run(portal, run_file)
        while (answer := await portal.runs.answer(run, None)).status in ("running", "waiting"):
            await anyio.sleep(0.005)
        told = {"answer": answer.structured(), "ms": (time.perf_counter() - began) * 1000}
        unfinished = run_file.with_suffix(".new")
        unfinished.write_text(json.dumps(told))
        unfinished.replace(run_file.with_suffix(".json"))


async def _run(portal: Portal, run_file: Path) -> str:
    assert portal.runs.store is not None
    known = await portal.runs.store.read(RunFile.listed)
    if known:
        return known[0].id
    script = f"run = {run_file.stem!r}\n" + SCRIPT.replace("(n=n)", "(n=n, run=run)")
    answer = await portal.runs.start(portal.execution, ExecuteCode(script), LOCAL)
    return answer.run_id


def one_run(
    number: int, upstream: CountingUpstream, folder: Path, chance: random.Random, tally: Tally
) -> None:
    """One run, whose portal is killed a few times, and what its script saw."""
    name = f"r{number}"
    place = folder / name
    place.mkdir()
    upstreams = {"box": {"url": f"http://127.0.0.1:{upstream.port}/mcp"}}
    manifest = place / "portal.yaml"
    manifest.write_text(json.dumps({"upstreams": upstreams, "runs": {"store": "runs.sqlite"}}))
    run_file = place / name
    kills, life = chance.randint(1, 3), 0
    while not run_file.with_suffix(".json").exists():
        life += 1
        edge = chance.choice(EDGES) if chance.random() < 0.5 else "a random moment"
        if life > kills:
            edge = ""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            if edge in EDGES:
                kill_at(edge, chance.randint(1, 16 if "answer" not in edge else 1))
            _in_child(functools.partial(live, manifest, run_file, writing))
        os.close(writing)
        _wait_or_kill(child, reading, chance.random() * MOMENT_SECONDS if edge == "a random moment" else None)
        os.close(reading)
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status):
            tally.kills += 1
            tally.by_edge[edge or "hung"] += 1
        if life > kills + 3:
            tally.wrong.append(f"{name}: the run did not end in {life} lives")
            break
    else:
        _judge(name, json.loads(run_file.with_suffix(".json").read_text()), upstream.counts(name), tally)
        shutil.rmtree(place)
    tally.runs += 1


def _in_child(work: Callable[[], Any]) -> None:
    status = 1
    try:
        anyio.run(work)
        status = 0
    finally:
        os._exit(status)


def _wait_or_kill(child: int, reading: int, seconds: float | None) -> None:
    """Kill a portal some time after it started; without a time only one that hangs."""
    if not select.select([reading], [], [], LIFE_SECONDS)[0]:
        os.kill(child, signal.SIGKILL)
        return
    os.read(reading, 1)
    descriptor = os.pidfd_open(child)
    if not select.select([descriptor], [], [], LIFE_SECONDS if seconds is None else seconds)[0]:
        os.kill(child, signal.SIGKILL)
    os.close(descriptor)


def _judge(name: str, told: dict[str, Any], effects: Counter[int], tally: Tally) -> None:
    answer = told["answer"]
    tally.effects += effects.total()
    tally.resumed_ms.append(told["ms"])
    if answer["status"] != "ok":
        tally.wrong.append(f"{name}: {json.dumps(answer)[:2000]}")
        return
    for n in range(CALLS):
        seen, count = answer["result"][n], effects[n]
        tally.doubled += count > 1
        tally.lost += seen == n and count == 0
        tally.unknown += seen == "outcome_unknown"
        if seen not in (n, "outcome_unknown"):
            tally.wrong.append(f"{name}: call {n} gave {seen!r}")


def killed(kills: int, seed: int, report: Callable[[str], None] = lambda line: None) -> Tally:
    """Run scripts until so many portals have been killed."""
    configure_logs("error")
    tally, chance = Tally(), random.Random(seed)
    with tempfile.TemporaryDirectory() as created:
        folder = Path(created)
        os.environ["XDG_STATE_HOME"] = str(folder / "state")
        upstream = CountingUpstream(folder)
        try:
            while tally.kills < kills and len(tally.wrong) < 5:
                one_run(tally.runs, upstream, folder, chance, tally)
                report(f"{tally.kills} of {kills} kills, {tally.runs} runs, {tally.unknown} unknown")
        finally:
            upstream.close()
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options = parser.parse_args()
    print(f"seed {options.seed}")
    tally = killed(options.kills, options.seed, lambda line: print(line, end="\r", flush=True))
    found = {
        "kills": tally.kills,
        "runs": tally.runs,
        "effects": tally.effects,
        "doubled": tally.doubled,
        "lost": tally.lost,
        "unknown": tally.unknown,
        "kills by edge": dict(tally.by_edge),
        "ms of the last life, p50": round(percentile(tally.resumed_ms, 50), 1),
        "wrong": tally.wrong,
    }
    print(json.dumps({**found, "machine": machine()}, indent=2))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "durable.json").write_text(json.dumps({**found, "machine": machine()}, indent=2) + "\n")
    sys.exit(bool(tally.doubled or tally.lost or tally.wrong))


if __name__ == "__main__":
    main()
