"""What an operator should know about an upstream although it works."""

from typing import Final

from upstreams.scrubber import Scrubber

_MOST: Final = 100
_LONGEST: Final = 300


class Diagnostics:
    """Remarks about one connection: each once, at most a hundred, scrubbed and one line each."""

    def __init__(self, scrub: Scrubber) -> None:
        self.scrub = scrub
        self._remarks: dict[str, None] = {}
        self._dropped = 0

    def note(self, remark: str) -> None:
        line = " ".join(self.scrub.start(remark, _LONGEST).split())
        if len(self._remarks) < _MOST:
            self._remarks[line] = None
        elif line not in self._remarks:
            self._dropped += 1

    @property
    def remarks(self) -> tuple[str, ...]:
        more = (f"and {self._dropped} more remarks",) if self._dropped else ()
        return (*self._remarks, *more)
