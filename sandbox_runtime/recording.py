"""Records a run while it goes on, and repeats one: then all that it does is held against the record, event by event."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from manifests.grants import Limits
from sandbox_runtime.errors import DivergenceError, ReplayInterruptedError
from sandbox_runtime.frames import END_HEADER, PAST_HEADER, TRAP_HEADER, FrameError, ToPortal, TrapCause
from sandbox_runtime.record import UNRECORDED, Event, Origin, Record, digest
from sandbox_runtime.result import Bounds, RunError
from sandbox_runtime.timeline import (
    ANSWERED,
    LATER,
    MAX_TRACE_BYTES,
    READS,
    REPEATED,
    RESUMED,
    TraceError,
    tokens,
)

MAX_RECORD_BYTES = 32 << 20
_EVENT_BYTES = 100
_PATIENCE = 4.0
_RECORD_ENDS = RunError("record_ended", "the record of this run ends here")


class RunEndsHereError(FrameError):
    """A run that is repeated has come to where it was ended from outside; `error` and `dropped_bytes` were its end."""

    def __init__(self, error: RunError, dropped_bytes: int) -> None:
        super().__init__("its record ends here")
        self.error = error
        self.dropped_bytes = dropped_bytes


class Recording:
    """Takes one run down. Given to `Sandbox.run`; `events` grows while the run goes on.

    An event is there before anything that follows from it happens: before a call is made, all that led the script
    to it is recorded. `max_bytes` (32 MiB) bounds what is kept; a run that needs more goes on, its result has a notice,
    and `record` is None.
    """

    def __init__(self, max_bytes: int = MAX_RECORD_BYTES) -> None:
        self.events: list[Event] = []
        self._max_bytes = max_bytes
        self._bytes = 0
        self._head: Record | None = None
        self._places: dict[str, str] = {}
        self._answers: deque[bytes] = deque()
        self._reads: list[str] = []
        self._is_over = False

    @property
    def record(self) -> Record | None:
        """The run as far as it went; None before it was prepared, and when its record would be too large."""
        if self._head is None or self.is_too_large:
            return None
        return replace(self._head, places=dict(self._places), events=tuple(self.events))

    @property
    def is_too_large(self) -> bool:
        return self._bytes > self._max_bytes

    @property
    def patience(self) -> float:
        """By how much the times that the run may take are multiplied."""
        return 1.0

    @property
    def notices(self) -> tuple[str, ...]:
        """What the result of the run says about its recording."""
        if not self.is_too_large:
            return ()
        return (f"this run was not recorded: its record would have more than {self._max_bytes:,} bytes",)

    def origin(self, present: Origin) -> Origin:
        """Where the run is to begin."""
        return present

    def remember(self, where: Callable[[str], str]) -> Callable[[str], str]:
        """`where`, taken down whenever it is asked."""

        def place(key: str) -> str:
            told = self._places[key] = where(key)
            return told

        return place

    def longest_call(self, present: int) -> int:
        """How many bytes a call of the run may have."""
        return present

    def begin(
        self, origin: Origin, script: str, namespaces: tuple[str, ...], limits: Limits, longest_call: int
    ) -> None:
        """The script is about to be parsed."""
        self._head = Record(origin, script, namespaces, limits, longest_call, {}, None, ())

    @property
    def may_start_over(self) -> bool:
        """Whether the run may be given to another worker when it loses its own before it did anything."""
        return True

    def start_over(self) -> bytes:
        """A worker is about to get the run. Returns what it is to be told of the run's past."""
        self.events.clear()
        self._answers.clear()
        self._reads.clear()
        self._is_over = False
        head = self._head
        self._bytes = 0 if head is None else len(head.script) + sum(map(len, head.namespaces))
        return b""

    def execute(self, settings: bytes) -> None:
        """The script is about to run."""
        if self._head is not None:
            self._head = replace(self._head, settings=settings.decode())
        self._charge(len(settings))

    def answer(self, answers: bytes) -> None:
        """Answers were sent to the worker; when the script gets them, the trace will tell."""
        if not self.is_too_large:
            self._answers.append(answers)

    def take(self, kind: int, payload: bytes) -> None:
        """A frame of the worker.

        Raises:
            FrameError: It is none that an honest worker would send, or none of this run.
        """
        if self.is_too_large or self._is_over:
            return
        if kind == ToPortal.TRACE:
            self._take_trace(payload)
            return
        event = _event(kind, payload)
        if event is not None:
            self._settle_reads()
            self._charge(len(payload) if event.kind in ("sent", "printed") else 0)
            self._add(event)

    def end_where_recorded(self) -> None:
        """What the frame taken last told was acted upon.

        Raises:
            RunEndsHereError: The run is a repetition, and was ended from outside before anything more happened.
        """

    def stop(self, error: RunError, dropped_bytes: int) -> None:
        """The run was ended from outside."""
        if self.is_too_large or self._is_over:
            return
        self._settle_reads()
        self._add(Event("stopped", number=dropped_bytes, error=error))

    def _take_trace(self, trace: bytes) -> None:
        if len(trace) > MAX_TRACE_BYTES:
            raise FrameError("a trace that is longer than a worker of ours would write")
        try:
            for sign, number in tokens(trace):
                self._learn(sign, number)
        except TraceError as error:
            raise FrameError(str(error)) from error

    def _learn(self, sign: str, number: int) -> None:
        if self.is_too_large:
            return
        if sign in (READS, LATER) and number:
            self._reads.append(f"{sign}{number}")
            self._charge(len(self._reads[-1]) + 1)
            return
        self._settle_reads()
        if sign == ANSWERED:
            text = self._answered(number)
            self._charge(len(text))
            self._add(Event("answered", text))
        elif sign == RESUMED:
            self._add(Event("resumed", number=number))
        else:
            raise FrameError("a trace that no worker of ours would write")

    def _answered(self, frames: int) -> str:
        """The text that so many of the frames sent last came to."""
        if not frames:
            return ""
        if frames > len(self._answers):
            raise FrameError("answers that nobody gave")
        return f"[{b','.join(self._answers.popleft() for _ in range(frames)).decode()}]"

    def _settle_reads(self) -> None:
        if self._reads:
            read = Event("clock", " ".join(self._reads))
            self._reads.clear()
            self._add(read)

    def _add(self, event: Event) -> None:
        if event.kind == "trapped" and TrapCause[event.text] in UNRECORDED:
            raise FrameError("a run that is no repetition has done something unrecorded")
        self._charge(_EVENT_BYTES)
        if not self.is_too_large:
            self.events.append(event)
        self._is_over = event.is_ending

    def _charge(self, size: int) -> None:
        self._bytes += size
        if self.is_too_large:
            self.events.clear()
            self._answers.clear()
            self._reads.clear()


