"""How an upstream is: its state, remarks about its connection, and a circuit breaker (docs/decisions/0008)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Final, Literal

from upstreams.errors import (
    UpstreamAnswerError,
    UpstreamCircuitOpenError,
    UpstreamFaultError,
    UpstreamIncompleteError,
    UpstreamLostError,
    UpstreamRefusedError,
    UpstreamTimeoutError,
    UpstreamUnansweredError,
)
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

    def note(self, remark: str) -> None:
        line = " ".join(self.redact.start(remark, _MAX_REMARK_CHARACTERS).split())
        if len(self._remarks) < _MAX_REMARKS:
            self._remarks[line] = None

    @property
    def remarks(self) -> tuple[str, ...]:
        return (*self._remarks,)


FAILURES_IN_A_ROW: Final = 5
FIRST_OPEN_SECONDS: Final = 5.0
LONGEST_OPEN_SECONDS: Final = 60.0
CRASH_SECONDS: Final = 1.0
"""From the first call that a crash cuts off to the last."""

_FAILURES: Final = (UpstreamTimeoutError, UpstreamAnswerError)


class CircuitBreaker:
    """Opens after five failures in a row: calls that were sent and got no answer that can be read.

    Open, it refuses every call at once. After 5 s the next call is let through alone; any answer closes the circuit, an
    error of the upstream, too. A failure opens it for twice as long, up to a minute. A call that nobody answered a
    question of counts only if it was let through alone; one that never left, or whose caller went away, does not count.
    Of calls under way together that are cut off or get an HTTP 5xx within a second only the first is a failure: one
    crash says the same to all of them. `clock` gives seconds.
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
        """What the last failure was; empty while the circuit is closed."""

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Around one call. Raises UpstreamCircuitOpenError: the call may not be made now."""
        is_probe = self._admit()
        self._admitted += 1
        number = self._admitted
        try:
            yield
        except (UpstreamLostError, UpstreamFaultError) as error:
            # A probe is alone, so what it finds out is never another call's.
            if is_probe or number > self._admitted_at_loss or self._clock() - self._lost > CRASH_SECONDS:
                self._admitted_at_loss, self._lost = self._admitted, self._clock()
                self._failed(str(error), is_probe)
            raise
        except _FAILURES as error:
            self._failed(str(error), is_probe)
            raise
        except UpstreamUnansweredError:
            if is_probe:
                self._close()  # it asked since; what other calls were asked may be older than a failure
            raise
        except (UpstreamRefusedError, UpstreamIncompleteError):  # a question is an answer, too
            self._close()
            raise
        else:
            self._close()
        finally:
            if is_probe:
                self._is_probing = False

    def trip(self, reason: str) -> None:
        """Open it at once: the upstream was cut off."""
        if self._opened is None:
            self._opened = self._clock()
        self.reason = reason

    def _admit(self) -> bool:
        """Whether this call is the one that finds out."""
        if self._opened is None:
            return False
        left_seconds = self._opened + self._open_seconds - self._clock()
        if left_seconds > 0 or self._is_probing:
            until = f"in {max(left_seconds, 1):.0f} s" if left_seconds > 0 else "is under way"
            raise UpstreamCircuitOpenError(f"fails: {self.reason}; the next try {until}")
        self._is_probing = True
        return True

    def _failed(self, reason: str, is_probe: bool) -> None:
        if self._opened is not None:
            if not is_probe:
                return  # one of those that were under way when it opened
            self._open_seconds = min(self._open_seconds * 2, LONGEST_OPEN_SECONDS)
        else:
            self._failures += 1
            if self._failures < FAILURES_IN_A_ROW:
                return
        self._opened = self._clock()
        self.reason = f"{FAILURES_IN_A_ROW} calls in a row or more, the last one: {reason}"

    def _close(self) -> None:
        self._failures = 0
        self._opened = None
        self._open_seconds = FIRST_OPEN_SECONDS
        self.reason = ""
