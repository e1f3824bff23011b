"""The calls of a run: the port that answers them, and their limits and bookkeeping while they are in flight."""

import asyncio
import contextvars
import sys
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from manifests.json_value import Json
from sandbox_runtime.call_port import CallError, CallObserver, CallPort, Outcome, ToolCall
from sandbox_runtime.frames import MAX_LINES_BYTES, FrameError, ToWorker
from sandbox_runtime.grants.files import FILE_PREFIX, NOT_GRANTED, FileService, changes
from sandbox_runtime.guest_json import GuestJsonError, encode, parse, values_in
from sandbox_runtime.recording import Recording
from sandbox_runtime.result import ARGUMENT_VALUE_BYTES, Bounds
from sandbox_runtime.worker_process import WorkerProcess

MAX_REFUSED = 20_000
"""Calls beyond `tool_calls` that are refused one by one. After that the script is stopped."""

_ANSWER_FRAME_BYTES = 1 << 20
_MAX_FUNCTION_BYTES = 2048
_MAX_WAITING = 10_000
_MOST_HELD = 32
"""Limit of the argument bytes of all calls in flight, in multiples of `argument_bytes`."""
_LARGE_BYTES = 1 << 16
_NOT_MADE = b"~"
_FEWER_AT_ONCE = "Wait for the answers to some calls before you make more."


class TooManyCallsError(FrameError):
    """The script kept calling after `MAX_REFUSED` refusals."""


