"""Question: does anything leak, stay behind or go wrong in 100,000 runs, a third of which fail in every way there is,
and does each of 500 workers that are killed at random moments cost exactly its own run?

    python -m benchmarks.soak                         # all of it: an hour or less on two cores
    python -m benchmarks.soak --runs 5000 --kills 50  # a look

Every answer is compared with the one it must be. What is held is looked at a hundred times on the way, and the report
is written each time, so that it says how far it came when this is stopped. Numbers go to benchmarks/results/soak.json.
Linux only.
"""

import argparse
import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.granted_endings import granted_endings
from benchmarks.measuring import RESULTS, commit, machine
from benchmarks.random_kills import Killing
from benchmarks.resources import Held, growth, held
from benchmarks.special_endings import SPECIAL
from benchmarks.ways_to_end import BAD, GOOD, Way, take
from sandbox_runtime.sandbox import Sandbox, open_sandbox
from sandbox_runtime.worker_process import ForkLauncher, Launcher, SpawnLauncher

CLIENTS = 6
WORKERS = 4
SEED = 20261122
LASTING_SHARE = 0.1
"""Of the runs, besides, in ways that leave their worker alive: workers that last are those that could grow."""
SPAWNED_SHARE = 0.02
"""Of the runs, besides, in workers that are spawned, not forked: each that dies costs 0.1 s there."""
SAMPLES = 100
MAX_FAULTS = 50
RARE = {"stack": 0.05}
"""Ways that take a quarter of a second each, and how often they are gone among the others."""

Going = Callable[[Sandbox], Awaitable[str]]
"""Goes a way, and tells what is wrong with the answer."""

Taken = tuple[str, Going]
"""A way's name, and what goes it."""


@dataclass
class Soak:
    """Runs going on side by side; `faults` are the answers that were not what they must be."""

    runs: int
    launch: Callable[[Path], Launcher]
    choose: Callable[[random.Random], Taken]
    save: Callable[[dict[str, Any]], None]
    done: int = 0
    ways: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    samples: list[Held] = field(default_factory=list)

    async def go(self) -> None:
        started = time.monotonic()
        chance = random.Random(SEED)
        async with open_sandbox(workers=WORKERS, progress=print, launch=self.launch) as sandbox:
            for target in range(0, self.runs + 1, max(self.runs // SAMPLES, 1)):
                await asyncio.gather(*(self._client(sandbox, chance, target) for _ in range(CLIENTS)))
                await _settle(sandbox)
                self.samples.append(held(self.done))
                self.save(self.report(time.monotonic() - started))
        left = held(self.done)
        if left.workers or left.zombies:
            self.faults.append(f"after the end: {left.workers} workers, {left.zombies} zombies")
        self.save(self.report(time.monotonic() - started))

    async def _client(self, sandbox: Sandbox, chance: random.Random, target: int) -> None:
        while self.done < target:
            self.done += 1
            name, go = self.choose(chance)
            fault = await go(sandbox)
            self.ways[name] += 1
            if fault and len(self.faults) < MAX_FAULTS:
                self.faults.append(f"{name}: {fault}")

    def report(self, seconds: float) -> dict[str, Any]:
        settled = self.samples[len(self.samples) // 5 :]
        good = sum(self.ways[way.name] for way in GOOD)
        return {
            "runs": self.done,
            "seconds": round(seconds, 1),
            "failed, as they must": self.done - good,
            "wrong answers": len(self.faults),
            "faults": self.faults,
            "growth after the first fifth": {
                name: round(growth(settled, name), 3) for name in asdict(settled[0]) if name != "runs"
            },
            "ways": dict(self.ways.most_common()),
            "samples": [
                {name: round(value, 2) for name, value in asdict(sample).items()} for sample in self.samples
            ],
        }


async def main() -> None:
    async with granted_endings() as granted:
        await measure(_options(), {**SPECIAL, **granted})


async def measure(options: argparse.Namespace, special: Mapping[str, Going]) -> None:
    any_way = partial(_any_way, special)
    report: dict[str, Any] = {
        "question": " ".join((__doc__ or "").partition("\n\n")[0].split()),
        "machine": machine(),
        "commit": commit(),
        "workers": WORKERS,
        "clients": CLIENTS,
    }

    def save(name: str, part: dict[str, Any]) -> None:
        report[name] = part
        options.out.write_text(json.dumps(report, indent=1) + "\n")
        print(f"{name}: {part['runs']:,} runs, {part['seconds']} s, wrong: {part['faults'][:3]}", flush=True)

    parts: dict[str, tuple[int, Callable[[Path], Launcher], Callable[[random.Random], Taken]]] = {
        "all ways": (options.runs, ForkLauncher, any_way),
        "lasting workers": (int(options.runs * LASTING_SHARE), ForkLauncher, _lasting_way),
        "spawned workers": (int(options.runs * SPAWNED_SHARE), SpawnLauncher, any_way),
    }
    for name, (runs, launch, choose) in parts.items():
        await Soak(runs, launch, choose, partial(save, name)).go()
        print(json.dumps(report[name]["growth after the first fifth"]), flush=True)
    await Killing(options.kills, random.Random(SEED), partial(save, "killed workers")).go()
    wrong = sum(part.get("wrong answers", 0) for part in report.values() if isinstance(part, dict))
    print(f"{wrong} wrong answers")


def _any_way(special: Mapping[str, Going], chance: random.Random) -> Taken:
    """Two good ways for one bad one."""
    if chance.random() < 2 / 3:
        return _scripted(chance.choice(GOOD))
    while True:
        name = chance.choice([*special, *(way.name for way in BAD)])
        if chance.random() < RARE.get(name, 1):
            break
    return (name, special[name]) if name in special else _scripted(_BAD[name])


def _lasting_way(chance: random.Random) -> Taken:
    """The same without those that kill: the same few workers serve all of it."""
    bad = [way for way in BAD if not way.kills and way.name not in RARE]
    return _scripted(chance.choice(GOOD if chance.random() < 2 / 3 else bad))


def _scripted(way: Way) -> Taken:
    return way.name, partial(take, way=way)


async def _settle(sandbox: Sandbox) -> None:
    """Until every worker has come back from its last run, and no dead one waits for its burial."""
    nothing = GOOD[0]
    for _ in range(2):
        await asyncio.gather(*(take(sandbox, nothing) for _ in range(WORKERS)))
        await asyncio.sleep(0.05)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--out", type=Path, default=RESULTS / "soak.json")
    return parser.parse_args()


_BAD = {way.name: way for way in BAD}

if __name__ == "__main__":
    asyncio.run(main())
