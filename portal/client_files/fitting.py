"""What gaps in a text must stand for so that it is another text, found from left to right in one pass."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Gap:
    """Any text; the same one wherever the name is, unless that is None."""

    name: str | None


def fitted(pieces: Iterable[str | Gap], text: str) -> dict[str, str] | None:
    """What the gaps stand for in `text`, by name; None if nothing was found that they could stand for.

    Each gap gets as little as it can, and of several in a row the first gets all. So it may not be found what a name
    stands for that is there twice; but whoever wrote the pieces, or the text, cannot make it take long.
    """
    fitting = _Fitting(text)
    is_fit = all(fitting.awaits(p) if isinstance(p, str) else fitting.opens(p) for p in pieces)
    return fitting.found if is_fit and fitting.ends() else None


class _Fitting:
    """`_awaited` are the pieces of what must come next, behind the open gap if there is one."""

    def __init__(self, text: str) -> None:
        self.found: dict[str, str] = {}
        self._text = text
        self._end = 0
        self._open: Gap | None = None
        self._awaited: list[str] = []
        self._length = 0

    def awaits(self, piece: str) -> bool:
        """Whether there is room for the piece, too."""
        self._awaited.append(piece)
        self._length += len(piece)
        return self._end + self._length <= len(self._text)

    def opens(self, gap: Gap) -> bool:
        """Whether all before this gap is there; as one whose name is known by now, it is a piece like others."""
        if gap.name in self.found:
            return self.awaits(self.found[gap.name])
        if self._open is not None and not self._length:
            return self._stands_for(gap, "")
        if not self._is_at(None if self._open else self._end):
            return False
        self._open = gap
        return True

    def ends(self) -> bool:
        """Whether what must come next is the end of the text."""
        start = len(self._text) - self._length
        return (self._open is not None or start == self._end) and self._is_at(start)

    def _is_at(self, start: int | None) -> bool:
        """Whether what must come next is there, the first time after what was found so far for None."""
        awaited = "".join(self._awaited)
        found = self._text.find(awaited, self._end) if start is None else start
        if found < self._end or not self._text.startswith(awaited, found):
            return False
        before = self._text[self._end : found]
        self._end, self._awaited, self._length = found + len(awaited), [], 0
        return self._open is None or self._stands_for(self._open, before)

    def _stands_for(self, gap: Gap, text: str) -> bool:
        return gap.name is None or self.found.setdefault(gap.name, text) == text
