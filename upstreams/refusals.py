"""What an upstream refuses because of a session or of credentials: those of the connection, or of one call alone."""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from upstreams.errors import (
    UpstreamDownError,
    UpstreamError,
    UpstreamRefusedError,
    UpstreamSessionError,
    UpstreamStillUnauthorizedError,
    UpstreamUnauthorizedError,
)

YOUNG_SECONDS: Final = 10.0
"""An upstream that goes on refusing a call is connected anew for it at most this often."""

LOOK_SECONDS: Final = 5.0
LOOK_TIMES: Final = 2
"""How long it may take to show that it takes other requests, or so many times what the same took before."""


class Looks:
    """Whether the upstream takes other requests on one connection.

    One look is for all who were refused before it began: what was seen before that may have changed since.
    """

    def __init__(self, look: Callable[[], Awaitable[bool]]) -> None:
        self._look = look
        self._turn = anyio.Lock()
        self._refused = 0
        self._looked_for = 0
        self._takes_others = False

    async def takes_others(self, seconds: float) -> bool:
        """What is seen now by one who was just refused; False if that takes longer."""
        self._refused += 1
        number = self._refused
        with anyio.move_on_after(seconds):
            async with self._turn:
                if self._looked_for < number:
                    refused = self._refused
                    self._takes_others = await self._look()
                    self._looked_for = refused
                return self._takes_others
        return False


def is_refusal(failure: UpstreamError) -> bool:
    """Whether it did not take the session, or credentials, or there are no others to be had."""
    return isinstance(failure, UpstreamSessionError | UpstreamUnauthorizedError | UpstreamDownError)


def was_renewed(failure: UpstreamError) -> bool:
    """Whether what it refuses was new."""
    return isinstance(failure, UpstreamStillUnauthorizedError)


def of_call(failure: UpstreamError) -> UpstreamError:
    """The same as an error of its call alone: the upstream takes other requests."""
    if isinstance(failure, UpstreamUnauthorizedError):
        return UpstreamStillUnauthorizedError(f"{failure}; it takes the same credentials for other requests")
    if isinstance(failure, UpstreamSessionError):
        return UpstreamRefusedError(f"refuses it as if of an unknown session, which it knows ({failure})")
    return failure
