"""Sends a call again where that is safe and may help."""

import random
from collections.abc import Awaitable, Callable, Sequence
from math import exp
from typing import Final, TypeVar

import anyio

from upstreams.errors import (
    UpstreamBusyError,
    UpstreamError,
    UpstreamUnauthorizedError,
    UpstreamUnavailableError,
    UpstreamWithheldError,
    asked_to_wait,
)

_FIRST_WAIT_SECONDS: Final = 0.1
_LONGEST_WAIT_SECONDS: Final = 2.0

T = TypeVar("T")
Attempt = Callable[[], Awaitable[T]]


class RetryBudget:
    """How many repeats an upstream's calls may cost: a fifth of them, and three, as of the last ten seconds.

    So an outage in which every call fails is not multiplied. `clock` gives seconds.
    """

    SHARE: Final = 0.2
    FLOOR: Final = 3.0
    MEMORY_SECONDS: Final = 10.0

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._calls = 0.0
        self._repeats = 0.0
        self._as_of = clock()

    def note_call(self) -> None:
        self._fade()
        self._calls += 1

    def take(self) -> bool:
        """Whether one more repeat may be made; it counts from now on."""
        self._fade()
        if self._repeats + 1 > self.FLOOR + self.SHARE * self._calls:
            return False
        self._repeats += 1
        return True

    def _fade(self) -> None:
        now = self._clock()
        left = exp((self._as_of - now) / self.MEMORY_SECONDS)
        self._calls, self._repeats, self._as_of = self._calls * left, self._repeats * left, now


class Retries:
    """The repeats of one upstream's calls: at most `attempts` for each, within its deadline and the budget."""

    def __init__(self, attempts: int, clock: Callable[[], float]) -> None:
        self._attempts = attempts
        self._clock = clock
        self._budget = RetryBudget(clock)

    async def run(self, attempt: Attempt[T], *, is_safe: Callable[[], bool], deadline: float) -> T:
        """The first result, or what went wrong.

        `is_safe` says that the call is idempotent; without it a call that may have acted is never repeated. One that
        certainly did nothing may be in any case.

        Raises:
            UpstreamError: Of the last attempt; or of an earlier one that may have acted, where the last did nothing, or
                that the upstream answered, where the last was withheld.
        """
        self._budget.note_call()
        failures: list[UpstreamError] = []
        may_repeat = False
        while True:
            try:
                return await attempt()
            except UpstreamError as error:
                may_repeat = may_repeat if failures else is_safe()
                failures.append(error)
                wait_seconds = _wait_seconds(error, len(failures))
                if self._clock() + wait_seconds >= deadline or not self._is_worthwhile(failures, may_repeat):
                    raise _most_telling(failures) from None
            await anyio.sleep(wait_seconds)

    def _is_worthwhile(self, failures: Sequence[UpstreamError], is_safe: bool) -> bool:
        """Whether to send the call once more; takes it from the budget."""
        last = failures[-1]
        if last.repetition == "if_safe" or isinstance(last, UpstreamBusyError):
            is_allowed = is_safe or isinstance(last, UpstreamBusyError)
            return is_allowed and len(failures) < self._attempts and self._budget.take()
        # What was not sent is sent on the next connection, what was not authorised with the next credentials; once.
        return last.repetition == "always" and sum(type(each) is type(last) for each in failures) == 1


def _most_telling(failures: Sequence[UpstreamError]) -> UpstreamError:
    """The last failure, or an earlier one that says more of what may have happened."""
    last = failures[-1]
    worst = ("unknown", "failed") if isinstance(last, UpstreamWithheldError) else ("unknown",)
    return next((error for error in reversed(failures) if error.outcome in worst), last)


def _wait_seconds(error: UpstreamError, attempts: int) -> float:
    if (asked := asked_to_wait(error)) is not None:
        return asked
    if isinstance(error, UpstreamUnavailableError | UpstreamUnauthorizedError):
        return 0.0
    longest = min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2.0**attempts)
    return random.uniform(longest / 2, longest)
