"""What was measured, as a table on stdout."""

from collections.abc import Callable
from typing import Any

Row = dict[str, Any]

COLUMNS: dict[str, Callable[[Row], str]] = {
    "trivial p50/p99": lambda row: _times(row, "trivial"),
    "five calls": lambda row: _times(row, "five_calls"),
    "gathered": lambda row: _times(row, "five_calls_gathered"),
    "CPU of five": lambda row: f"{row['five_calls_cpu_ms']['system']:.1f} ms",
    "first answer": lambda row: f"{_first_answer(row) / 1000:.1f} s",
    "first calls": lambda row: f"{row['start_ms']['five_calls'] / 1000:.1f} s",
    "memory": lambda row: f"{row['memory_mb']:.0f} MB",
    "tokens": lambda row: f"{row['definition_tokens']:,}",
    "fresh": lambda row: {True: "no", False: "yes", None: "-"}[row["keeps_state"]],
}
NAME, WIDTH = 20, 17


def print_setting(setting: Row) -> None:
    print(f"\n{setting['servers']} servers, {setting['tools']} tools; ms, measured in {setting['seconds']} s")
    print(" " * NAME + "".join(f"{title:>{WIDTH}}" for title in COLUMNS))
    for row in setting["systems"]:
        if "cannot" in row:
            print(f"{row['system']:{NAME}}  {row['cannot']}")
        else:
            print(f"{row['system']:{NAME}}" + "".join(f"{cell(row):>{WIDTH}}" for cell in COLUMNS.values()))
    for row in setting["systems"]:
        if "cannot" not in row:
            facts = [
                row["version"],
                row["language"],
                row["isolation"],
                f"{row['tools']} tools behind it",
                row["note"],
            ]
            print(f"{row['system']:{NAME}}  " + "; ".join(fact for fact in facts if fact))


def _times(row: Row, task: str) -> str:
    if task not in row:
        return "-"
    p50, p99 = row[task]["p50_ms"], row[task].get("p99_ms")
    return f"{p50:.1f} / {p99:.1f}" if p99 else f"{p50:.1f}"


def _first_answer(row: Row) -> float:
    """Of a trivial script; where there are no scripts, of the first calls."""
    return float(row["start_ms"].get("trivial", row["start_ms"]["five_calls"]))
