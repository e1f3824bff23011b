"""The life of a connection to an upstream: a table of states and events, and its times. Nothing here waits or sends."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from math import ceil, inf
from typing import Final, Literal, get_args

from upstreams import errors
from upstreams.health import Status, UpstreamState

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 30.0
"""Backoff between two attempts to connect; doubles, with jitter."""

RETRY_ON_CALL_SECONDS: Final = 5.0
"""If the last attempt failed longer ago than this, a call starts the next one at once."""

RECONNECT_WAIT_SECONDS: Final = 10.0
"""How long calls wait for an attempt that follows a failed one, from the start of that attempt."""

Event = Literal[
    "wanted",
    "reopened",
    "rested",
    "served",
    "circuit_opened",
    "circuit_closed",
    "failed",
    "login_needed",
    "removed",
]
"""`wanted`: a call needs a connection. `reopened`: the next attempt begins without a pause. `rested`: no call needs a
connection. `served`: it is open. `failed` and `login_needed`: there is none, and the next attempt waits."""

_UNREACHED: Final = frozenset[Status]({"down", "needs_login"})
_LIVE: Final = frozenset[Status](get_args(Status)) - {"stopped"}

TRANSITIONS: Final[Mapping[Event, tuple[frozenset[Status], Status]]] = {
    "wanted": (frozenset({"idle"}), "starting"),
    "reopened": (_LIVE, "starting"),
    "rested": (_LIVE, "idle"),
    "served": (_LIVE, "ready"),
    "circuit_opened": (_LIVE, "failing"),
    "circuit_closed": (frozenset({"failing"}), "ready"),
    "failed": (_LIVE, "down"),
    "login_needed": (_LIVE, "needs_login"),
    "removed": (_LIVE, "stopped"),
}
"""The states in which an event counts, and the state after it. An upstream that stopped stays so. One that is down
stays so during its next attempts, so that calls do not wait as for one that starts."""


class Lifecycle:
    """The state of one upstream, and when to connect. `clock` returns monotonic seconds, `utc` the time for people."""

    def __init__(
        self, clock: Callable[[], float], utc: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.state = UpstreamState("starting", "", utc())
        self.is_wanted = False
        """Whether a call has needed a connection since the last attempt succeeded or failed."""
        self._clock = clock
        self._utc = utc
        self._failures = 0
        """Failed attempts since the last connection that was stable."""
        self._attempt_began = clock()
        self._pause_began: float | None = None
        self._pause_seconds = 0.0
        self._down_since: datetime | None = None

    def note(self, event: Event, detail: str = "", remedy: str = "") -> None:
        """Move to the state after the event."""
        sources, status = TRANSITIONS[event]
        if event in ("served", "circuit_opened", "failed", "login_needed"):  # the attempt has ended
            self.is_wanted = False
        before = self.state
        if before.status not in sources or (status, detail) == (before.status, before.detail):
            return
        since = self._utc()
        if status == "ready":
            self._down_since = None
        elif status in _UNREACHED:  # since the first failure, not the last
            since = self._down_since = self._down_since or since
        self.state = UpstreamState(status, detail, since, remedy)

    def want(self) -> bool:
        """A call needs a connection: ends idling, and a backoff that is old enough. Returns whether that is news."""
        if self._pause_began is not None:
            if self._clock() < self._pause_began + RETRY_ON_CALL_SECONDS:
                return False
            self.begin_attempt()
        self.note("wanted")
        was_wanted, self.is_wanted = self.is_wanted, True
        return not was_wanted

    def begin_attempt(self) -> None:
        self._attempt_began, self._pause_began = self._clock(), None

    def lose(
        self, reason: str, remedy: str, *, stable_seconds: float | None, needs_login: bool, jitter: float
    ) -> float:
        """There is no connection (any more). Returns the seconds until the next attempt: 0 after one that worked.

        A connection worked if it ended `stable_seconds` after its attempt began; None if there was none. `jitter` is a
        factor.
        """
        if stable_seconds is not None and self._clock() >= self._attempt_began + stable_seconds:
            self._failures = 0
        failures, self._failures = self._failures, self._failures + 1
        if stable_seconds is not None and not failures:
            self.note("reopened", reason)
            return 0.0
        self._pause_began = self._clock()
        self._pause_seconds = jitter * min(
            LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(failures, 10)
        )
        self.note("login_needed" if needs_login else "failed", reason, remedy)
        return self._pause_seconds

    def wait_deadline(self, wait_until: float) -> float:
        """The time until which a call waits for a connection, besides its deadline. It never waits for a sign-in.

        While the upstream is unreached, that is until `RECONNECT_WAIT_SECONDS` after the attempt under way began, or
        until `wait_until`, however many attempts fail.
        """
        if self.state.status == "stopped":
            return -inf
        if self.state.status not in _UNREACHED:
            return inf
        end = -inf if self._pause_began is not None else self._attempt_began + RECONNECT_WAIT_SECONDS
        return end if self.state.status == "needs_login" else max(end, wait_until)

    @property
    def retry_status(self) -> str:
        """When the next attempt to connect is, if the upstream is down; else empty."""
        if self.state.status != "down":
            return ""
        now = self._clock()
        if self._pause_began is None:
            return f"an attempt has been running for {now - self._attempt_began:.0f} s"
        due_seconds = max(ceil(self._pause_began + self._pause_seconds - now), 1)
        return f"the next attempt is in {due_seconds} s"

    def unavailable(self) -> errors.UpstreamUnavailableError:
        """Why a call cannot be sent."""
        state = self.state
        if state.status == "needs_login":
            return errors.UpstreamNeedsLoginError(state.detail)
        detail = f": {state.detail}" if state.detail else ""
        message = f"{state.status} since {state.since:%Y-%m-%d %H:%M:%S} UTC{detail}"
        if state.status == "down":
            return errors.UpstreamDownError(f"{message}; {self.retry_status}")
        if state.status == "stopped":
            return errors.UpstreamDownError(message)
        return errors.UpstreamUnavailableError(f"still {message}")
