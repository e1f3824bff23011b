"""The health of an upstream: its life as a table of states and events, remarks, and a circuit breaker.

Nothing here waits or sends. See docs/decisions/0008.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, inf
from typing import Final, Literal

from upstreams import errors
from upstreams.redaction import Redaction

_MAX_REMARKS: Final = 100
_MAX_REMARK_CHARACTERS: Final = 300

Status = Literal["starting", "ready", "idle", "failing", "needs_login", "down", "stopped"]
"""`idle`: not connected; the next call connects. `failing`: connected, but the circuit breaker is open. `needs_login`:
down until a person runs the command in the detail."""
WELL: Final = frozenset[Status]({"ready", "idle"})


@dataclass(frozen=True)
class UpstreamState:
    """`detail` says why it is not ready; `remedy`, for the operator only, what to do. No secrets. `since` is UTC."""

    status: Status
    detail: str
    since: datetime
    remedy: str = ""

    @property
    def is_well(self) -> bool:
        """Whether a call would be sent now."""
        return self.status in WELL

    @property
    def adjective(self) -> str:
        return "waiting for a login" if self.status == "needs_login" else self.status

    @property
    def advice(self) -> str:
        return "; ".join(filter(None, (self.detail, self.remedy)))

    def __str__(self) -> str:
        return f"{self.adjective}: {self.advice}" if self.advice else self.adjective


FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 30.0
"""Backoff between two attempts to connect; doubles, with jitter."""

RETRY_ON_CALL_SECONDS: Final = 5.0
"""If the last attempt failed longer ago than this, a call starts the next one at once."""

RECONNECT_WAIT_SECONDS: Final = 10.0
"""How long calls wait for an attempt that follows a failed one, from the start of that attempt."""

Event = Literal["reopened", "rested", "served", "circuit_opened", "failed", "login_needed", "removed"]

STATE_AFTER: Final[Mapping[Event, Status]] = {
    "reopened": "starting",  # the next attempt begins without a pause
    "rested": "idle",  # no call needs a connection
    "served": "ready",  # a connection is open, and its circuit closed
    "circuit_opened": "failing",
    "failed": "down",  # there is no connection, and the next attempt waits
    "login_needed": "needs_login",
    "removed": "stopped",
}
"""The state after each event in any other state. An upstream that stopped stays so. One that is down stays so during
its next attempts, so that calls do not wait as for one that starts."""

_UNREACHED: Final = frozenset[Status]({"down", "needs_login"})


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
        status, before = STATE_AFTER[event], self.state
        if event not in ("reopened", "rested"):  # the attempt has ended
            self.is_wanted = False
        if before.status == "stopped" or (status, detail) == (before.status, before.detail):
            return
        since = self._utc()
        if status in _UNREACHED:  # since the first failure, not the last
            since = self._down_since = self._down_since or since
        elif status != "starting":
            self._down_since = None
        self.state = UpstreamState(status, detail, since, remedy)

    def want(self) -> bool:
        """A call needs a connection: ends idling, and a backoff that is old enough. Returns whether that is news."""
        if self._pause_began is not None:
            if self._clock() < self._pause_began + RETRY_ON_CALL_SECONDS:
                return False
            self.begin_attempt()
        if self.state.status == "idle":
            self.note("reopened")
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


class Diagnostics:
    """Remarks about one connection: at most 100 different ones, masked, one line each."""

    def __init__(self, redact: Redaction, stderr: tuple[str, ...] = ()) -> None:
        self.redact = redact
        self.stderr: Callable[[], tuple[str, ...]] = lambda: stderr
        """The last lines of a stdio server's stderr; until it writes, those of its predecessor."""
        self.remarks: dict[str, None] = {}

    def note(self, remark: str) -> None:
        line = " ".join(self.redact.start(remark, _MAX_REMARK_CHARACTERS).split())
        if len(self.remarks) < _MAX_REMARKS:
            self.remarks[line] = None


FAILURES_IN_A_ROW: Final = 5
FIRST_OPEN_SECONDS: Final = 5.0
LONGEST_OPEN_SECONDS: Final = 60.0
CRASH_SECONDS: Final = 1.0
"""Failures within this time count as one crash."""


class CircuitBreaker:
    """Opens after five consecutive failures: calls that were sent and got no readable answer.

    While open it refuses every call. After 5 s it lets one call through as a probe. Any answer closes the circuit, even
    an error. A failed probe doubles the time, up to a minute.

    Calls that were not sent, or whose caller went away, do not count. A call whose request for input was not answered
    counts only as a probe. Of concurrent calls that are cut off or get an HTTP 5xx within a second, only the first
    counts: one crash fails all of them. `clock` returns seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures = 0
        self._open_seconds = FIRST_OPEN_SECONDS
        self._opened: float | None = None
        self._is_probing = False
        self._admitted = 0
        self._admitted_at_loss = 0
        self._lost = -inf
        self.reason = ""
        """The last failure; empty while the circuit is closed."""

    @contextmanager
    def guard(self) -> Iterator[None]:
        """A context for one call. Raises UpstreamCircuitOpenError if the call must not be made now."""
        is_probe = self._admit()
        self._admitted += 1
        number = self._admitted
        try:
            yield
        except (errors.UpstreamLostError, errors.UpstreamFaultError) as error:
            # A probe runs alone, so its failure cannot be part of another call's crash.
            if is_probe or number > self._admitted_at_loss or self._clock() - self._lost > CRASH_SECONDS:
                self._admitted_at_loss, self._lost = self._admitted, self._clock()
                self._failed(str(error), is_probe)
            raise
        except (errors.UpstreamTimeoutError, errors.UpstreamAnswerError) as error:
            self._failed(str(error), is_probe)
            raise
        except errors.UpstreamUnansweredError:
            if is_probe:
                self._close()  # the upstream asked after the failure; other calls may have been asked before it
            raise
        # A request for input is an answer, too.
        except (errors.UpstreamRefusedError, errors.UpstreamIncompleteError):
            self._close()
            raise
        else:
            self._close()
        finally:
            if is_probe:
                self._is_probing = False

    def trip(self, reason: str) -> None:
        """Open at once: the upstream was cut off."""
        if self._opened is None:
            self._opened = self._clock()
        self.reason = reason

    def _admit(self) -> bool:
        """Whether this call is the probe."""
        if self._opened is None:
            return False
        left_seconds = self._opened + self._open_seconds - self._clock()
        if left_seconds > 0 or self._is_probing:
            until = f"in {max(left_seconds, 1):.0f} s" if left_seconds > 0 else "is in progress"
            raise errors.UpstreamCircuitOpenError(f"keeps failing: {self.reason}; next try {until}")
        self._is_probing = True
        return True

    def _failed(self, reason: str, is_probe: bool) -> None:
        if self._opened is not None:
            if not is_probe:
                return  # it was in flight when the circuit opened
            self._open_seconds = min(self._open_seconds * 2, LONGEST_OPEN_SECONDS)
        else:
            self._failures += 1
            if self._failures < FAILURES_IN_A_ROW:
                return
        self._opened = self._clock()
        self.reason = f"at least {FAILURES_IN_A_ROW} calls in a row failed, the last with: {reason}"

    def _close(self) -> None:
        self._failures = 0
        self._opened = None
        self._open_seconds = FIRST_OPEN_SECONDS
        self.reason = ""
