"""The calls of a run: the port through which they go out, and those in flight, counted, limited and answered."""

import asyncio
import contextvars
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from manifests.json_value import Json
from sandbox_runtime.frames import MAX_LINES_BYTES, FrameError, ToWorker
from sandbox_runtime.grants.files import FILE_PREFIX, NOT_GRANTED, FileService, changes
from sandbox_runtime.guest_json import GuestJsonError, encode, parse, values_in
from sandbox_runtime.recording import Recording
from sandbox_runtime.result import ARGUMENT_VALUE_BYTES, Bounds
from sandbox_runtime.worker_process import WorkerProcess

MAX_REFUSED = 20_000
"""Calls beyond `tool_calls` that are refused one by one; a script that goes on is stopped."""

_ANSWER_FRAME_BYTES = 1 << 20
_MAX_FUNCTION_BYTES = 512
_MAX_WAITING = 10_000
_MOST_HELD = 32
"""Calls of the longest arguments whose arguments the portal holds at once for one run."""
_LARGE_BYTES = 1 << 16
_NOT_MADE = b"~"
_FEWER_AT_ONCE = "Wait for the answers to some calls before you make more."


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call a running script makes.

    `seq` counts the calls of one run from 1, in the order they reached the host. `function` is what the
    script wrote, "namespace.name"; like `arguments` it comes from the guest and is not to be believed.
    """

    seq: int
    function: str
    arguments: dict[str, Json]


@dataclass(frozen=True, slots=True)
class CallError:
    """Why a call has no value; the script gets it as a `ToolError` with the same `code` and `hint`."""

    code: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call came to: a value, or an error.

    Whoever has the value as JSON in UTF-8 gives that as `text`, instead of having it written in one go.
    """

    value: Json = None
    error: CallError | None = None
    text: bytes | None = None


CallPort: TypeAlias = Callable[[ToolCall], Awaitable[Outcome]]
"""Answers one call. Cancelled, and awaited to its end, when the run ends first; what it raises ends the run."""


class CallObserver(Protocol):
    """Hears of every call, also of those that the port never sees."""

    def open(self, seq: int, function: str) -> None:
        """The script made a call. It may have to wait for its turn, and the run may end before that."""

    def withhold(self, seq: int, error: CallError) -> None:
        """A limit kept the call from the port, or its outcome from the script."""


class TooManyCallsError(FrameError):
    """The script goes on calling, however often it is refused."""


