"""How an upstream is, since when, and what an operator should know about it although it works."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from upstreams.redaction import Redaction

_MAX_REMARKS: Final = 100
_MAX_REMARK_CHARACTERS: Final = 300

Status = Literal["starting", "ready", "idle", "failing", "needs_login", "down", "stopped"]
"""`idle`: not connected, and the next call connects. `failing`: connected, but its calls failed so often that they are
not sent for now. `needs_login`: down until somebody runs the command that the detail names."""


@dataclass(frozen=True)
class UpstreamState:
    """`detail` says why it is not ready, for a human and scrubbed of secrets; `since` is UTC."""

    status: Status
    detail: str
    since: datetime

    @property
    def is_well(self) -> bool:
        """Whether a call would be sent now, as far as is known."""
        return self.status in ("ready", "idle")

    @property
    def adjective(self) -> str:
        """The status as a sentence has it."""
        return "waiting for a login" if self.status == "needs_login" else self.status

    def __str__(self) -> str:
        return f"{self.adjective}: {self.detail}" if self.detail else self.adjective


class Diagnostics:
    """Remarks about one connection: each once, at most a hundred, scrubbed and one line each."""

    def __init__(self, redact: Redaction) -> None:
        self.redact = redact
        self.stderr: Callable[[], tuple[str, ...]] = tuple
        """The last lines of a stdio server's stderr."""
        self._remarks: dict[str, None] = {}
        self._dropped = 0

    def note(self, remark: str) -> None:
        line = " ".join(self.redact.start(remark, _MAX_REMARK_CHARACTERS).split())
        if len(self._remarks) < _MAX_REMARKS:
            self._remarks[line] = None
        elif line not in self._remarks:
            self._dropped += 1

    @property
    def remarks(self) -> tuple[str, ...]:
        more = (f"and {self._dropped} more remarks",) if self._dropped else ()
        return (*self._remarks, *more)
