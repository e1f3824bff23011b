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
import gc
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
from portal.app.composition import open_portal
from portal.base.caller import LOCAL
from portal.base.requests import ExecuteCode
from portal.records.logs import configure_logs
from portal.records.store.records import OPEN
from portal.records.store.run_tables import RunTables
from portal.records.store.writer import Pace, RunStore
from portal.server.portal import Portal
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
RANDOM = "a random moment"

ONE_BY_ONE = (0, 1, 2, 13, 14, 15)
"""Those that are made alone. Each kill can make the outcome of one of them unknown, no more."""

MOST_TIMES = {"an intent": 4, "a call": 20, "an outcome": 4, "the answer": 1}
"""How often a run that is not killed gets to each edge, at least."""

RECENT, LATEST = 50, 1.5
"""A random moment is one until so many times the usual life of recent runs: the machine may be busy for a while."""

MOST_KILLS = 8
"""Kills of one run. Then it is left to end."""

LIFE_SECONDS = 60.0
MANIFEST: dict[str, Any] = {
    "runs": {"store": "runs.sqlite"},
    "server": {"check": "off", "observe_results": False, "workers": 1, "start_seconds": LIFE_SECONDS},
}
"""With what a portal needs for this alone, because thousands are started."""


@dataclass
class Effects:
    """What scripts saw of their calls, and what happened."""

    runs: int = 0
    effects: int = 0
    unknown: int = 0
    doubled: int = 0
    lost: int = 0
    refused: int = 0
    """Calls that could not be journaled, and were not sent."""
    wrong: list[str] = field(default_factory=list)

    def judge(self, name: str, answer: dict[str, Any], effects: Counter[int]) -> bool:
        """Compare the answer of a run with its effects. Returns whether the script ended well."""
        self.runs += 1
        self.effects += effects.total()
        if answer["status"] != "ok":
            self.wrong.append(f"{name}: {json.dumps(answer)[:2000]}")
            return False
        for n in range(CALLS):
            seen, count = answer["result"][n], effects[n]
            is_refused = seen == "journal_failed" and count == 0
            self.doubled += count > 1
            self.lost += seen == n and count == 0
            self.unknown += seen == "outcome_unknown"
            self.refused += is_refused
            if seen not in (n, "outcome_unknown") and not is_refused:
                self.wrong.append(f"{name}: call {n} gave {seen!r}, with {count} effects")
        return True


@dataclass
class Tally(Effects):
    """The same over all runs and kills."""

    kills: int = 0
    by_edge: Counter[str] = field(default_factory=Counter)
    lives_ms: list[float] = field(default_factory=list)
    """How long the last life of each run took."""


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

    def watched(store: RunStore, jobs: list[Any], **named: Any) -> Any:
        kinds = {kind for job in jobs for kind in _kinds(job.work)}
        for kind in kinds:
            reached(f"before {kind}")
        outcomes = commit(store, jobs, **named)
        for kind in kinds:
            reached(f"after {kind}")
        return outcomes

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


def _kinds(work: Any) -> list[str]:
    """What a transaction writes: intents may come with outcomes of earlier calls, and outcomes with the answer."""
    rows = getattr(work, "keywords", {}).get("rows")
    kinds = ("answer", "the answer"), ("calls", "an intent"), ("outcomes", "an outcome")
    return [kind for key, kind in kinds if getattr(rows, key, None)]


async def live(manifest: Path, run_file: Path, started: int) -> None:
    """One life of a portal: begins the run, or goes on with it, until it has ended.

    A life is too short for the store to find out that the disk is fast. So in every other run it knows, and the event
    loop commits intents and outcomes.
    """
    if run_file.stem[-1] in "13579":
        Pace.is_fast = property(lambda pace: True)  # type: ignore[assignment, method-assign]
    async with open_portal(load_manifest(manifest, {}), lambda line: None) as portal:
        await portal.sandbox()
        await portal.fleet.settled(LIFE_SECONDS)
        began = time.perf_counter()
        os.write(started, b"x")
        run = await _run(portal, run_file)
        while True:
            news = portal.runs.changes.news
            answer = await portal.runs.answer(run, None)
            if answer.status not in OPEN:
                break
            await news.wait()
        told = {"answer": answer.structured(), "ms": (time.perf_counter() - began) * 1000}
        unfinished = run_file.with_suffix(".new")
        unfinished.write_text(json.dumps(told))
        unfinished.replace(run_file.with_suffix(".json"))


async def _run(portal: Portal, run_file: Path) -> str:
    assert portal.runs.store is not None
    known = await portal.runs.store.read(RunTables.listed)
    if known:
        return known[0].id
    script = f"run = {run_file.stem!r}\n" + SCRIPT.replace("(n=n)", "(n=n, run=run)")
    answer = await portal.runs.start(portal.execution.profile, ExecuteCode(script), LOCAL)
    return answer.run_id


