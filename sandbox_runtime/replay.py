"""Runs recorded scripts again: `replay` to the same end with nothing going out, `resume` to go on live from there."""

from collections.abc import Callable, Iterator
from contextlib import suppress

from manifests.json_value import Json
from sandbox_runtime.calls import CallError, CallObserver, CallPort, NoObserver, Outcome, ToolCall
from sandbox_runtime.calls_in_flight import CallsInFlight, TooManyCallsError
from sandbox_runtime.errors import RecordError, ReplayInterruptedError
from sandbox_runtime.grants.file_service import OUTCOME_UNKNOWN, FileService, changes
from sandbox_runtime.grants.run_grants import NO_GRANTS, RunGrants
from sandbox_runtime.guest_json import GuestJsonError, parse
from sandbox_runtime.record import Record
from sandbox_runtime.recording import Repetition
from sandbox_runtime.result import RunResult
from sandbox_runtime.run import Run
from sandbox_runtime.sandbox import Sandbox


async def replay(sandbox: Sandbox, record: Record, caller: str = "") -> RunResult:
    """Run a recorded script again and return the same result, bit for bit but for the times it took.

    No call is made: each one the script makes must be the recorded one, and gets the recorded answer, without
    waiting. The replay of a run that was ended from outside ends where that did.

    Raises:
        DivergenceError: The run did something else than recorded; it names the first difference.
        RecordError: The record is of another guest component, of a session, or the beginning of a run.
        ReplayInterruptedError: No worker was free, or the one at work was lost or far slower than then.
    """
    port = outcome_unknown
    result = await _repeat(sandbox, Repetition(record), port, None, record.place, port, caller, NO_GRANTS)
    if record.ending is None and record.settings is not None:
        raise RecordError(f"the record ends after event {len(record.events) - 1:,}, and the run goes on")
    return result


async def outcome_unknown(call: ToolCall) -> Outcome:
    """The answer to a call that was under way when its run was interrupted: it may have happened."""
    told = f"{call.function} was called before this run was interrupted, and what came of it is not known"
    return Outcome(error=CallError("outcome_unknown", told, "Check its effect before calling again."))


async def resume(
    sandbox: Sandbox,
    repetition: Repetition,
    port: CallPort,
    observer: CallObserver | None = None,
    *,
    where: Callable[[str], str] | None = None,
    unanswered: CallPort = outcome_unknown,
    caller: str = "",
    grants: RunGrants = NO_GRANTS,
) -> RunResult:
    """Go on with a run of which a record without an ending was kept, and return the result of the whole.

    `repetition` is made of that record with `goes_on`, and afterwards is the recording of the whole run. Calls that
    the record has answers to are not made again; `unanswered` is asked about those it has none to, and says that
    nobody knows, unless it knows better; all others go to `port`. If a file was being changed, this and all later
    changes of files are an OSError. `seq` counts on, and `observer` hears of the calls
    before and after. The wall clock shows the present time from where the run goes on, the monotonic one goes on
    where it was.

    Raises:
        DivergenceError: The run did something else than recorded before it came to the record's end.
        RecordError: The run is over, was only parsed, or is of another guest component.
        ReplayInterruptedError: It did not come to the record's end; nothing was done, and it can be tried again.
    """
    record = repetition.source
    if record.settings is None or record.ending is not None:
        raise RecordError("only a run that had begun and has not ended can be resumed")
    return await _repeat(
        sandbox, repetition, port, observer, where or record.place, unanswered, caller, grants
    )


async def _repeat(
    sandbox: Sandbox,
    repetition: Repetition,
    port: CallPort,
    observer: CallObserver | None,
    where: Callable[[str], str],
    unanswered: CallPort,
    caller: str,
    grants: RunGrants,
) -> RunResult:
    record = repetition.source
    if record.origin.component != sandbox.component:
        there, here = record.origin.component[:12], sandbox.component[:12]
        raise RecordError(f"the record is of guest component {there}..., and this is {here}...")
    if record.origin.position:
        raise RecordError("a run of a session cannot be run again without the runs before it")
    async with sandbox.run(record.limits, where, caller=caller, recording=repetition) as run:
        prepared = await run.prepare(record.script, record.namespaces)
        if run.worker is None and prepared.error is not None and repetition.record is None:
            raise ReplayInterruptedError(prepared.error.message)
        result = RunResult(None, prepared.error, "", 0, (), (), 0.0, 0.0)
        if record.settings is not None and run.worker is not None:
            calls = RepeatedCalls(run, repetition, port, observer or NoObserver(), unanswered, grants.files)
            result = await run.execute_with(record.settings.encode(), calls)
    repetition.check()
    return result


class RepeatedCalls(CallsInFlight):
    """Calls of a run that is repeated. Until it goes live, if it does, nothing is started and nothing sent."""

    def __init__(
        self,
        run: Run,
        repetition: Repetition,
        port: CallPort,
        observer: CallObserver,
        unanswered: CallPort,
        files: FileService | None,
    ) -> None:
        assert run.worker is not None
        super().__init__(run.worker, self._answer_of, observer, run.bounds, run.fail, files, repetition)
        self._live_port = port
        self._unanswered = unanswered
        answered = list(answers(repetition.source))
        self._answered = {answer[0] for answer in answered if type(answer[0]) is int}
        self._error_codes |= {
            code for _, is_value, code, *_ in answered if is_value == 0 and isinstance(code, str)
        }
        self._earlier = 0
        self._is_change_in_doubt = False
        self._is_held = not repetition.is_live
        self._held_file: tuple[int, str, bytes] | None = None
        repetition.on_live = self.go_live

    def receive(self, batch: bytes) -> None:
        try:
            super().receive(batch)
        except TooManyCallsError:
            if not self._is_held:  # else the repetition ends it
                raise

    def go_live(self) -> None:
        self._is_held = False
        self._flush()
        if self._held_file is not None:
            super()._admit_file(*self._held_file)

    async def _answer_of(self, call: ToolCall) -> Outcome:
        return await (self._unanswered if call.seq <= self._earlier else self._live_port)(call)

    def _admit(self, identity: int, name: str, arguments: bytes) -> None:
        if self._is_held:
            self._earlier = self._seq
            if identity in self._answered:
                return
        super()._admit(identity, name, arguments)

    def _admit_file(self, identity: int, operation: str, arguments: bytes) -> None:
        if self._is_held and identity in self._answered:
            return
        is_change = changes(operation)
        # A file that could not be saved is saved again when it is closed: once is in doubt, twice would be wrong.
        self._is_change_in_doubt |= self._is_held and is_change
        if is_change and self._is_change_in_doubt:
            self._answer_file(identity, OUTCOME_UNKNOWN)
        elif self._is_held:
            self._held_file = identity, operation, arguments
        else:
            super()._admit_file(identity, operation, arguments)

    def _start_waiting(self) -> None:
        if not self._is_held:
            super()._start_waiting()

    def _send_answers(self) -> None:
        if not self._is_held:
            super()._send_answers()


def answers(record: Record) -> Iterator[list[Json]]:
    """The answers to calls, each as the guest gets it: [ID, 1, value] or [ID, 0, code, message, hint]."""
    for event in record.events:
        if event.kind == "answered" and event.text:
            with suppress(GuestJsonError):
                batch = parse(event.text.encode())
                listed = batch if isinstance(batch, list) else []
                yield from (answer for answer in listed if isinstance(answer, list) and len(answer) > 2)