@dataclass(eq=False)
class CallsInFlight:
    """Stands between a worker and the port.

    A call over a limit is answered with an error that the script can catch. Calls beyond `parallel_calls` wait
    their turn, and so do all while the worker does not read its answers. While a run is repeated, nothing is begun and
    nothing answered: what its record has no answer to waits until the run is live.

    A guest that writes its own batches can neither have a call forgotten nor make the portal work for long: each
    call has a higher number than those before it, no more calls are cancelled than were made, and files are operated
    upon one at a time.
    """

    worker: WorkerProcess
    port: CallPort
    observer: CallObserver | None
    bounds: Bounds
    fail: Callable[[BaseException], None]
    files: FileService | None
    recording: Recording | None
    # Calls come in with the worker's frames, and the worker may have been started for somebody else.
    _context: contextvars.Context = field(default_factory=contextvars.copy_context)
    _seq: int = 0
    _latest: int = 0
    _cancelled: int = 0
    _waiting: OrderedDict[int, tuple[int, str, bytes]] = field(default_factory=OrderedDict)
    _held_bytes: int = 0
    _running: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    _file: asyncio.Task[None] | None = None
    _held_file: tuple[int, str, bytes] | None = None
    _refused_files: int = 0
    _answers: list[bytes] = field(default_factory=list)
    _answers_bytes: int = 0
    _error_codes: set[str] = field(default_factory=set)
    _is_live: bool = True
    _is_flushing: bool = False
    _is_over: bool = False

    def __post_init__(self) -> None:
        self._limits = self.bounds.limits
        recorded: list[list[Json]] = []
        if self.recording is not None:
            self._is_live = self.recording.is_live
            self.recording.on_live = self._go_live
            recorded = [] if self.recording.replayed is None else [*self.recording.replayed.answers()]
        self._answered = {answer[0] for answer in recorded if isinstance(answer[0], int)}
        for _, is_value, code, *_ in recorded:
            if is_value == 0 and isinstance(code, str):
                self._error_codes.add(code)

    def receive(self, batch: bytes) -> None:
        """Take a batch of lines from the guest.

        Raises FrameError: no honest guest would have written it, or no honest worker have sent it in one go.
        """
        if len(batch) > MAX_LINES_BYTES and b"\n" in batch:
            raise FrameError("too many calls in one frame")
        self._is_flushing = True  # whatever is answered at once goes out in one frame, below
        for line in batch.split(b"\n"):
            number, *call = line.split(b" ", 2)
            if not number.isdigit() or len(number) > 15:
                raise FrameError("a call without a number")
            if call:
                self._accept(int(number), *call)
            else:
                self._cancel(int(number))
        self._flush()

    def resume(self) -> None:
        """The worker reads again."""
        self._start_waiting()

    def knows(self, code: str) -> bool:
        """Whether a call of this run failed with this code: the guest may name it as the reason it ended."""
        return code in self._error_codes

    async def stop(self) -> None:
        """Cancel what is in flight, and wait until the port is done with it."""
        self._is_over = True
        self._waiting.clear()
        self._answers.clear()
        tasks = [*self._running.values(), *([self._file] if self._file else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _go_live(self) -> None:
        """The run goes on where its record ended."""
        self._is_live = True
        self._flush()
        if self._held_file is not None and not self._is_over:
            if self.files is not None and changes(self._held_file[1]):
                self.files.is_in_doubt = True
            self._begin_file(*self._held_file)

    def _accept(self, identity: int, function: bytes, arguments: bytes = b"") -> None:
        if identity <= self._latest or len(function) > _MAX_FUNCTION_BYTES or not arguments:
            raise FrameError("a call that no guest of ours would make")
        self._latest = identity
        name = function.decode("utf-8", "replace")
        if name.startswith(FILE_PREFIX):
            self._accept_file(identity, name.removeprefix(FILE_PREFIX), arguments)
            return
        if self._seq >= self._limits.tool_calls + MAX_REFUSED:
            raise TooManyCallsError("too many calls")
        self._seq += 1
        if self.observer is not None:
            self.observer.open(self._seq, name)
        if arguments == _NOT_MADE or identity in self._answered:
            return
        refusal = self._refusal(arguments)
        if refusal is not None:
            self._refuse(identity, self._seq, refusal)
        else:
            self._held_bytes += len(arguments)
            self._waiting[identity] = (self._seq, name, arguments)

    def _refuse(self, identity: int, seq: int, refusal: CallError) -> None:
        if self.observer is not None:
            self.observer.withhold(seq, refusal)
        self._answer(identity, seq, Outcome(error=refusal))

    def _refusal(self, arguments: bytes) -> CallError | None:
        name = self.bounds.name
        if self._seq > self._limits.tool_calls:
            hint = "Do the work in fewer calls, or in several scripts."
            return _refused_call("tool_calls_limit", f"{name('tool_calls')} is used up", hint)
        # A guest that sees that arguments are too long sends only their size.
        claimed = arguments[1:21] if arguments[:1] == b"!" else b""
        size = int(claimed) if claimed.isdigit() else len(arguments)
        if size > self._limits.argument_bytes or claimed:
            message = f"its arguments are {size:,} bytes, {name('argument_bytes')}"
            return _refused_call("argument_limit", message, "Send less in one call.")
        if self._held_bytes + size > _MOST_HELD * self._limits.argument_bytes:
            message = (
                f"the arguments of the calls under way are {self._held_bytes:,} bytes, "
                f"{_MOST_HELD} times {name('argument_bytes')}"
            )
            return _refused_call("argument_limit", message, _FEWER_AT_ONCE)
        if len(self._waiting) >= _MAX_WAITING:
            message = f"{_MAX_WAITING:,} calls wait already for {name('parallel_calls')}"
            return _refused_call("parallel_calls_limit", message, _FEWER_AT_ONCE)
        return None

    def _start_waiting(self) -> None:
        while self._waiting and len(self._running) < self._limits.parallel_calls and self._is_live:
            if self.worker.is_congested or not self.worker.is_alive or self._is_over:
                return
            identity, (seq, name, arguments) = self._waiting.popitem(last=False)
            values = self._read(identity, seq, arguments)
            if values is None:
                self._held_bytes -= len(arguments)
            else:
                self._start(identity, ToolCall(seq, name, values), len(arguments))
            if len(arguments) > _LARGE_BYTES:
                asyncio.get_running_loop().call_soon(self._start_waiting)
                return

    def _read(self, identity: int, seq: int, arguments: bytes) -> dict[str, Json] | None:
        """The arguments of a call, None if they cannot be had."""
        most = self.bounds.argument_values
        if values_in(arguments, most) > most:
            message = (
                f"its arguments hold too many values, of which each counts as {ARGUMENT_VALUE_BYTES} bytes, "
                f"for {self.bounds.name('argument_bytes')}"
            )
            self._refuse(identity, seq, _refused_call("argument_limit", message, "Send less in one call."))
            return None
        try:
            values = parse(arguments)
        except GuestJsonError as error:
            message = f"the arguments cannot be sent: {error}"
            self._refuse(identity, seq, CallError("argument_error", message))
            return None
        if isinstance(values, dict):
            return values
        self.worker.kill("it broke the channel's rules: arguments that are no object")
        return None

    def _start(self, identity: int, call: ToolCall, size: int) -> None:
        task = _eager_task(self._run(identity, call), self._context.copy())
        if task.done():
            self._finish_task(identity, task, size)
        else:
            self._running[identity] = task
            task.add_done_callback(lambda done: self._on_task_done(identity, done, size))

    async def _run(self, identity: int, call: ToolCall) -> None:
        self._answer(identity, call.seq, await self.port(call))

    def _finish_task(self, identity: int, task: "asyncio.Task[None]", size: int) -> None:
        self._running.pop(identity, None)
        self._held_bytes -= size
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def _on_task_done(self, identity: int, task: "asyncio.Task[None]", size: int) -> None:
        self._finish_task(identity, task, size)
        self._start_waiting()

    def _cancel(self, identity: int) -> None:
        self._cancelled += 1
        if self._cancelled > self._seq:
            raise FrameError("more calls cancelled than made")
        task = self._running.get(identity)
        if task is not None:
            task.cancel()
        elif (waiting := self._waiting.pop(identity, None)) is not None:
            self._held_bytes -= len(waiting[2])

    def _answer(self, identity: int, seq: int, outcome: Outcome) -> None:
        error = outcome.error
        if error is None:
            value = encode(outcome.value) if outcome.text is None else outcome.text
            if len(value) <= self._limits.outcome_bytes:
                self._post(b"[%d,1,%b]" % (identity, value))
                return
            message = (
                f"the call was made and answered {len(value):,} bytes: {self.bounds.name('outcome_bytes')}"
            )
            error = CallError("outcome_limit", message, "Ask for less: filter, limit, or page.")
            if self.observer is not None and not self._is_over:
                self.observer.withhold(seq, error)
        self._error_codes.add(error.code)
        fields = encode([error.code, error.message, error.hint])
        self._post(b"[%d,0,%b]" % (identity, fields[1:-1]))

    def _post(self, answer: bytes) -> None:
        """Have an answer sent, together with others that come in the same moment."""
        if self._is_over:
            return
        self._answers.append(answer)
        self._answers_bytes += len(answer)
        is_alone = len(self._running) == 1 and not self._waiting and not self._is_flushing
        if self._answers_bytes > _ANSWER_FRAME_BYTES or is_alone:
            self._send_answers()
        elif not self._is_flushing:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        self._start_waiting()
        self._send_answers()

    def _send_answers(self) -> None:
        if self._answers and self._is_live:
            answers = b",".join(self._answers)
            self.worker.send(ToWorker.ANSWERS, answers)
            if self.recording is not None:
                self.recording.answer(answers)
            self._answers.clear()
            self._answers_bytes = 0

    def _accept_file(self, identity: int, operation: str, arguments: bytes) -> None:
        if self._refused_files >= MAX_REFUSED:
            raise TooManyCallsError("too many file operations")
        if self._file is not None:
            raise FrameError("a file operation before the answer to another")
        if identity in self._answered:
            return
        if self._is_live:
            self._begin_file(identity, operation, arguments)
        else:
            self._held_file = identity, operation, arguments

    def _begin_file(self, identity: int, operation: str, arguments: bytes) -> None:
        operating = self._operate(identity, operation, arguments)
        self._file = asyncio.get_running_loop().create_task(operating)

    async def _operate(self, identity: int, operation: str, arguments: bytes) -> None:
        try:
            answer = NOT_GRANTED if self.files is None else await self.files(operation, arguments)
        except FrameError as error:
            self.worker.kill(f"it broke the channel's rules: {error}")
            return
        except Exception as error:  # noqa: BLE001  # the run raises it
            self.fail(error)
            return
        finally:
            self._file = None
        if answer.code:
            self._refused_files += 1
            self._error_codes.add(answer.code)
        self._post(b"[%d,%b]" % (identity, answer.text))


def _refused_call(code: str, why: str, hint: str) -> CallError:
    return CallError(code, f"the call was not made: {why}", hint)


def _eager_task(work: Coroutine[Any, Any, None], context: contextvars.Context) -> "asyncio.Task[None]":
    """A task that has already run to its first wait, where Python can do that (3.12)."""
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=loop, eager_start=True, context=context)
    return loop.create_task(work, context=context)
