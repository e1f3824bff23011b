"""Sends a call again where that is safe and may help."""

import random
from collections.abc import Awaitable, Callable
from math import exp
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from upstreams.errors import (
    UpstreamBusyError,
    UpstreamError,
    UpstreamUnauthorizedError,
    UpstreamUnavailableError,
    UpstreamWithheldError,
    asked_to_wait,
)

if TYPE_CHECKING:
    from tenacity import RetryCallState

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

        `is_safe` says that a second call does no harm; without it a call that may have acted is never repeated. One
        that certainly did nothing may be in any case.

        Raises:
            UpstreamError: Of the last attempt; or of an earlier one that may have acted, where the last did nothing, or
                that the upstream answered, where the last was withheld.
        """
        self._budget.note_call()
        try:
            return await attempt()
        except UpstreamError as error:
            if error.repetition == "never":
                raise
            repeats = _Repeats(error, self._attempts, self._budget, is_safe())
        return await self._repeat(attempt, repeats, deadline)

    async def _repeat(self, attempt: Attempt[T], repeats: "_Repeats", deadline: float) -> T:
        # Only a failure pays for this import, which takes a tenth of a second on a busy machine.
        from tenacity import AsyncRetrying

        retrying = AsyncRetrying(
            retry=repeats.is_worthwhile,
            wait=repeats.wait_seconds,
            stop=lambda state: self._clock() + state.upcoming_sleep >= deadline,
            sleep=anyio.sleep,
            reraise=True,
        )
        try:
            result: T = await retrying(repeats.next_attempt, attempt)
        except UpstreamError as error:
            if earlier := repeats.told_instead_of(error):
                raise earlier from error
            raise
        return result


class _Repeats:
    """One call that failed once, and what became of its repeats."""

    def __init__(self, first: UpstreamError, attempts: int, budget: RetryBudget, is_safe: bool) -> None:
        self._failures = [first]
        self._is_first_told = False
        self._attempts = attempts
        self._budget = budget
        self._is_safe = is_safe

    async def next_attempt(self, attempt: Attempt[T]) -> T:
        if not self._is_first_told:  # tenacity counts the attempt that was made without it
            self._is_first_told = True
            raise self._failures[0]
        try:
            return await attempt()
        except UpstreamError as error:
            self._failures.append(error)
            raise

    def told_instead_of(self, last: UpstreamError) -> UpstreamError | None:
        """An earlier failure that says more of what may have happened than the last one."""
        if last.outcome == "unknown":
            return None
        worst = ("unknown", "failed") if isinstance(last, UpstreamWithheldError) else ("unknown",)
        return next((error for error in reversed(self._failures) if error.outcome in worst), None)

    def is_worthwhile(self, state: "RetryCallState") -> bool:
        """Whether to send the call once more; takes it from the budget."""
        error = _error(state)
        if error is None or not self._is_passing(error):
            return False
        if error.repetition == "if_safe" or isinstance(error, UpstreamBusyError):
            return state.attempt_number < self._attempts and self._budget.take()
        return True

    def _is_passing(self, error: UpstreamError) -> bool:
        if error.repetition == "if_safe":
            return self._is_safe
        # What was not sent is sent on the next connection, what was not authorised with the next credentials; once.
        alike = sum(type(failure) is type(error) for failure in self._failures)
        return error.repetition == "always" and (isinstance(error, UpstreamBusyError) or alike == 1)

    def wait_seconds(self, state: "RetryCallState") -> float:
        error = _error(state)
        if (asked := asked_to_wait(error)) is not None:
            return asked
        if isinstance(error, UpstreamUnavailableError | UpstreamUnauthorizedError):
            return 0.0
        longest = min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2.0**state.attempt_number)
        return random.uniform(longest / 2, longest)


def _error(state: "RetryCallState") -> UpstreamError | None:
    error = state.outcome.exception() if state.outcome else None
    return error if isinstance(error, UpstreamError) else None
