"""What came of tests."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Outcome: TypeAlias = Literal["passed", "failed", "skipped"]
Library: TypeAlias = Literal["own", "fresh", "suite"]
"""Whose library a test met; see inside.py."""


@dataclass(frozen=True)
class Verdict:
    """Of one test. `reason` is its own for skipping, or the exception's kind and text."""

    outcome: Outcome
    reason: str = ""
    trace: str = ""


@dataclass
class FileResult:
    """The verdicts of a file's tests, by their numbers in `names`.

    `whole` is the verdict on the file if its tests could not be loaded.
    """

    names: list[str] = field(default_factory=list)
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    whole: Verdict | None = None
    cpu_seconds: float = 0.0

    def failed(self) -> list[int]:
        return [number for number, verdict in self.verdicts.items() if verdict.outcome == "failed"]


@dataclass(frozen=True)
class Entry:
    """One file. `again` are its failed tests run by themselves, `fresh` and `suite` with those libraries."""

    module: str
    cpu_seconds: float
    own: FileResult
    again: dict[int, Verdict]
    fresh: dict[int, Verdict]
    suite: dict[int, Verdict]
