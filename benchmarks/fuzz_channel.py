"""Question: do a million malformed messages on the channel between portal and workers, from both sides, hang or break
either of them?

    python -m benchmarks.fuzz_channel                      # a million: some minutes
    python -m benchmarks.fuzz_channel --messages 20000     # a look

The noise is that of tests/sandbox_runtime/fuzz: random bytes, forged lengths, lies that look right. The portal's side
is fed in this process, without a socket; the worker's side is a real worker process each time, which is why it gets one
message in fifty. Numbers go to benchmarks/results/fuzz_channel.json.
"""

import argparse
import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.measuring import RESULTS, commit, machine
from sandbox_runtime.launchers import default_launcher
from tests.sandbox_runtime.fuzz.noise import conversation, to_worker
from tests.sandbox_runtime.fuzz.portal_end import Plan, Trial
from tests.sandbox_runtime.fuzz.worker_end import WorkerTrial, compiled_guest

SEED = 20261122
WORKER_SHARE = 0.02
PORTAL_TRIALS_AT_ONCE = 100
WORKER_TRIALS_AT_ONCE = 4
MOST_MESSAGES = 12
MAX_FAULTS = 50
TELL_EVERY_SECONDS = 10


async def main() -> None:
    options = _options()
    workers_part = int(options.messages * WORKER_SHARE)
    report: dict[str, Any] = {
        "question": " ".join((__doc__ or "").partition("\n\n")[0].split()),
        "machine": machine(),
        "commit": commit(),
        "seed": options.seed,
        "portal": await _portal_side(options.messages - workers_part, options.seed),
        "worker": await _worker_side(workers_part, options.seed),
    }
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    for side in ("portal", "worker"):
        print(f"{side}: {report[side]}")


async def _portal_side(messages: int, seed: int) -> dict[str, Any]:
    started, said, lives, slowest = time.monotonic(), 0, 0, 0.0
    codes: Counter[str] = Counter()
    faults: list[str] = []
    unheard: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(str(context)))
    others = asyncio.all_tasks()
    told = started
    while said < messages:
        began = time.monotonic()
        trials = [
            Trial(Plan.drawn(Random(f"{seed} {lives + index}"), MOST_MESSAGES))
            for index in range(PORTAL_TRIALS_AT_ONCE)
        ]
        ends = await asyncio.gather(*(trial.go() for trial in trials), return_exceptions=True)
        slowest = max(slowest, time.monotonic() - began)
        for index, (trial, end) in enumerate(zip(trials, ends, strict=True)):
            said += trial.messages
            codes[trial.code or "no run"] += 1
            faults += [f"life {lives + index}: {fault}" for fault in trial.faults]
            if end is not None:
                faults.append(f"life {lives + index}: {end!r:.200}")
        lives += PORTAL_TRIALS_AT_ONCE
        if time.monotonic() - told > TELL_EVERY_SECONDS:
            told = time.monotonic()
            print(f"portal: {said:,} messages, {len(faults)} faults", flush=True)
    if asyncio.all_tasks() != others:
        faults.append(f"{len(asyncio.all_tasks()) - len(others)} tasks stayed behind")
    return {
        "messages": said,
        "lives": lives,
        "seconds": round(time.monotonic() - started, 1),
        f"longest batch of {PORTAL_TRIALS_AT_ONCE} lives, ms": round(slowest * 1000),
        "ends": dict(codes.most_common()),
        "exceptions that nobody caught": unheard[:MAX_FAULTS],
        "faults": faults[:MAX_FAULTS],
    }


async def _worker_side(messages: int, seed: int) -> dict[str, Any]:
    started, told = time.monotonic(), time.monotonic()
    launcher = default_launcher(compiled_guest())
    trials: list[WorkerTrial] = []
    said = answers = lives = 0
    faults: list[str] = []
    while said < messages:
        trials = [
            WorkerTrial(conversation(Random(f"{seed} {lives + index}"), to_worker, MOST_MESSAGES))
            for index in range(WORKER_TRIALS_AT_ONCE)
        ]
        await asyncio.gather(*(trial.go(launcher) for trial in trials))
        said += sum(trial.messages for trial in trials)
        answers += sum(trial.answers for trial in trials)
        for index, trial in enumerate(trials):
            faults += [f"life {lives + index}: {fault}" for fault in trial.faults]
        lives += len(trials)
        if time.monotonic() - told > TELL_EVERY_SECONDS:
            told = time.monotonic()
            print(f"worker: {said:,} messages, {len(faults)} faults", flush=True)
    await launcher.close()
    return {
        "messages": said,
        "lives": lives,
        "answers": answers,
        "seconds": round(time.monotonic() - started, 1),
        "faults": faults[:MAX_FAULTS],
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, default=RESULTS / "fuzz_channel.json")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main())
