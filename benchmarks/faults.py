"""Question: how long do calls to an upstream that is well take while another one beside it has a fault?

    python -m benchmarks.faults [FAULT ...]

The goal is under 1.5 times as long, at p50 and at p99, for every fault. A healthy stdio server is called one call after
the other in two processes in turns, ten times two hundred calls each: in this one nothing else is connected, in the
other one a faulty upstream is, which is called over and over. The other one is halted while this one measures, so that
neither the fault nor how busy the machine is makes the comparison better. The two rows "for comparison" say how far off
a ratio may be on this machine without any fault. Raw numbers of all faults go to benchmarks/results/faults.json; those
of a few are only told.

Second question (`--starts N`): how long do N upstream configurations take that start at once, how much memory, and how
long is a call to one that is ready kept waiting meanwhile? Without the option what was published of that stays.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import anyio
import structlog

from benchmarks import faulty_http
from benchmarks.beside_fault import NOTHING, measure, open_beside
from benchmarks.measuring import RESULTS, commit, is_clean, machine, percentile
from benchmarks.starts_at_once import start_at_once

GOAL: Final = 1.5
ROUNDS: Final = 10

STDIO_FAULTS: Final = (
    "trickle",
    "hang_after_acting",
    "stop_reading",
    "crash_after_acting",
    "close_stdout",
    "garbage",
    "too_long",
    "too_many_values",
    "many_beginnings",
    "batch_of_nothing",
    "no_newline",
    "never_ending_line",
    "wrong_id",
    "answer_twice",
    "flood_answers",
    "flood_stderr",
    "flood_stderr_lines",
    "flood_stderr_blank",
    "flood_notices",
    "flood_long_answers",
    "flood_stdout",
    "flood_requests",
    "flood_progress",
    "storm_of_changes",
    "exit_at_start",
    "flood_at_start",
    "endless_pages",
)
FAULTS: Final = (NOTHING, *STDIO_FAULTS, *faulty_http.FAULTS, *faulty_http.UNASKED)


class Beside:
    """The other process, halted but while it does what it is told."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        os.kill(process.pid, signal.SIGSTOP)

    def ask(self, line: str) -> Any:
        assert self._process.stdin and self._process.stdout
        os.kill(self._process.pid, signal.SIGCONT)
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        os.kill(self._process.pid, signal.SIGSTOP)
        return answer


@contextmanager
def beside() -> Iterator[Beside]:
    # In a group of its own: should this process be killed, the system lets a halted one go on, and it ends.
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.beside_fault"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as process:
        try:
            yield Beside(process)
        finally:
            os.kill(process.pid, signal.SIGCONT)


async def compared(name: str, other: Beside, quiet_fleet: Any) -> dict[str, float]:
    """p50 and p99 beside the fault, and as multiples of those without."""
    quiet: list[float] = []
    noisy: list[float] = []
    other.ask(name)
    for _ in range(ROUNDS):
        quiet += await measure(quiet_fleet)
        noisy += other.ask("")
    other.ask("close")
    numbers: dict[str, float] = {}
    for share in (50, 99):
        alone, disturbed = (percentile(each, share / 100) for each in (quiet, noisy))
        numbers[f"p{share}_alone_ms"] = round(alone, 2)
        numbers[f"p{share}_ms"] = round(disturbed, 2)
        numbers[f"p{share}_times"] = round(disturbed / alone, 2)
    return numbers


async def all_compared(names: list[str]) -> dict[str, dict[str, float]]:
    faults: dict[str, dict[str, float]] = {}
    with beside() as other:
        async with open_beside(NOTHING) as quiet_fleet:
            for name in names:
                faults[name] = numbers = await compared(name, other, quiet_fleet)
                is_over = max(numbers["p50_times"], numbers["p99_times"]) >= GOAL
                print(f"{name:36} {numbers}{'  over the goal' * is_over}", flush=True)
    return faults


async def main(names: list[str], starts: int) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    path = RESULTS / "faults.json"
    measured = {"machine": machine(), "commit": commit(), "is_clean": is_clean()}
    if not measured["is_clean"]:
        print("The tree has changes: these are not the numbers of a commit.")
    results = {**json.loads(path.read_text()), **measured, "goal_times": GOAL}
    if starts:
        results["starts"] = {**measured, **await start_at_once(starts)}
        print(results["starts"])
    faults = await all_compared(names or [*FAULTS])
    if names:
        print("Not all faults: nothing is published.")
        return
    path.write_text(json.dumps({**results, "faults": faults}, indent=1) + "\n")
    print(f"raw numbers: {path}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("faults", nargs="*", help=", ".join(FAULTS))
    parser.add_argument("--starts", type=int, default=0)
    options = parser.parse_args()
    anyio.run(main, options.faults, options.starts)
