"""What the files came to so far, kept on disk: a run that is interrupted goes on where it was."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.language.verdict import FileResult, Verdict
from manifests.json_value import Json


@dataclass(frozen=True)
class Entry:
    """One file. `again` are its failed tests run by themselves, `fresh` and `suite` with those libraries."""

    module: str
    component: str
    suite_source: str
    cpu_seconds: float
    own: FileResult
    again: dict[int, Verdict] = field(default_factory=dict)
    fresh: dict[int, Verdict] = field(default_factory=dict)
    suite: dict[int, Verdict] = field(default_factory=dict)


class Journal:
    """One line of JSON for each file; a later line takes the place of an earlier one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[str, Entry] = {}
        if path.exists():
            for line in path.read_text("utf-8").splitlines():
                entry = _entry(json.loads(line))
                self._entries[entry.module] = entry

    def add(self, entry: Entry) -> None:
        self._entries[entry.module] = entry
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(entry)) + "\n")

    def has(self, module: str, suite_source: str, component: str | None) -> bool:
        """Whether a file was run with these tests in this component, or, with None, in any."""
        entry = self._entries.get(module)
        if entry is None or entry.suite_source != suite_source:
            return False
        return component in (None, entry.component)

    def entries(self, modules: Iterable[str]) -> list[Entry]:
        return [self._entries[module] for module in modules if module in self._entries]


def _entry(row: dict[str, Json]) -> Entry:
    own = row["own"]
    whole = None if own["whole"] is None else Verdict(**own["whole"])
    return Entry(
        row["module"],
        row["component"],
        row["suite_source"],
        row["cpu_seconds"],
        FileResult(own["names"], _verdicts(own["verdicts"]), whole),
        *(_verdicts(row[key]) for key in ("again", "fresh", "suite")),
    )


def _verdicts(rows: dict[str, Json]) -> dict[int, Verdict]:
    return {int(number): Verdict(**row) for number, row in rows.items()}
