"""Keeps an answer that comes as fast as the portal reads from taking its time from the others."""

from typing import Final

from upstreams.steps import STEP_BYTES

BYTES_AT_ONCE: Final = 4 * 1024 * 1024
BYTES_BETWEEN_RESTS: Final = STEP_BYTES
REST_SECONDS: Final = 0.001
"""A clock's tick: fewer and longer rests would leave calls that meet several pieces in a row."""


class Pace:
    """Of one answer, at most 60 MiB a second once it is long: few come faster but those of a server on this machine.

    All of one upstream that are long rest one after the other, so it is no more of them together.
    """

    def __init__(self) -> None:
        self._next_rest = BYTES_AT_ONCE

    def rest_seconds(self, read_bytes: int) -> float:
        """How long to rest, now that so many bytes of the answer were read."""
        if read_bytes < self._next_rest:
            return 0.0
        self._next_rest = read_bytes + BYTES_BETWEEN_RESTS
        return REST_SECONDS
