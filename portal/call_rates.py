"""How often tools were called in the last minute, by all runs together."""

import time
from collections import deque
from typing import Final

from manifests.rules import Budget
from manifests.yaml_source import KeyPath

WINDOW_SECONDS: Final = 60.0


class CallRates:
    """Counts calls of budgets that say `per_minute`: in any 60 seconds there are at most so many."""

    def __init__(self) -> None:
        self._calls: dict[KeyPath, deque[float]] = {}

    def wait_seconds(self, budget: Budget) -> float:
        """How long until there is room for one more call; 0 if there is now."""
        if budget.per_minute is None:
            return 0.0
        if budget.per_minute == 0:
            return WINDOW_SECONDS
        calls, now = self._calls.get(budget.keys, deque()), time.monotonic()
        while calls and now - calls[0] >= WINDOW_SECONDS:
            calls.popleft()
        return 0.0 if len(calls) < budget.per_minute else max(calls[0] + WINDOW_SECONDS - now, 0.001)

    def count(self, budget: Budget) -> None:
        if budget.per_minute is not None:
            self._calls.setdefault(budget.keys, deque()).append(time.monotonic())
