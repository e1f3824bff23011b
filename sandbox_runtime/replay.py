"""Runs recorded scripts again: `replay` repeats a run without making calls, `resume` continues an unfinished one."""

from collections import deque
from collections.abc import Callable

from sandbox_runtime.call_port import CallObserver, CallPort, Outcome, ToolCall
from sandbox_runtime.errors import DivergenceError, RecordError, ReplayInterruptedError
from sandbox_runtime.frames import REPLAY_LOG_HEADER, FrameError
from sandbox_runtime.grants.run_grants import NO_GRANTS, RunGrants
from sandbox_runtime.recording import Event, Mask, Record, Recording
from sandbox_runtime.result import RunError, RunResult
from sandbox_runtime.sandbox import Sandbox
from sandbox_runtime.trace import REPLAYED, RESUMED


async def replay(
    sandbox: Sandbox, record: Record, where: Callable[[str], str], mask: Mask | None = None
) -> RunResult:
    """Run a recorded script again. Returns the same result, bit for bit, except for the durations.

    No call is made: each call of the script must equal the recorded one, and gets the recorded answer at once. If the
    recorded run was ended from outside, the replay ends at the same event. `where` gives the place of a limit, `mask`
    masked the record's texts.

    Raises:
        DivergenceError: The run diverged from the record; it names the first difference.
        RecordError: The record is of another guest component, of a session, or of an unfinished run.
        ReplayInterruptedError: No worker was free, or the worker was lost or far slower than the recorded one.
    """
    result = await resume(sandbox, Repetition(record, mask=mask), where, _make_none)
    if record.ending is None and record.settings is not None:
        raise RecordError(f"the record ends after event {len(record.events) - 1:,}, but the run continues")
    return result


async def _make_none(call: ToolCall) -> Outcome:
    raise AssertionError(f"a replay made call {call.seq}")


async def resume(
    sandbox: Sandbox,
    repetition: "Repetition",
    where: Callable[[str], str],
    port: CallPort,
    observer: CallObserver | None = None,
    *,
    caller: str = "",
    grants: RunGrants = NO_GRANTS,
) -> RunResult:
    """Repeat a run, and continue it where its record ends. Returns the result of the whole run.

    `repetition` is created from that record with `goes_on`, and becomes the recording of the whole run. Without
    `goes_on` the run is only repeated (`replay`).

    - Recorded calls with an answer are not made again. Those without one go to `port` like later ones; it has to know
      that they may have happened.
    - If the run was interrupted during a change of a file, this and all later changes raise OSError.
    - `seq` continues, and `observer` observes all calls, recorded and new.
    - The wall clock jumps to the current time where the run becomes live; the monotonic clock continues.

    Raises:
        DivergenceError: The run diverged from the record before the record's end.
        RecordError: The run is over, was only parsed, or is of another guest component.
        ReplayInterruptedError: It did not reach the record's end. Nothing was changed; it can be tried again, unless it
            exceeded its CPU time (twice that of the recorded run).
    """
    record = repetition.replayed
    if repetition.goes_on and (record.settings is None or record.ending is not None):
        raise RecordError("only a started and unfinished run can be resumed")
    if record.origin.component != sandbox.component:
        there, here = record.origin.component[:12], sandbox.component[:12]
        raise RecordError(f"the record is of guest component {there}..., but this one is {here}...")
    if record.origin.position:
        raise RecordError("a run of a session cannot be replayed without the runs before it")
    async with sandbox.run(record.limits, where, caller=caller, recording=repetition, grants=grants) as run:
        prepared = await run.prepare(record.script, record.namespaces)
        if repetition.record is None and prepared.error is not None:
            raise ReplayInterruptedError(prepared.error.message)
        if record.settings is None and prepared.error is None:
            result = RunResult(None, None, "", 0, (), (), 0.0, 0.0)
        else:
            result = await run.execute({}, port, observer)
    repetition.check()
    return result


class Repetition(Recording):
    """A recording that compares a run with a record, and ends it at the first difference.

    At the end of an unfinished record the run ends too. With `goes_on` it becomes live there, and this records all of
    it. `mask` masked the record, if anything did: events are compared after masking.
    """

    replayed: Record

    def __init__(self, record: Record, *, goes_on: bool = False, mask: Mask | None = None) -> None:
        super().__init__()
        self.replayed = record
        self.is_live = False
        self.goes_on = goes_on
        self._mask = mask
        self._divergence: DivergenceError | None = None
        self._interruption: RunError | None = None
        self._recorded_answers: deque[str] = deque()

    def begin(self, head: Record) -> bytes:
        super().begin(head)
        self._interruption = None
        self._recorded_answers.clear()
        trace: list[str] = []
        for event in self.replayed.body:
            if event.kind == "clock":
                trace.append(event.text)
            elif event.kind == "resumed":
                trace.append(f"{RESUMED}{event.number}")
            elif event.kind == "answered":
                trace.append(f"{REPLAYED}{len(event.text.encode())}")
                self._recorded_answers += [event.text] if event.text else []
        line = " ".join(trace).encode()
        answers = "".join(self._recorded_answers).encode()
        return REPLAY_LOG_HEADER.pack(self.goes_on, len(line)) + line + answers

    def stop(self, error: RunError, dropped_bytes: int) -> tuple[RunError, int]:
        if self.is_live or self.has_ended:
            return super().stop(error, dropped_bytes)
        if self._divergence is not None:
            return RunError("diverged", str(self._divergence)), dropped_bytes
        ending = self.replayed.ending
        if self._is_at_end and ending is not None and ending.error is not None:
            return ending.error, ending.number
        if self.goes_on or ending is not None or not self._is_at_end:
            self._interruption = error
        return error, dropped_bytes

    def check(self) -> None:
        """Check a finished replay.

        Raises:
            DivergenceError: The run diverged from the record.
            ReplayInterruptedError: The run did not reach its end.
        """
        if self._divergence is not None:
            raise self._divergence
        if (error := self._interruption) is not None:
            # If it took too long, or if the script was still parsed, the machine was busy.
            is_running = self.head is not None and self.head.settings is not None
            is_limit = is_running and error.code == "cpu_limit"
            raise ReplayInterruptedError(error.message, error.code if is_limit else "sandbox_busy")
        if not (self.is_live or self._is_at_end):
            index = len(self.events)
            raise DivergenceError(index, str(self.replayed.events[index]), "nothing more")

    @property
    def _is_at_end(self) -> bool:
        return len(self.events) >= len(self.replayed.body)

    def _note(self, event: Event) -> None:
        if not self.is_live:
            index = len(self.events)
            expected = self.replayed.events[index] if index < len(self.replayed.events) else None
            if expected is None and self.goes_on:
                self.is_live = True
            elif expected is None or expected.kind == "stopped":
                raise FrameError("the record ends here")
            elif event != expected and (got := self._masked(event)) != self._masked(expected):
                self._divergence = DivergenceError(index, str(expected), str(got))
                raise FrameError("the run diverges from its record")
        super()._note(event)

    def _masked(self, event: Event) -> Event:
        return event if self._mask is None else event.masked(self._mask)

    def _answered(self, frames: int) -> str:
        if frames and self._recorded_answers:
            return self._recorded_answers.popleft()
        return super()._answered(frames)