class Repetition(Recording):
    """A recording that knows what is to come, and ends the run at the first difference.

    Where a record without an ending ends, the run ends too. If it `goes_on`, it is live from there, and this is a
    recording of all of it.
    """

    def __init__(self, record: Record, *, goes_on: bool = False, max_bytes: int = MAX_RECORD_BYTES) -> None:
        super().__init__(max_bytes)
        self.source = record
        self.on_live: Callable[[], None] = lambda: None
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
            event.text for event in self._body if event.kind == "answered" and event.text
        )
        return self._past()

    def _past(self) -> bytes:
        trace: list[str] = []
        answers: list[bytes] = []
        for event in self._body:
            if event.kind == "clock":
                trace.append(event.text)
            elif event.kind == "resumed":
                trace.append(f"{RESUMED}{event.number}")
            elif event.kind == "answered":
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
        if len(self.events) == len(self._body) and self._ending and self._ending.is_from_outside:
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
            expected = self._body[index]
        elif self._ending is None and self._goes_on:
            self.is_live = True
            self.on_live()
            return
        elif self._ending is None or self._ending.is_from_outside:
            raise self._end_from_outside()
        else:
            expected = self._ending
        if event == expected:
            return
        if self._goes_on and event.kind == "trapped" and event.is_from_outside:
            self.interruption = self._bounds.trap(TrapCause.CPU, "")
        else:
            self.divergence = DivergenceError(index, str(expected), str(event))
        raise FrameError("it does something else than the run it repeats")

    def _end_from_outside(self) -> RunEndsHereError:
        ending = self._ending
        self.has_ended = True
        if ending is None:
            return RunEndsHereError(_RECORD_ENDS, 0)
        return RunEndsHereError(ending.error or self._bounds.trap(TrapCause.CPU, ""), ending.number)

    def _answered(self, frames: int) -> str:
        if frames and self._recorded_answers:
            return self._recorded_answers.popleft()
        return super()._answered(frames)


def _event(kind: int, payload: bytes) -> Event | None:
    """What a frame of the worker tells, if it is an event."""
    try:
        match kind:
            case ToPortal.PREPARED:
                return Event("parsed", number=int(not payload.startswith(b'{"error"')))
            case ToPortal.CALLS:
                return Event("sent", payload.decode())
            case ToPortal.OUTPUT:
                return Event("printed", payload.decode())
            case ToPortal.BLOCK:
                return Event("emitted", digest(payload))
            case ToPortal.FINISHED if len(payload) >= END_HEADER.size:
                return Event(
                    "finished", digest(payload[END_HEADER.size :]), END_HEADER.unpack_from(payload)[1]
                )
            case ToPortal.TRAPPED if len(payload) >= END_HEADER.size + TRAP_HEADER.size:
                cause = TrapCause(payload[END_HEADER.size])
                return Event("trapped", cause.name, END_HEADER.unpack_from(payload)[1])
    except ValueError as error:  # text that is no UTF-8, or a cause that does not exist
        raise FrameError("an event that no worker of ours would send") from error
    return None
