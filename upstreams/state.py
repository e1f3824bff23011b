"""How an upstream is, and since when."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

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


class StateHistory:
    """The state of one upstream. One that is down has been so since it first was, however often it was tried since."""

    def __init__(self, status: Status) -> None:
        self.now = UpstreamState(status, "", datetime.now(UTC))
        self._down_since: datetime | None = None

    def become(self, status: Status, detail: str) -> bool:
        """Whether that is news."""
        if (status, detail) == (self.now.status, self.now.detail):
            return False
        since = datetime.now(UTC)
        if status == "ready":
            self._down_since = None
        elif status in ("needs_login", "down"):
            since = self._down_since = self._down_since or since
        self.now = UpstreamState(status, detail, since)
        return True
