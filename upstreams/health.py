"""The health of an upstream: its state, remarks about its connection, and a circuit breaker (docs/decisions/0008)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Final, Literal

from upstreams import errors
from upstreams.redaction import Redaction

_MAX_REMARKS: Final = 100
_MAX_REMARK_CHARACTERS: Final = 300

Status = Literal["starting", "ready", "idle", "failing", "needs_login", "down", "stopped"]
"""`idle`: not connected; the next call connects. `failing`: connected, but the circuit breaker is open. `needs_login`:
down until a person runs the command in the detail."""


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
        return self.status in ("ready", "idle")

    @property
    def adjective(self) -> str:
        """The status as an adjective."""
        return "waiting for a login" if self.status == "needs_login" else self.status

    @property
    def advice(self) -> str:
        """The detail and the remedy."""
        return "; ".join(filter(None, (self.detail, self.remedy)))

    def __str__(self) -> str:
        return f"{self.adjective}: {self.advice}" if self.advice else self.adjective


class Diagnostics:
    """Remarks about one connection: at most 100 different ones, masked, one line each."""

    def __init__(self, redact: Redaction, stderr: tuple[str, ...] = ()) -> None:
        self.redact = redact
        self.stderr: Callable[[], tuple[str, ...]] = lambda: stderr
        """The last lines of a stdio server's stderr; until it writes, those of its predecessor."""
        self._remarks: dict[str, None] = {}

    def note(self, remark: str) -> None:
        line = " ".join(self.redact.start(remark, _MAX_REMARK_CHARACTERS).split())
        if len(self._remarks) < _MAX_REMARKS:
            self._remarks[line] = None

    def forget(self) -> None:
        """Drop the remarks so far: many healthy servers print a greeting on stdout first."""
        self._remarks.clear()

    @property
    def remarks(self) -> tuple[str, ...]:
        return (*self._remarks,)


FAILURES_IN_A_ROW: Final = 5
FIRST_OPEN_SECONDS: Final = 5.0
LONGEST_OPEN_SECONDS: Final = 60.0
CRASH_SECONDS: Final = 1.0
"""Failures within this time count as one crash."""

_FAILURES: Final = (errors.UpstreamTimeoutError, errors.UpstreamAnswerError)


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

    @property
    def is_open(self) -> bool:
        return self._opened is not None

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
        except _FAILURES as error:
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
