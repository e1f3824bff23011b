"""The content blocks of the calls whose values a script still has."""

import json
import sys
from collections.abc import Iterable
from itertools import islice
from typing import Any

from sandbox_runtime.guest.values import NotSerializable

_MAX_NAMED = 5
_CHECKED = 2  # values at each end of this table that a call drops if nothing else refers to them
_UNHELD = 2  # references to a value that only this table has: its own, and the argument of getrefcount


class Results:
    """Finds the call of a value by the identity of the value, until the script drops the value.

    Python shares some values, such as None and small integers: for those, the last call that returned one counts.
    """

    def __init__(self) -> None:
        # Includes calls of the session's earlier runs.
        self._known: dict[int, tuple[Any, str, list[Any] | None]] = {}
        self.begin()

    def begin(self) -> None:
        self._beside: dict[str, set[str]] = {}
        self._seen: set[str] = set()

    def note(
        self, function: str, value: Any, blocks: list[Any] | None = None, beside: Iterable[int] = ()
    ) -> None:
        """Record a call's value. Without `blocks` the value is all its content; it lacks the blocks in `beside`."""
        # Looking at all of them at each call would take seconds for a script that holds thousands.
        oldest, newest = islice(self._known, _CHECKED), [*islice(reversed(self._known), _CHECKED)]
        for key in [*oldest, *reversed(newest)]:
            known = self._known.pop(key, None)
            if known is not None and sys.getrefcount(known[0]) > _UNHELD:
                self._known[key] = known
        self._known[id(value)] = value, function, blocks
        for at in beside:
            self._beside.setdefault(function, set()).add(str(blocks and blocks[at].get("type")))

    def blocks(self, value: Any) -> list[dict[str, Any]]:
        """All content blocks of the call that returned the value. Raises TypeError, ValueError: no call returned it."""
        if isinstance(value, NotSerializable):
            raise TypeError(value.advice())
        if id(value) not in self._known:
            raise ValueError(
                "pass the value of an upstream's function as it returned it, not a copy or a part"
            )
        _, function, blocks = self._known[id(value)]
        self._seen.add(function)
        if blocks is None:
            blocks = [] if value is None else value if isinstance(value, list) else [value]
        return [_block(each, at, value) for at, each in enumerate(blocks)]

    def origin(self, value: object) -> str:
        """The function that returned this value, or ""."""
        known = self._known.get(id(value)) if isinstance(value, (dict, list, str)) else None
        return known[1] if known is not None else ""

    def latest(self) -> dict[str, Any]:
        """The last known value of each function."""
        return {function: value for value, function, _ in self._known.values()}

    def notices(self) -> list[str]:
        """Notices about content beside the data of calls that the script did not look at."""
        found = [(name, kinds) for name, kinds in self._beside.items() if name not in self._seen]
        if not found:  # a script may have broken the builtins that the rest needs
            return []
        named = [f"{name} ({', '.join(sorted(kinds))[:80]})" for name, kinds in found[:_MAX_NAMED]]
        more = ", ..." if found[_MAX_NAMED:] else ""
        return [f"content came beside the data of {', '.join(named)}{more}: portal.blocks(result) has it"]


def _block(block: Any, at: int, value: Any) -> dict[str, Any]:
    """A block with its text: that of long data is written anew."""
    if not isinstance(block, dict):
        return {"type": "text", "text": block}
    if block.get("text", "") is not None:
        return {**block}
    said = value[at] if isinstance(value, list) and at < len(value) else value
    return {**block, "text": said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)}
