"""Runs recorded scripts again: the guest works as it did, and nothing goes out to the world."""

from collections.abc import Sequence

from sandbox_runtime.errors import OtherComponentError, RecordEndsError, RecordError, ReplayInterruptedError
from sandbox_runtime.record import Record
from sandbox_runtime.recorded_calls import RecordedCalls
from sandbox_runtime.repetition import Repetition
from sandbox_runtime.result import RunResult
from sandbox_runtime.sandbox import Sandbox
from sandbox_runtime.session import Session


async def replay(sandbox: Sandbox, record: Record, caller: str = "") -> RunResult:
    """Run a recorded script again and return the same result, bit for bit but for the times it took.

    No call is made: each one the script makes must be the recorded one, and gets the recorded answer, without
    waiting. The replay of a run that was ended from outside ends where that did. Waits for a worker, in turns with
    other callers, as a run does.

    Raises:
        DivergenceError: The run did something else than recorded; it names the first difference.
        OtherComponentError: The record is of another guest component.
        RecordEndsError: The record is the beginning of a run.
        RecordError: It is of a later run of a session: see `replay_session`.
        ReplayInterruptedError: No worker was free, or the one at work was lost or far slower than then.
    """
    check_replayable(sandbox, record)
    if not record.origin.is_first:
        raise RecordError("a later run of a session cannot be replayed without the runs before it")
    return await _replay_in(sandbox, record, None, caller)


async def replay_session(sandbox: Sandbox, records: Sequence[Record]) -> tuple[RunResult, ...]:
    """Replay the runs of a session, from its first, each after those before it.

    Raises: As `replay`; also RecordError where a run is missing.
    """
    for position, record in enumerate(records, 1):
        check_replayable(sandbox, record)
        if record.origin.position != position:
            raise RecordError(f"run {position} of the session is missing, or not where it belongs")
    session = await sandbox.open_session()
    try:
        return tuple([await _replay_in(sandbox, record, session) for record in records])
    finally:
        session.close()


def check_replayable(sandbox: Sandbox, record: Record) -> None:
    """Refuse a record that this sandbox cannot repeat.

    Raises:
        OtherComponentError: It is of another guest component.
    """
    if record.origin.component != sandbox.component:
        there, here = record.origin.component[:12], sandbox.component[:12]
        raise OtherComponentError(f"the record is of guest component {there}..., and this is {here}...")


async def _replay_in(
    sandbox: Sandbox, record: Record, session: Session | None, caller: str = ""
) -> RunResult:
    repetition = Repetition(record)
    async with sandbox.run(record.limits, record.place, session, caller, recording=repetition) as run:
        prepared = await run.prepare(record.script, record.namespaces)
        if run.worker is None and prepared.error is not None and repetition.record is None:
            raise ReplayInterruptedError(prepared.error.message)
        result = RunResult(None, prepared.error, "", 0, (), (), 0.0, 0.0)
        if record.settings is not None:
            result = await run.execute_with(record.settings.encode(), RecordedCalls(record))
    repetition.check()
    if record.ending is None and record.settings is not None:
        raise RecordEndsError(f"the record ends after event {len(record.events) - 1:,}, and the run goes on")
    return result
