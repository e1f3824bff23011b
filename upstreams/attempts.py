"""When an upstream that could not be reached is tried again, and how long a call waits for that."""

from collections.abc import Callable
from math import ceil, inf
from typing import Final

RETRY_ON_CALL_SECONDS: Final = 5.0
"""A call to an upstream that has been waiting longer than this for its next attempt starts it."""

PATIENCE_SECONDS: Final = 10.0
"""An attempt after a failed one is waited for this long, from its beginning: servers may be slow to start."""

PATIENCE_AFTER_HANGING_SECONDS: Final = 2.0
"""The same after an attempt that lasted as long in vain, or until its time was up: this one may hang as well."""

PATIENCE_OF_REPEATS_SECONDS: Final = 10.0
"""A call that was cut off, and is to be repeated, waits so long for the upstream, however many attempts fail meanwhile:
a server that is restarted is soon back."""

PATIENCE_TIMES: Final = 1.5
"""It is at least so many times what the last attempt took that succeeded, but after one that hung no more than
`PATIENCE_SECONDS`: a server that once was slow to start may hang now."""


class Attempts:
    """Attempts to reach one upstream, each after one that failed: between them it rests. `clock` gives seconds.

    None may take longer than `connect_seconds`.
    """

    def __init__(self, clock: Callable[[], float], connect_seconds: float) -> None:
        self._clock = clock
        self._hanging_seconds = min(PATIENCE_SECONDS, connect_seconds)
        self._attempt_began = clock()
        self._patience_seconds = PATIENCE_SECONDS
        self._good_seconds = 0.0
        self._rest_began: float | None = None
        self._due = 0.0

    def rest(self, seconds: float, *, was_reached: bool) -> None:
        """The last one failed, or what it reached was lost, and the next is due after so long."""
        self._rest_began = self._clock()
        self._due = self._rest_began + seconds
        has_hung = not was_reached and self._rest_began - self._attempt_began >= self._hanging_seconds
        usual_seconds = PATIENCE_TIMES * self._good_seconds
        self._patience_seconds = (
            min(max(PATIENCE_AFTER_HANGING_SECONDS, usual_seconds), PATIENCE_SECONDS)
            if has_hung
            else max(PATIENCE_SECONDS, usual_seconds)
        )

    def begin(self) -> None:
        """The rest is over."""
        if self._rest_began is not None:
            self._rest_began = None
            self._attempt_began = self._clock()

    def begin_turn(self) -> None:
        """It waits for the turns of other upstreams no longer."""
        self._attempt_began = self._clock()

    def succeed(self) -> None:
        """It was reached."""
        self._good_seconds = self._clock() - self._attempt_began

    def begin_for_call(self) -> bool:
        """Whether an attempt is under way for a call that comes now: it ends the rest unless that is young."""
        if self._left_for_call() > 0:
            return False
        self.begin()
        return True

    @property
    def patience_end(self) -> float:
        """Until when calls wait; before any time while it rests."""
        return -inf if self._rest_began is not None else self._attempt_began + self._patience_seconds

    @property
    def prospect(self) -> str:
        """When it is tried again, for whoever hears that it was not reached."""
        if self._rest_began is None:
            return f"an attempt has been under way for {self._clock() - self._attempt_began:.0f} s"
        due_seconds = max(ceil(self._due - self._clock()), 1)
        call_seconds = max(ceil(self._left_for_call()), 0)
        told = f"the next attempt is in {due_seconds} s"
        if call_seconds >= due_seconds:
            return told
        return f"{told}, or with a call in {call_seconds} s" if call_seconds else f"{told}, or with a call"

    def _left_for_call(self) -> float:
        """Seconds until a call ends the rest."""
        if self._rest_began is None:
            return 0.0
        return self._rest_began + RETRY_ON_CALL_SECONDS - self._clock()
