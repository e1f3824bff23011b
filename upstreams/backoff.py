"""When to try again."""

import random
from typing import Final

FIRST_SECONDS: Final = 0.5
LONGEST_SECONDS: Final = 30.0


class Backoff:
    """Doubles from half a second to thirty; jittered, so that a fleet does not knock all at once."""

    def __init__(self) -> None:
        self._failures = 0

    @property
    def failures(self) -> int:
        """How many attempts failed since the last success."""
        return self._failures

    def failed(self) -> float:
        """Note a failure; the seconds to wait now."""
        # Past 2**10 the cap rules anyway; an upstream that is down for a week must not overflow a float.
        seconds = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(self._failures, 10))
        self._failures += 1
        return seconds * random.uniform(0.5, 1.0)

    def succeeded(self) -> None:
        self._failures = 0
