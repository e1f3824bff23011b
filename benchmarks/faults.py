"""Question: how long do calls to an upstream that is well take while another one beside it has a fault?

    python -m benchmarks.faults [FAULT ...]

The goal is under 1.5 times as long as beside one that is well, at p50 and at p99, for every fault. A healthy stdio
server is called one call after the other in three processes in turns, five times 0.6 seconds each: one has
nothing else connected, one a neighbour over the wire of the faulty one that is well, and one the faulty one; both
neighbours are called over and over, alike, and where an answer of the faulty one leaves its connection of no use, the
one that is well closes its own. Two processes are halted while the third measures, so that how busy the
machine is makes no comparison better. `times` is the multiple of beside the neighbour that is well: what the fault
does; `times_alone` that of with nothing else, so it has in it what any calls side by side cost each other. The rows "no
fault" say how far off a multiple may be on this machine. Raw numbers of all faults go to
benchmarks/results/faults.json; the results of a few are only printed.
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

from benchmarks import faulty_http
from benchmarks.beside_fault import AT_ONCE, NO_FAULT, NOTHING
from benchmarks.measuring import RESULTS, commit, is_clean, machine, percentile

GOAL: Final = 1.5
ROUNDS: Final = 5

STDIO_FAULTS: Final = (
    "hang_after_acting",
    "stop_reading",
    "close_stdout",
    "too_long",
    "never_ending_line",
    "flood_stderr_lines",
    "flood_notices",
    "flood_stdout",
    "flood_requests",
    "flood_at_start",
)
FAULTS_AT_ONCE: Final = tuple(
    AT_ONCE + name
    for name in (
        faulty_http.NO_FAULT,
        faulty_http.NO_FAULT_CLOSING,
        "event stream of comments",
        "event stream of data without end",
        "too many values",
    )
)
ON_THEIR_CONNECTIONS: Final = (faulty_http.NO_FAULT_CLOSING,)
"""Each of these answers, and its connection is of no use behind that."""

HTTP_FAULTS: Final = (*faulty_http.FAULTS, *faulty_http.UNASKED, *FAULTS_AT_ONCE)
FAULTS: Final = (NO_FAULT, *STDIO_FAULTS, *HTTP_FAULTS)


class Beside:
    """A process that calls what is well, halted but while it does what it is told."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._neighbour = ""
        os.kill(process.pid, signal.SIGSTOP)

    def have(self, neighbour: str) -> None:
        """Call this one beside it from now on."""
        if neighbour != self._neighbour:
            self.leave()
            self._ask(neighbour)
            self._neighbour = neighbour

    def leave(self) -> None:
        if self._neighbour:
            self._ask("close")
            self._neighbour = ""

    def measure(self) -> list[float]:
        milliseconds: list[float] = self._ask("")
        return milliseconds

    def _ask(self, line: str) -> Any:
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


def compared(alone: Beside, well: Beside, faulty: Beside) -> dict[str, float]:
    """p50 and p99 with nothing else, beside a neighbour that is well, beside the fault; this as multiples of those."""
    taken: list[list[float]] = [[], [], []]
    for _ in range(ROUNDS):
        for milliseconds, each in zip(taken, (alone, well, faulty), strict=True):
            milliseconds += each.measure()
    numbers: dict[str, float] = {}
    for share in (50, 99):
        by_itself, undisturbed, disturbed = (percentile(each, share / 100) for each in taken)
        numbers[f"p{share}_alone_ms"] = round(by_itself, 2)
        numbers[f"p{share}_well_ms"] = round(undisturbed, 2)
        numbers[f"p{share}_ms"] = round(disturbed, 2)
        numbers[f"p{share}_times_alone"] = round(disturbed / by_itself, 2)
        numbers[f"p{share}_times"] = round(disturbed / undisturbed, 2)
    return numbers


def _no_fault_like(name: str) -> str:
    """The neighbour that is well: over the same wire and as many connections, and called as often."""
    if name.removeprefix(AT_ONCE) in ON_THEIR_CONNECTIONS:
        wire = faulty_http.NO_FAULT_CLOSING
    else:
        wire = faulty_http.NO_FAULT if name in HTTP_FAULTS else NO_FAULT
    return AT_ONCE + wire if name.startswith(AT_ONCE) else wire


def all_compared(names: list[str]) -> dict[str, dict[str, float]]:
    faults: dict[str, dict[str, float]] = {}
    with beside() as alone, beside() as well, beside() as faulty:
        alone.have(NOTHING)
        for name in names:
            well.have(_no_fault_like(name))
            faulty.have(name)
            faults[name] = numbers = compared(alone, well, faulty)
            faulty.leave()
            is_over = max(numbers["p50_times"], numbers["p99_times"]) >= GOAL
            print(f"{name:36} {numbers}{'  over the goal' * is_over}", flush=True)
    return faults


def main(names: list[str]) -> None:
    path = RESULTS / "faults.json"
    measured = {"machine": machine(), "commit": commit(), "is_clean": is_clean()}
    if not measured["is_clean"]:
        print("The tree has changes: these are not the numbers of a commit.")
    faults = all_compared(names or [*FAULTS])
    if names:
        print("Not all faults: nothing is published.")
        return
    path.write_text(json.dumps({**measured, "goal_times": GOAL, "faults": faults}, indent=1) + "\n")
    print(f"raw numbers: {path}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("faults", nargs="*", help=", ".join(FAULTS))
    main(parser.parse_args().faults)
