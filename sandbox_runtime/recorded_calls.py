"""The calls of a recorded run."""

from collections.abc import Iterator
from contextlib import suppress

from manifests.json_value import Json
from sandbox_runtime.events import Answered
from sandbox_runtime.guest_json import GuestJsonError, parse
from sandbox_runtime.record import Record


class RecordedCalls:
    """Calls of a run that is replayed: the worker has their answers already."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def receive(self, batch: bytes) -> None:
        """Nothing goes out; the repetition has compared it."""

    def resume(self) -> None:
        """Nothing waits."""

    def knows(self, code: str) -> bool:
        """Whether a call of the run failed with this code."""
        return code in error_codes(self._record)

    def stop(self) -> bool:
        return False

    async def ended(self) -> None:
        """Nothing is under way."""


def error_codes(record: Record) -> frozenset[str]:
    """The codes of the errors that calls of the run were answered with."""
    return frozenset(answer[2] for answer in answers(record) if answer[1] == 0 and isinstance(answer[2], str))


def answers(record: Record) -> Iterator[list[Json]]:
    """The answers to calls, each as the guest gets it: [ID, 1, value] or [ID, 0, code, message, hint]."""
    for event in record.events:
        if isinstance(event, Answered) and event.text:
            with suppress(GuestJsonError):
                batch = parse(event.text.encode())
                listed = batch if isinstance(batch, list) else []
                yield from (answer for answer in listed if isinstance(answer, list) and len(answer) > 2)
