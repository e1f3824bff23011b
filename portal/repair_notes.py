"""What is told of the arguments that were repaired in one run."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from portal.library.repairs import Repair

MAX_NOTES: Final = 10
"""Kinds of repairs of one run that are told; the rest are counted."""


@dataclass
class RepairNotes:
    """Repairs by what they have in common: a loop over a hundred items is told once."""

    _first: dict[tuple[str, str], str] = field(default_factory=dict)
    _counts: dict[tuple[str, str], int] = field(default_factory=dict)
    _others: int = 0

    def note(self, function: str, repairs: Iterable[Repair]) -> None:
        for repair in repairs:
            key = (function, repair.key)
            if key not in self._first and len(self._first) >= MAX_NOTES:
                self._others += 1
                continue
            self._first.setdefault(key, repair.message)
            self._counts[key] = self._counts.get(key, 0) + 1

    def notices(self) -> tuple[str, ...]:
        told = [
            message if self._counts[key] == 1 else f"{message}, and so {self._counts[key]} times in all"
            for key, message in self._first.items()
        ]
        more = [f"{self._others} more arguments were repaired"] if self._others else []
        return (*told, *more)
