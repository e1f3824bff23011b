"""What the sandbox was to reach, beside what results/sandbox.json says: the rows of a table of benchmarks/README.md."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.sandbox import workload


@dataclass(frozen=True)
class Goal:
    """A number that was to be reached, and one that says how far that is from what can be."""

    what: str
    unit: str
    wanted: float
    measured: float
    floor: str = "-"
    is_least: bool = False
    """More is better."""

    @property
    def is_met(self) -> bool:
        return self.measured >= self.wanted if self.is_least else self.measured <= self.wanted

    def row(self) -> str:
        cells = [
            self.what,
            _number(self.wanted),
            _number(self.measured),
            "yes" if self.is_met else "no",
            self.floor,
        ]
        return f"| {cells[0]}, {self.unit} | " + " | ".join(cells[1:]) + " |"


def goal_rows(measured: dict[str, Any]) -> Iterator[str]:
    """The table, from the contents of sandbox.json."""
    goals = [*_latencies(measured), *_calls(measured), *_throughput(measured), *_processes(measured)]
    yield "| what | goal | measured | met | floor, or what the others need |"
    yield "|---|---|---|---|---|"
    for goal in goals:
        yield goal.row()
    yield ""
    machine = measured["machine"]
    met = sum(goal.is_met for goal in goals)
    yield (
        f"({met} of {len(goals)} are met, measured on {machine['cores']} cores, {machine['processor']}, "
        f"{machine['date']}, load {machine['load']} before.)"
    )


def _latencies(measured: dict[str, Any]) -> Iterator[Goal]:
    ours, plain = measured["compared"]["ours"], measured["compared"]["plain"]
    waited = _cpu(measured, "prepare", "execute")
    yield Goal(
        "a trivial script, p50", "ms", 0.5, ours[workload.TRIVIAL_P50], f"{waited:.2f} of CPU in the guest"
    )
    yield Goal(
        "a trivial script, p99",
        "ms",
        1.0,
        ours[workload.TRIVIAL_P99],
        _others(measured, workload.TRIVIAL_P99),
    )
    factor = ours[workload.LOOP_MS] / plain[workload.LOOP_MS]
    yield Goal("a loop, times CPython's own", "x", 1.8, factor, _factors_of_others(measured))
    yield Goal(
        "a 5 MB JSON result filtered to 20 rows",
        "ms",
        100,
        ours[workload.LARGE],
        f"{plain[workload.LARGE] * factor:.0f}: plain `exec`, slowed as the loop is",
    )


def _calls(measured: dict[str, Any]) -> Iterator[Goal]:
    ours, plain = measured["compared"]["ours"], measured["compared"]["plain"]
    yield Goal(
        "a call, one after the other",
        "us",
        120,
        ours[workload.SEQUENTIAL],
        _others(measured, workload.SEQUENTIAL),
    )
    yield Goal(
        "a call, 1,000 gathered", "us", 30, ours[workload.GATHERED], _others(measured, workload.GATHERED)
    )
    yield Goal(
        "50 parallel calls of 50 ms",
        "ms",
        53,
        ours[workload.SLOW],
        f"{plain[workload.SLOW]:.1f}: plain `exec`",
    )


def _throughput(measured: dict[str, Any]) -> Iterator[Goal]:
    cores = measured["machine"]["cores"]
    whole, restoring = (
        cores * 1000 / milliseconds
        for milliseconds in (
            measured["split"]["trivial run, all steps, CPU, ms"],
            _cpu(measured, "restore"),
        )
    )
    yield Goal(
        "trivial scripts per second",
        "two cores",
        1500,
        measured["compared"]["ours"][workload.THROUGHPUT],
        f"{whole:,.0f} by the CPU of a worker's steps; {restoring:,.0f} if only memory had to be restored",
        is_least=True,
    )


def _processes(measured: dict[str, Any]) -> Iterator[Goal]:
    ours, alone, start = measured["compared"]["ours"], measured["alone"], measured["start"]
    first = start["process from its first start ever to its end, with one result, ms"]
    later = start["process from a later start to its end, with one result, p50, ms"]
    yield Goal(
        "a killed worker replaced and used", "ms", 15, alone["killed worker replaced and used, p50, ms"]
    )
    yield Goal("private memory of a parked session", "MB", 4, alone["private memory of a parked session, MB"])
    yield Goal(
        "private memory of a worker", "MB", 3, ours[workload.MEMORY], _others(measured, workload.MEMORY)
    )
    yield Goal(
        "memory of the portal beyond the SDK's", "MB", 40, start["memory of the portal beyond the SDK, MB"]
    )
    yield Goal(
        "the first start ever, the compiling shown", "s", 5, first / 1000, f"{later / 1000:.1f} if compiled"
    )
    yield Goal(
        "a later start to the first result",
        "ms",
        250,
        ours[workload.START],
        _others(measured, workload.START),
    )


def _cpu(measured: dict[str, Any], *steps: str) -> float:
    """Milliseconds of a trivial run's steps."""
    return float(sum(measured["split"][f"trivial run, {step}, CPU, p50, ms"] for step in steps))


def _others(measured: dict[str, Any], key: str) -> str:
    values = {name: found[key] for name, found in _peers(measured).items() if key in found}
    return ", ".join(f"{_number(value)} {name}" for name, value in values.items()) or "-"


def _factors_of_others(measured: dict[str, Any]) -> str:
    plain = measured["compared"]["plain"][workload.LOOP_MS]
    peers = _peers(measured).items()
    return ", ".join(f"{_number(found[workload.LOOP_MS] / plain)} {name}" for name, found in peers)


def _peers(measured: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Those that were there to be measured."""
    compared = measured["compared"]
    return {name: compared[name] for name in ("monty", "eryx") if isinstance(compared.get(name), dict)}


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
