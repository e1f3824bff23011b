"""Sends a call again where that is safe and may help."""

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import anyio

from upstreams.errors import (
    UpstreamBusyError,
    UpstreamError,
    UpstreamUnauthorizedError,
    UpstreamUnavailableError,
    UpstreamWithheldError,
)

_FIRST_WAIT_SECONDS: Final = 0.1
_LONGEST_WAIT_SECONDS: Final = 2.0

T = TypeVar("T")


async def with_retries(
    attempt: Callable[[], Awaitable[T]], *, attempts: int, is_safe: Callable[[], bool], deadline: float
) -> T:
    """The first result, or what went wrong, after at most `attempts`.

    `is_safe` says that the call is idempotent; without it a call that may have acted is never repeated. One that
    certainly did nothing may be in any case.

    Raises:
        UpstreamError: Of the last attempt; or of an earlier one that may have acted, where the last did nothing, or
            that the upstream answered, where the last was withheld.
    """
    failures: list[UpstreamError] = []
    may_repeat = False
    while True:
        try:
            return await attempt()
        except UpstreamError as error:
            may_repeat = may_repeat if failures else is_safe()
            failures.append(error)
            wait_seconds = _wait_seconds(error, len(failures))
            is_in_time = anyio.current_time() + wait_seconds < deadline
            if not is_in_time or not _is_worthwhile(failures, may_repeat, attempts):
                raise _most_telling(failures) from None
        await anyio.sleep(wait_seconds)


def _is_worthwhile(failures: Sequence[UpstreamError], is_safe: bool, attempts: int) -> bool:
    last = failures[-1]
    if last.repetition == "if_safe" or isinstance(last, UpstreamBusyError):
        return (is_safe or isinstance(last, UpstreamBusyError)) and len(failures) < attempts
    # What was not sent is sent on the next connection, what was not authorised with the next credentials; once.
    return last.repetition == "always" and sum(type(each) is type(last) for each in failures) == 1


def _most_telling(failures: Sequence[UpstreamError]) -> UpstreamError:
    """The last failure, or an earlier one that says more of what may have happened."""
    last = failures[-1]
    worst = ("unknown", "failed") if isinstance(last, UpstreamWithheldError) else ("unknown",)
    return next((error for error in reversed(failures) if error.outcome in worst), last)


def _wait_seconds(error: UpstreamError, attempts: int) -> float:
    if error.after_seconds is not None:
        return error.after_seconds
    if isinstance(error, UpstreamUnavailableError | UpstreamUnauthorizedError):
        return 0.0
    longest = min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2.0**attempts)
    return random.uniform(longest / 2, longest)
