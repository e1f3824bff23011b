"""Notices a worker that is silent although it works: stopped, hung, or beyond what ends a run from inside."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sandbox_runtime.frames import FrameError

LOOK_SECONDS = 1.0
SILENT_LOOKS = 4
"""Looks in a row at which a worker has said nothing since the last one; its clock beats twice a second."""
_MAX_BEATS_A_LOOK = 50


class Watchdog:
    """Looks once a second whether the worker said anything, and calls `bark` when it did not four times in a row.

    Looks are counted, not seconds: a machine that was asleep, or a portal that was busy, is no fault of the worker.
    """

    def __init__(self, bark: Callable[[str], None]) -> None:
        self._bark = bark
        self._silent_looks = 0
        self._beats = 0
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def on_duty(self) -> Iterator[None]:
        """Watch while the worker has something to do."""
        self._silent_looks = self._beats = 0
        self._look_later()
        try:
            yield
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def hear(self) -> None:
        """The worker said something."""
        self._silent_looks = 0

    def hear_beat(self) -> None:
        """The worker's clock beat.

        Raises:
            FrameError: It beats more often than any clock of ours.
        """
        self._beats += 1
        if self._beats > _MAX_BEATS_A_LOOK:
            raise FrameError("a clock that beats too often")

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._silent_looks += 1
        self._beats = 0
        if self._silent_looks >= SILENT_LOOKS:
            self._bark(f"it did not answer for {SILENT_LOOKS * LOOK_SECONDS:g} s")
        else:
            self._look_later()
