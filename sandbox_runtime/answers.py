"""The answers to a run's calls, in the guest's format: limited in size, and collected for one frame. Without I/O."""

from collections.abc import Iterable
from dataclasses import replace

from manifests.json_value import Json
from sandbox_runtime.call_port import CallError, Outcome
from sandbox_runtime.grants.files import FileAnswer
from sandbox_runtime.guest_json import encode
from sandbox_runtime.result import Bounds

_FRAME_BYTES = 1 << 20


class Answers:
    """The answers of one run. Those that were not taken yet go to the guest together."""

    def __init__(self, bounds: Bounds, error_codes: Iterable[str] = ()) -> None:
        """`error_codes` are those of calls in the run's record."""
        self.value_bytes = 0
        """Bytes of the values that the calls returned, as JSON."""
        self._bounds = bounds
        self._error_codes = set(error_codes)
        self._queue: list[bytes] = []
        self._queue_bytes = 0

    @property
    def fill_a_frame(self) -> bool:
        return self._queue_bytes > _FRAME_BYTES

    def knows(self, code: str) -> bool:
        """Whether a call of this run failed with this code. Only then may the guest end with it."""
        return code in self._error_codes

    def add(self, identity: int, outcome: Outcome) -> CallError | None:
        """Add the answer to a call. Returns the error that replaces an outcome over the limit."""
        if outcome.error is not None:
            has_details = outcome.content is not None or outcome.data is not None
            self._add_error(identity, outcome.error, [outcome.data, outcome.content] if has_details else [])
            return None
        value = encode(outcome.value) if outcome.text is None else outcome.text
        content, more = outcome.content, b""
        # Text that repeats the value does not count.
        size = len(value)
        if content is not None:
            more = b",%b,%b" % (encode(content), encode(outcome.beside))
            size += sum(len(encode(content[at])) for at in outcome.beside)
        if size <= self._bounds.limits.outcome_bytes:
            self.value_bytes += size
            self._append(b"[%d,1,%b%b]" % (identity, value, more))
            return None
        limit = self._bounds.name("outcome_bytes")
        message = f"the call was made, but its result of {size:,} bytes is over {limit}"
        error = CallError("outcome_limit", message, "Ask for less: filter, limit, or page.")
        self._add_error(identity, error, [])
        return error

    def add_file(self, identity: int, answer: FileAnswer) -> None:
        """Add the answer to a file operation."""
        if answer.code:
            self._error_codes.add(answer.code)
        self._append(b"[%d,%b]" % (identity, answer.text))

    def take(self) -> bytes:
        """The answers for one frame, b"" if there are none."""
        answers = b",".join(self._queue)
        self._queue.clear()
        self._queue_bytes = 0
        return answers

    def _add_error(self, identity: int, error: CallError, details: list[Json]) -> None:
        self._error_codes.add(error.code)
        if (size := len(encode(details))) > self._bounds.limits.outcome_bytes:
            left_out = f"Left out: its data and blocks of {size:,} bytes"
            hint = f"{error.hint} {left_out} are over {self._bounds.name('outcome_bytes')}."
            error, details = replace(error, hint=hint.strip()), []
        texts = encode([error.code, error.message, error.hint, *details])
        self._append(b"[%d,0,%b]" % (identity, texts[1:-1]))

    def _append(self, answer: bytes) -> None:
        self._queue.append(answer)
        self._queue_bytes += len(answer)