class Plan:
    """When portals are killed: at each edge in turn, then as often at random moments, and so on."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._kinds = [*EDGES, *[RANDOM] * len(EDGES)]

    def next(self) -> str:
        return self._kinds[0]

    def happened(self) -> None:
        self._kinds.append(self._kinds.pop(0))


def one_run(number: int, upstream: CountingUpstream, folder: Path, plan: Plan, tally: Tally) -> None:
    """One run, whose portal is killed a few times, and what its script saw."""
    name, kills, life = f"r{number}", 0, 0
    place = folder / name
    run_file = place / name
    manifest = prepared(place, upstream)
    wanted = plan.chance.randint(1, MOST_KILLS)
    while not run_file.with_suffix(".json").exists():
        life += 1
        if life > wanted + 3:
            tally.wrong.append(f"{name}: the run did not end in {life} lives")
            return
        kind = plan.next() if life <= wanted else ""
        times = plan.chance.randint(1, MOST_TIMES.get(kind.partition(" ")[2], 1))
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            if kind in EDGES:
                kill_at(kind, times)
            _in_child(functools.partial(live, manifest, run_file, writing))
        os.close(writing)
        latest = LATEST * percentile(tally.lives_ms[-RECENT:], 0.5) / 1000
        was_hung = _wait_or_kill(child, reading, plan.chance.random() * latest if kind == RANDOM else None)
        os.close(reading)
        status = os.waitpid(child, 0)[1]
        if was_hung:
            tally.wrong.append(f"{name}: a portal hung, to be killed at {kind or 'no moment'}")
        if os.WIFSIGNALED(status):
            kills += 1
            tally.by_edge[kind] += 1
            plan.happened()
    _judge(name, json.loads(run_file.with_suffix(".json").read_text()), upstream.counts(name), kills, tally)
    shutil.rmtree(place)


def prepared(place: Path, upstream: CountingUpstream) -> Path:
    """The manifest of a run in a folder of its own."""
    place.mkdir()
    manifest = place / "portal.yaml"
    upstreams = {"box": {"url": f"http://127.0.0.1:{upstream.port}/mcp"}}
    manifest.write_text(json.dumps({"upstreams": upstreams, **MANIFEST}))
    return manifest


def _in_child(work: Callable[[], Any]) -> None:
    status = 1
    try:
        anyio.run(work)
        status = 0
    finally:
        os._exit(status)


def _wait_or_kill(child: int, reading: int, seconds: float | None) -> bool:
    """Kill a portal some time after it started; without a time only one that hangs. Returns whether it hung."""
    is_started = bool(select.select([reading], [], [], LIFE_SECONDS)[0])
    has_ended = (
        is_started
        and bool(os.read(reading, 1))
        and _has_ended(child, LIFE_SECONDS if seconds is None else seconds)
    )
    if not has_ended:
        os.kill(child, signal.SIGKILL)
    return not has_ended and (seconds is None or not is_started)


def _has_ended(child: int, seconds: float) -> bool:
    """Wait so long for a process. Returns whether it has ended."""
    descriptor = os.pidfd_open(child)
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def _judge(name: str, told: dict[str, Any], effects: Counter[int], kills: int, tally: Tally) -> None:
    answer = told["answer"]
    tally.kills += kills
    tally.lives_ms.append(told["ms"])
    if not tally.judge(name, answer, effects):
        return
    if tally.refused:  # nothing kept the store from being written
        tally.wrong.append(f"{name}: {tally.refused} calls were refused")
    unknown = sum(answer["result"][n] == "outcome_unknown" for n in ONE_BY_ONE)
    if unknown > kills:
        tally.wrong.append(f"{name}: {kills} kills made {unknown} outcomes unknown, one after the other")


def killed(kills: int, seed: int, report: Callable[[str], None] = lambda line: None) -> Tally:
    """Run scripts until so many portals have been killed, and each edge has occurred."""
    configure_logs("error")
    tally, plan = Tally(), Plan(seed)
    with tempfile.TemporaryDirectory() as created:
        folder = Path(created)
        os.environ["XDG_STATE_HOME"] = str(folder / "state")
        upstream = CountingUpstream(folder)
        try:
            # A run in this process: what it imports, and how long it takes, the others need not find out.
            _live_here(folder / "first", upstream, tally)
            gc.freeze()  # so that a fork copies less
            while (tally.kills < kills or len(tally.by_edge) <= len(EDGES)) and len(tally.wrong) < 5:
                one_run(tally.runs, upstream, folder, plan, tally)
                report(f"{tally.kills} of {kills} kills, {tally.runs} runs, {tally.unknown} unknown")
        finally:
            upstream.close()
    return tally


def _live_here(place: Path, upstream: CountingUpstream, tally: Tally) -> None:
    manifest = prepared(place, upstream)
    reading, writing = os.pipe()
    anyio.run(live, manifest, place / place.name, writing)
    told = json.loads((place / f"{place.name}.json").read_text())
    _judge(place.name, told, upstream.counts(place.name), 0, tally)
    for descriptor in (reading, writing):
        os.close(descriptor)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--to", type=Path, default=RESULTS / "durable.json")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    tally = killed(options.kills, options.seed, lambda line: print(line, end="\r", file=sys.stderr))
    found = {
        "kills": tally.kills,
        "runs": tally.runs,
        "effects": tally.effects,
        "doubled": tally.doubled,
        "lost": tally.lost,
        "unknown": tally.unknown,
        "kills by edge": dict(tally.by_edge),
        "ms of the last life, p50": round(percentile(tally.lives_ms, 0.5), 1),
        "wrong": tally.wrong,
    }
    text = json.dumps({**found, "machine": machine()}, indent=2)
    print(text)
    options.to.write_text(text + "\n")
    sys.exit(bool(tally.doubled or tally.lost or tally.wrong))


if __name__ == "__main__":
    main()
