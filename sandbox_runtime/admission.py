"""Which calls of a run may start, and when: their numbers, their limits, and those that wait. Without I/O.

A guest that forges batches can neither hide a call nor cause unbounded work: call numbers must increase, at most as
many calls are cancelled as were made, and file operations run one at a time.
"""

from collections import OrderedDict
from collections.abc import Container, Iterator
from typing import NamedTuple

from manifests.json_value import Json
from sandbox_runtime.call_port import CallError
from sandbox_runtime.frames import MAX_LINES_BYTES, FrameError
from sandbox_runtime.grants.files import FILE_PREFIX
from sandbox_runtime.guest_json import GuestJsonError, parse, values_in
from sandbox_runtime.result import ARGUMENT_VALUE_BYTES, HINTS, Bounds

MAX_REFUSED = 20_000
"""Calls beyond `tool_calls` that are refused one by one. After that the script is stopped."""

_MAX_FUNCTION_BYTES = 2048
_MAX_WAITING = 10_000
_MOST_HELD = 32
"""Limit of the argument bytes of all calls in flight, in multiples of `argument_bytes`."""
_NOT_MADE = b"~"
_FEWER_AT_ONCE = "Wait for the answers to some calls before you make more."


class TooManyCallsError(FrameError):
    """The script kept calling after `MAX_REFUSED` refusals."""


class GuestCall(NamedTuple):
    """A line of the guest with its number: a call, or without `arguments` the cancellation of one.

    `seq` counts the calls of the run. It is 0 for a file operation, whose `function` is "read" or the like.
    """

    identity: int
    function: str = ""
    arguments: bytes = b""
    seq: int = 0


class Admission:
    """Decides on the calls of one run. Those beyond `parallel_calls` wait.

    Calls that are `answered` in the run's record are counted, and do not start.
    """

    def __init__(self, bounds: Bounds, answered: Container[int] = ()) -> None:
        self.file: GuestCall | None = None
        """The file operation that has no answer yet."""
        self._answered = answered
        self._refused_files = 0
        self._bounds = bounds
        self._limits = bounds.limits
        self._seq = self._latest = self._cancelled = 0
        self._waiting: OrderedDict[int, GuestCall] = OrderedDict()
        self._running = 0
        self._held_bytes = 0

    def read(self, batch: bytes) -> Iterator[GuestCall]:
        """The calls and cancellations of a batch of lines. A cancelled call does not wait any more.

        Raises FrameError: an honest guest or worker never sends this.
        """
        if len(batch) > MAX_LINES_BYTES and b"\n" in batch:
            raise FrameError("too many calls in one frame")
        for line in batch.split(b"\n"):
            number, *call = line.split(b" ", 2)
            if not number.isdigit() or len(number) > 15:
                raise FrameError("a call without a number")
            yield self._numbered(int(number), *call) if call else self._cancellation(int(number))

    def admit(self, call: GuestCall) -> CallError | None:
        """Let a call wait for its start, if it has to be made. Returns its error if it is over a limit."""
        if call.arguments == _NOT_MADE or call.identity in self._answered:
            return None
        refusal = self._refusal(call)
        if refusal is None:
            self._held_bytes += len(call.arguments)
            self._waiting[call.identity] = call
        return refusal

    def start(self) -> GuestCall | None:
        """The next call to start, if one waits and may. The caller tells its end."""
        if not self._waiting or self._running >= self._limits.parallel_calls:
            return None
        self._running += 1
        return self._waiting.popitem(last=False)[1]

    def end(self, call: GuestCall) -> None:
        self._running -= 1
        self._held_bytes -= len(call.arguments)

    def end_file(self, *, is_refused: bool) -> None:
        self.file = None
        self._refused_files += is_refused

    def arguments(self, call: GuestCall) -> Json | CallError:
        """Parse the arguments of a call. An honest guest's are an object."""
        most = self._bounds.argument_values
        if values_in(call.arguments, most) > most:
            limit = self._bounds.name("argument_bytes")
            why = (
                f"its arguments have too many values for {limit}; each counts as {ARGUMENT_VALUE_BYTES} bytes"
            )
            return _refused("argument_limit", why)
        try:
            return parse(call.arguments)
        except GuestJsonError as error:
            why = f"the arguments cannot be sent: {error}"
            return CallError("argument_error", why, "Call it as its stub says.")

    def _numbered(self, identity: int, function: bytes, arguments: bytes = b"") -> GuestCall:
        if identity <= self._latest or len(function) > _MAX_FUNCTION_BYTES or not arguments:
            raise FrameError("a malformed call")
        self._latest = identity
        name = function.decode("utf-8", "replace")
        if name.startswith(FILE_PREFIX):
            return self._operation(GuestCall(identity, name.removeprefix(FILE_PREFIX), arguments))
        if self._seq >= self._limits.tool_calls + MAX_REFUSED:
            raise TooManyCallsError("too many calls")
        self._seq += 1
        return GuestCall(identity, name, arguments, self._seq)

    def _operation(self, call: GuestCall) -> GuestCall:
        if self._refused_files >= MAX_REFUSED:
            raise TooManyCallsError("too many file operations")
        if self.file is not None:
            raise FrameError("a file operation before the answer to another")
        if call.identity not in self._answered:
            self.file = call
        return call

    def _cancellation(self, identity: int) -> GuestCall:
        self._cancelled += 1
        if self._cancelled > self._seq:
            raise FrameError("more calls cancelled than made")
        if (waiting := self._waiting.pop(identity, None)) is not None:
            self._held_bytes -= len(waiting.arguments)
        return GuestCall(identity)

    def _refusal(self, call: GuestCall) -> CallError | None:
        name, arguments = self._bounds.name, call.arguments
        if call.seq > self._limits.tool_calls:
            return _refused("tool_calls_limit", f"{name('tool_calls')} is used up")
        # For arguments that are too long the guest sends only their size.
        claimed = arguments[1:21] if arguments[:1] == b"!" else b""
        size = int(claimed) if claimed.isdigit() else len(arguments)
        if size > self._limits.argument_bytes or claimed:
            why = f"its arguments have {size:,} bytes, over {name('argument_bytes')}"
            return _refused("argument_limit", why)
        if self._held_bytes + size > _MOST_HELD * self._limits.argument_bytes:
            why = (
                f"the arguments of the calls in flight already have {self._held_bytes:,} bytes, "
                f"and may have {_MOST_HELD} times {name('argument_bytes')}"
            )
            return _refused("argument_limit", why, _FEWER_AT_ONCE)
        if len(self._waiting) >= _MAX_WAITING:
            why = f"{_MAX_WAITING:,} calls already wait because of {name('parallel_calls')}"
            return _refused("parallel_calls_limit", why, _FEWER_AT_ONCE)
        return None


def _refused(code: str, why: str, hint: str = "") -> CallError:
    return CallError(code, f"the call was not made: {why}", hint or HINTS[code])
