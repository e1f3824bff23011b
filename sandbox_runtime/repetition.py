"""Repeats a run: tells the worker what the run learned, and holds all it does against the record, event by event."""

from collections import deque
from collections.abc import Callable

from sandbox_runtime.bounds import Bounds
from sandbox_runtime.errors import DivergenceError, ReplayInterruptedError
from sandbox_runtime.events import Answered, ClocksRead, Event, Resumed, Stopped, Trapped, is_from_outside
from sandbox_runtime.frames import PAST_HEADER, FrameError, TrapCause
from sandbox_runtime.record import Origin, Record
from sandbox_runtime.recording import MAX_RECORD_BYTES, Recording, RunEndsHereError
from sandbox_runtime.result import RunError
from sandbox_runtime.trace import REPEATED, RESUMED

_PATIENCE = 4.0
_RECORD_ENDS = RunError("record_ended", "the record of this run ends here")


class Repetition(Recording):
    """A recording that knows what is to come, and ends the run at the first difference.

    Where a record without an ending ends, the run ends too. If it `goes_on`, it is live from there, and this is a
    recording of all of it.
    """

    def __init__(self, record: Record, *, goes_on: bool = False, max_bytes: int = MAX_RECORD_BYTES) -> None:
        super().__init__(max_bytes)
        self.source = record
        self.on_live: Callable[[], None] = _nothing
        self.divergence: DivergenceError | None = None
        self.interruption: RunError | None = None
        self.is_live = False
        self.has_ended = False
        self._goes_on = goes_on
        self._bounds = Bounds(record.limits, record.place)
        self._body = record.body
        self._ending = record.ending
        self._recorded_answers: deque[str] = deque()

    @property
    def patience(self) -> float:
        """A slower machine must not make another run of it; what goes on has the time it always had."""
        return 1.0 if self._goes_on else _PATIENCE

    @property
    def is_too_large(self) -> bool:
        return self.is_live and super().is_too_large

    def origin(self, present: Origin) -> Origin:
        return self.source.origin

    def longest_call(self, present: int) -> int:
        return self.source.longest_call

    @property
    def may_start_over(self) -> bool:
        return self.divergence is None and not self.has_ended

    def start_over(self) -> bytes:
        super().start_over()
        self.interruption = None
        self._recorded_answers = deque(
            event.text for event in self._body if isinstance(event, Answered) and event.text
        )
        return self._past()

    def _past(self) -> bytes:
        trace: list[str] = []
        answers: list[bytes] = []
        for event in self._body:
            if isinstance(event, ClocksRead):
                trace.append(event.tokens)
            elif isinstance(event, Resumed):
                trace.append(f"{RESUMED}{event.wall_ms}")
            elif isinstance(event, Answered):
                answers.append(event.text.encode())
                trace.append(f"{REPEATED}{len(answers[-1])}")
        line = " ".join(trace).encode()
        return b"".join((PAST_HEADER.pack(self._goes_on, len(line)), line, *answers))

    def stop(self, error: RunError, dropped_bytes: int) -> None:
        if self.is_live:
            super().stop(error, dropped_bytes)
        elif self.divergence is None and not self.has_ended:
            self.interruption = error

    def end_where_recorded(self) -> None:
        # What the run did after that, if anything, nobody knows: it ends here, not when its time is up again.
        if len(self.events) == len(self._body) and is_from_outside(self._ending):
            raise self._end_from_outside()

    def check(self) -> None:
        """Tell, when the run is over, what kept it from being the recorded one to the end.

        Raises:
            DivergenceError: It was another.
            ReplayInterruptedError: It did not come to its end.
        """
        if self.divergence is not None:
            raise self.divergence
        if self.interruption is not None:
            raise ReplayInterruptedError(self.interruption.message)
        index = len(self.events)
        if index < len(self._body) and not self.is_live:
            raise DivergenceError(index, str(self._body[index]), "nothing more")

    def _add(self, event: Event) -> None:
        if not self.is_live:
            self._compare(len(self.events), event)
        super()._add(event)
        self.has_ended = self._is_over

    def _compare(self, index: int, event: Event) -> None:
        if index < len(self._body):
            expected: Event | None = self._body[index]
        elif self._ending is None and self._goes_on:
            self.is_live = True
            self.on_live()
            return
        elif self._ending is None or is_from_outside(self._ending):
            raise self._end_from_outside()
        else:
            expected = self._ending
        if event == expected:
            return
        if self._goes_on and isinstance(event, Trapped) and event.cause == TrapCause.CPU:
            self.interruption = self._bounds.trap(event.cause, "")
        else:
            self.divergence = DivergenceError(index, str(expected), str(event))
        raise FrameError("it does something else than the run it repeats")

    def _end_from_outside(self) -> RunEndsHereError:
        ending = self._ending
        self.has_ended = True
        if ending is None:
            return RunEndsHereError(_RECORD_ENDS, 0)
        if isinstance(ending, Stopped):
            return RunEndsHereError(ending.error, ending.dropped_bytes)
        return RunEndsHereError(self._bounds.trap(TrapCause.CPU, ""), ending.dropped_bytes)

    def _answered(self, frames: int) -> str:
        if frames and self._recorded_answers:
            return self._recorded_answers.popleft()
        return super()._answered(frames)


def _nothing() -> None:
    """Nobody waits for it."""
