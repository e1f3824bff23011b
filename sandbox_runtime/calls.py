"""The calls of a run while they are in flight, the file operations beside them, and the answers to both."""

import asyncio
import contextvars
from collections.abc import Callable, Iterable
from dataclasses import InitVar, dataclass, field, replace
from functools import partial

from manifests.json_value import Json
from sandbox_runtime.admission import Admission, GuestCall
from sandbox_runtime.call_port import GIVEN_UP, CallError, CallObserver, CallPort, Outcome, ToolCall
from sandbox_runtime.frames import FrameError, ToWorker
from sandbox_runtime.grants.files import NOT_GRANTED, FileAnswer, FileService, changes
from sandbox_runtime.guest_json import encode
from sandbox_runtime.recording import Recording
from sandbox_runtime.result import Bounds
from sandbox_runtime.worker_process import WorkerProcess

_FILE = -1
"""The number of the file operation beside those of calls."""

_LARGE_BYTES = 1 << 16
_FRAME_BYTES = 1 << 20


@dataclass(eq=False)
class CallsInFlight:
    """Passes calls from a worker to the port, and answers back. None starts while the worker does not read its answers.

    A live run executes its calls. A replayed run gets the answers in its record (`recording.replayed`); no call is
    started or answered here. Calls without a recorded answer wait until the run becomes live.
    """

    worker: WorkerProcess
    port: CallPort
    observer: CallObserver | None
    bounds: InitVar[Bounds]
    fail: Callable[[BaseException], None]
    files: FileService | None
    recording: Recording | None
    # Frames arrive in the context in which the worker was started, which may be another caller's.
    _context: contextvars.Context = field(default_factory=contextvars.copy_context)
    running: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    _is_over: bool = False

    def __post_init__(self, bounds: Bounds) -> None:
        replayed = None if self.recording is None else self.recording.replayed
        recorded = [] if replayed is None else [*replayed.answers()]
        failed = (answer[2] for answer in recorded if answer[1] == 0)
        self.answers = Answers(bounds, (code for code in failed if isinstance(code, str)))
        self._admission = Admission(bounds, {answer[0] for answer in recorded if isinstance(answer[0], int)})

    @property
    def _is_live(self) -> bool:
        return self.recording is None or self.recording.is_live

    def receive(self, batch: bytes) -> None:
        """Process a batch of lines from the guest. Raises FrameError: an honest guest or worker never sends it."""
        for call in self._admission.read(batch):
            if not call.arguments:
                if (task := self.running.get(call.identity)) is not None:
                    task.cancel(GIVEN_UP)
            elif call.seq:
                self._accept(call)
            elif call is self._admission.file and self._is_live:
                self._begin_file(call)
        self.start_waiting()

    def go_live(self) -> None:
        """The record has ended: execute calls from now on."""
        self.start_waiting()
        self._send_answers()
        # The run was interrupted during this operation, so a change may or may not have happened.
        if (operation := self._admission.file) is not None:
            if self.files is not None and changes(operation.function):
                self.files.is_in_doubt = True
            self._begin_file(operation)

    def start_waiting(self) -> None:
        """Start calls that wait, as far as limits and the worker allow."""
        while self._is_live and not self._is_over and self.worker.is_alive and not self.worker.is_congested:
            if (call := self._admission.start()) is None:
                return
            self._start(call)
            # Parsing it blocked the event loop: let others run before the next call.
            if len(call.arguments) > _LARGE_BYTES:
                asyncio.get_running_loop().call_soon(self.start_waiting)
                return

    async def stop(self) -> None:
        """Cancel the calls in flight, and wait until the port has finished with them."""
        self._is_over = True
        for task in self.running.values():
            task.cancel()
        if self.running:
            await asyncio.wait([*self.running.values()])
        if self.recording is not None:
            self.recording.value_bytes = self.answers.value_bytes

    def _accept(self, call: GuestCall) -> None:
        if self.observer is not None:
            self.observer.open(call.seq, call.function)
        if (refusal := self._admission.admit(call)) is not None:
            self._refuse(call, refusal)

    def _refuse(self, call: GuestCall, refusal: CallError) -> None:
        if self.observer is not None:
            self.observer.withhold(call.seq, refusal)
        self._answer(call, Outcome(error=refusal))

    def _start(self, call: GuestCall) -> None:
        arguments = self._admission.arguments(call)
        if isinstance(arguments, CallError):
            self._refuse(call, arguments)
            self._admission.end(call)
            return
        if not isinstance(arguments, dict):
            self.worker.kill("it violated the protocol: arguments that are not an object")
            return
        running, context = self._run(call, arguments), self._context.copy()
        task = asyncio.get_running_loop().create_task(running, context=context)
        self.running[call.identity] = task
        task.add_done_callback(partial(self._on_task_done, call))

    async def _run(self, call: GuestCall, arguments: dict[str, Json]) -> None:
        outcome = await self.port(ToolCall(call.seq, call.function, arguments))
        self._answer(call, outcome, is_alone=len(self.running) == 1)

    def _on_task_done(self, call: GuestCall, task: "asyncio.Task[None]") -> None:
        del self.running[call.identity]
        self._admission.end(call)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)
        self.start_waiting()

    def _answer(self, call: GuestCall, outcome: Outcome, *, is_alone: bool = False) -> None:
        if self._is_over:
            return
        withheld = self.answers.add(call.identity, outcome)
        if withheld is not None and self.observer is not None:
            self.observer.withhold(call.seq, withheld)
        self._send_soon(is_alone=is_alone)

    def _begin_file(self, operation: GuestCall) -> None:
        self.running[_FILE] = asyncio.get_running_loop().create_task(self._operate(operation))

    async def _operate(self, operation: GuestCall) -> None:
        answer = NOT_GRANTED
        try:
            if self.files is not None:
                answer = await self.files(operation.function, operation.arguments)
        except FrameError as error:
            self.worker.kill(f"it violated the protocol: {error}")
            return
        except Exception as error:  # noqa: BLE001  # the run raises it
            self.fail(error)
            return
        finally:
            del self.running[_FILE]
        self._admission.end_file(is_refused=bool(answer.code))
        self.answers.add_file(operation.identity, answer)
        self._send_soon()

    def _send_soon(self, *, is_alone: bool = False) -> None:
        """Send answers together with others of the same moment, unless this one `is_alone`, or they fill a frame."""
        if is_alone or self.answers.fill_a_frame:
            self._send_answers()
        elif len(self.answers) == 1:  # others of this moment go with it
            asyncio.get_running_loop().call_soon(self._send_answers)

    def _send_answers(self) -> None:
        if self._is_live and not self._is_over and (answers := self.answers.take()):
            self.worker.send(ToWorker.ANSWERS, answers)
            if self.recording is not None:
                self.recording.answer(answers)


