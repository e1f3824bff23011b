"""Forty scripts as models of different vendors write them first, and what became of each.

`first_scripts.json` has the code (`$FILES` and `$REPO` stand for folders) and what is right: `value` or `prints` of a
script that should run, `fix` for one that should not, or that may be told: what its answer has to say, as patterns.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

RUNS, FIXED, UNCLEAR, WRONG = "right value", "right fix", "unclear", "wrong silently"
CLASSES: Final = (RUNS, FIXED, UNCLEAR, WRONG)
_LONG = 20  # characters of a text that an answer should have once
_ID = re.compile(r"\b(?:(?:run|kept|session)_\w+|[0-9a-f]{8,})\b")


@dataclass(frozen=True)
class FirstScript:
    name: str
    code: str
    right: dict[str, Any]

    def placed(self, place: Callable[[str], str]) -> "FirstScript":
        """The script and what is right, for the folders of a test."""
        return replace(self, code=place(self.code), right=json.loads(place(json.dumps(self.right))))

    def judged(self, text: str, *, is_error: bool) -> str:
        """The class of the answer with this text, in the lean or in the whole shape."""
        answer = json.loads(text)
        if not is_error and self._is_right(answer):
            return RUNS
        if self.has_fix("\n".join(leaves(answer))):
            return FIXED
        return UNCLEAR if is_error else WRONG

    def has_fix(self, text: str) -> bool:
        fixes = self.right.get("fix", [])
        return bool(fixes) and all(re.search(pattern, text) for pattern in fixes)

    def _is_right(self, answer: dict[str, Any]) -> bool:
        is_value = "value" in self.right and answer.get("result") == self.right["value"]
        return is_value or ("prints" in self.right and answer.get("stdout") == self.right["prints"])


def first_scripts() -> list[FirstScript]:
    read = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    return [FirstScript(name, "\n".join(each.pop("code")), each) for name, each in read.items()]


def repeated(text: str) -> list[str]:
    """The error texts and ids that an answer has twice."""
    answer = json.loads(text)
    calls = answer.pop("calls", None)
    rows = calls if isinstance(calls, list) else []
    told = [*leaves(answer), *(each for row in rows for each in leaves(row.get("error")))]
    found = [
        each
        for number, each in enumerate(told)
        if len(each) >= _LONG and any(each in other for place, other in enumerate(told) if place != number)
    ]
    ids = _ID.findall("\n".join(told))
    return sorted({*found, *(each for each in ids if ids.count(each) > 1)})


def leaves(value: Any) -> Iterator[str]:
    """The texts in an answer, without its keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from leaves(each)
