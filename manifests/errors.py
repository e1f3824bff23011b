"""Errors in a manifest. The operator has to fix them.

Exception
└── ManifestError     an unusable manifest; carries every problem found, not only the first
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

_SHOWN = 100


def with_extra(extra: str) -> str:
    """The hint for missing packages of an extra."""
    return f"Install the portal anew from its clone, with this extra: `uv tool install '.[{extra}]'`."


@dataclass(frozen=True)
class Problem:
    """One problem at one place. It contains no secret: values from the environment are never repeated."""

    message: str
    line: int | None = None  # counted from 1, as editors do
    column: int | None = None
    hint: str = ""
    key: str = ""

    def place(self, file: str) -> str:
        """`portal.yaml:14:5`, or only the file's name if there is no line."""
        return file if self.line is None else f"{file}:{self.line}:{self.column}"


class ManifestError(Exception):
    """The manifest cannot be used; `problems` has every problem, in the file's order."""

    def __init__(self, problems: Iterable[Problem], file: str = "portal.yaml") -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0)))
        self.file = file
        super().__init__(str(self))

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        for problem in self.problems[:_SHOWN]:
            yield f"{problem.place(self.file)}: {problem.message}"
            if problem.hint:
                yield f"    {problem.hint}"
        if len(self.problems) > _SHOWN:
            yield f"... and {len(self.problems) - _SHOWN} more"


KeyPath: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True)
class Place:
    """The position of a value; lines and columns count from 1."""

    line: int  # of the key; of the item, in a list
    column: int
    value_line: int
    value_column: int


def nearest(places: Mapping[KeyPath, Place], path: KeyPath) -> Place:
    """The place of a path, or of its closest parent in the file."""
    while path and path not in places:
        path = path[:-1]
    return places.get(path) or Place(1, 1, 1, 1)


def problem_at(places: Mapping[KeyPath, Place], path: KeyPath, message: str, hint: str) -> Problem:
    place = nearest(places, path)
    return Problem(message, place.value_line, place.value_column, hint, ".".join(map(str, path)))