class Answers:
    """The answers of one run, in the guest's format. Its items, not taken yet, go to the guest together. No I/O."""

    def __init__(self, bounds: Bounds, error_codes: Iterable[str] = ()) -> None:
        self.error_codes = set(error_codes)
        """The codes of failed calls, first those of the run's record. The guest may end with one of them."""
        self.value_bytes = 0
        """Bytes of the values that the calls returned, as JSON."""
        self._bounds = bounds
        self._queue: list[bytes] = []
        self._queue_bytes = 0

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def fill_a_frame(self) -> bool:
        return self._queue_bytes > _FRAME_BYTES

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
            more = b",%b" % encode([content, outcome.beside])[1:-1]
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
        if answer.code:
            self.error_codes.add(answer.code)
        self._append(b"[%d,%b]" % (identity, answer.text))

    def take(self) -> bytes:
        """The answers for one frame, b"" if there are none."""
        answers = b",".join(self._queue)
        self._queue.clear()
        self._queue_bytes = 0
        return answers

    def _add_error(self, identity: int, error: CallError, details: list[Json]) -> None:
        self.error_codes.add(error.code)
        if (size := len(encode(details))) > self._bounds.limits.outcome_bytes:
            left_out = f"Left out: its data and blocks of {size:,} bytes"
            hint = f"{error.hint} {left_out} are over {self._bounds.name('outcome_bytes')}."
            error, details = replace(error, hint=hint.strip()), []
        texts = encode([error.code, error.message, error.hint, *details])
        self._append(b"[%d,0,%b]" % (identity, texts[1:-1]))

    def _append(self, answer: bytes) -> None:
        self._queue.append(answer)
        self._queue_bytes += len(answer)