@dataclass(eq=False)
class CallsInFlight:
    """Passes calls from a worker to the port, and answers back.

    A call over a limit is answered with an error that the script can catch. Calls beyond `parallel_calls` wait, as do
    all calls while the worker does not read its answers.

    A live run executes its calls. A replayed run gets the answers in its record (`recording.replayed`); no call is
    started or answered here. Calls without a recorded answer wait until the run becomes live.

    A guest that forges batches can neither hide a call nor cause unbounded work: call numbers must increase, at most as
    many calls are cancelled as were made, and file operations run one at a time.
    """

    worker: WorkerProcess
    port: CallPort
    observer: CallObserver | None
    bounds: Bounds
    fail: Callable[[BaseException], None]
    files: FileService | None
    recording: Recording | None
    # Frames arrive in the context in which the worker was started, which may be another caller's.
    _context: contextvars.Context = field(default_factory=contextvars.copy_context)
    _seq: int = 0
    _latest: int = 0
    _cancelled: int = 0
    _waiting: OrderedDict[int, tuple[int, str, bytes]] = field(default_factory=OrderedDict)
    answers_bytes: int = 0
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

    @property
    def are_running(self) -> bool:
        return bool(self._running or self._file)

    def receive(self, batch: bytes) -> None:
        """Process a batch of lines from the guest. Raises FrameError: an honest guest or worker never sends it."""
        if len(batch) > MAX_LINES_BYTES and b"\n" in batch:
            raise FrameError("too many calls in one frame")
        self._is_flushing = True  # immediate answers go out together in one frame, below
        for line in batch.split(b"\n"):
            number, *call = line.split(b" ", 2)
            if not number.isdigit() or len(number) > 15:
                raise FrameError("a call without a number")
            if call:
                self._accept(int(number), *call)
            else:
                self._cancel(int(number))
        self._flush()

    def knows(self, code: str) -> bool:
        """Whether a call of this run failed with this code. Only then may the guest end with it."""
        return code in self._error_codes

    async def stop(self) -> None:
        """Cancel the calls in flight, and wait until the port has finished with them."""
        self._is_over = True
        self._waiting.clear()
        self._answers.clear()
        if self.recording is not None:
            self.recording.on_live = None
        tasks = [*self._running.values(), *([self._file] if self._file else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _go_live(self) -> None:
        """The record has ended: execute calls from now on."""
        self._is_live = True
        self._flush()
        # The run was interrupted during this operation, so a change may or may not have happened.
        if self._held_file is not None and not self._is_over:
            if self.files is not None and changes(self._held_file[1]):
                self.files.is_in_doubt = True
            self._begin_file(*self._held_file)

    def _accept(self, identity: int, function: bytes, arguments: bytes = b"") -> None:
        if identity <= self._latest or len(function) > _MAX_FUNCTION_BYTES or not arguments:
            raise FrameError("a malformed call")
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
        # For arguments that are too long the guest sends only their size.
        claimed = arguments[1:21] if arguments[:1] == b"!" else b""
        size = int(claimed) if claimed.isdigit() else len(arguments)
        if size > self._limits.argument_bytes or claimed:
            message = f"its arguments have {size:,} bytes, over {name('argument_bytes')}"
            return _refused_call("argument_limit", message, "Send less in one call.")
        if self._held_bytes + size > _MOST_HELD * self._limits.argument_bytes:
            message = (
                f"the arguments of the calls in flight already have {self._held_bytes:,} bytes, "
                f"and may have {_MOST_HELD} times {name('argument_bytes')}"
            )
            return _refused_call("argument_limit", message, _FEWER_AT_ONCE)
        if len(self._waiting) >= _MAX_WAITING:
            message = f"{_MAX_WAITING:,} calls already wait because of {name('parallel_calls')}"
            return _refused_call("parallel_calls_limit", message, _FEWER_AT_ONCE)
        return None

    def start_waiting(self) -> None:
        """Start calls that wait, as far as limits and the worker allow."""
        while self._waiting and len(self._running) < self._limits.parallel_calls and self._is_live:
            if self.worker.is_congested or not self.worker.is_alive or self._is_over:
                return
            identity, (seq, name, arguments) = self._waiting.popitem(last=False)
            values = self._read(identity, seq, arguments)
            if values is None:
                self._held_bytes -= len(arguments)
            else:
                self._start(identity, ToolCall(seq, name, values), len(arguments))
            # Parsing it blocked the event loop: let others run before the next call.
            if len(arguments) > _LARGE_BYTES:
                asyncio.get_running_loop().call_soon(self.start_waiting)
                return

    def _read(self, identity: int, seq: int, arguments: bytes) -> dict[str, Json] | None:
        """Parse the arguments of a call; None if they are refused."""
        most = self.bounds.argument_values
        if values_in(arguments, most) > most:
            message = (
                f"its arguments have too many values for {self.bounds.name('argument_bytes')}; "
                f"each counts as {ARGUMENT_VALUE_BYTES} bytes"
            )
            self._refuse(identity, seq, _refused_call("argument_limit", message, "Send less in one call."))
            return None
        try:
            values = parse(arguments)
        except GuestJsonError as error:
            message = f"the arguments cannot be sent: {error}"
            self._refuse(identity, seq, CallError("argument_error", message, "Call it as its stub says."))
            return None
        if isinstance(values, dict):
            return values
        self.worker.kill("it violated the protocol: arguments that are not an object")
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
        self.start_waiting()

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
        error, content = outcome.error, outcome.content
        most, limit = self._limits.outcome_bytes, partial(self.bounds.name, "outcome_bytes")
        if error is None:
            value = encode(outcome.value) if outcome.text is None else outcome.text
            more = b"" if content is None else b",%b,%b" % (encode(content), encode(outcome.beside))
            # Text that repeats the value does not count.
            size = len(value) + sum(len(encode(content[at])) for at in outcome.beside if content)
            if size <= most:
                self.answers_bytes += size
                self._post(b"[%d,1,%b%b]" % (identity, value, more))
                return
            message = f"the call was made, but its result of {size:,} bytes is over {limit()}"
            error = CallError("outcome_limit", message, "Ask for less: filter, limit, or page.")
            content = None
            if self.observer is not None and not self._is_over:
                self.observer.withhold(seq, error)
        self._error_codes.add(error.code)
        details = [] if content is None and outcome.data is None else [outcome.data, content]
        if (size := len(encode(details))) > most:
            hint = f"{error.hint} Left out: its data and blocks of {size:,} bytes are over {limit()}."
            error, details = replace(error, hint=hint.strip()), []
        self._post(b"[%d,0,%b]" % (identity, encode([error.code, error.message, error.hint, *details])[1:-1]))

    def _post(self, answer: bytes) -> None:
        """Queue an answer, to be sent together with others of the same moment."""
        if self._is_over:
            return
        self._answers.append(answer)
        self._answers_bytes += len(answer)
        # The only call's answer is sent at once: a script that makes one call after another waits for it.
        is_alone = len(self._running) == 1 and not self._waiting and not self._is_flushing
        if self._answers_bytes > _ANSWER_FRAME_BYTES or is_alone:
            self._send_answers()
        elif not self._is_flushing:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        self.start_waiting()
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
        if identity in self._answered:  # the replay log has its answer
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
            self.worker.kill(f"it violated the protocol: {error}")
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
    """A task that runs to its first wait at once, where Python supports it (3.12)."""
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=loop, eager_start=True, context=context)
    return loop.create_task(work, context=context)
