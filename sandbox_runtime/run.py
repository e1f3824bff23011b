"""One execution of one script in a worker."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, TypeVar

import anyio

from manifests.grants import Limits
from manifests.json_value import Json
from sandbox_runtime import frames
from sandbox_runtime.admission import TooManyCallsError
from sandbox_runtime.call_port import CallObserver, CallPort
from sandbox_runtime.calls import CallsInFlight
from sandbox_runtime.grants.run_grants import NO_GRANTS, RunGrants
from sandbox_runtime.guest_json import clean, encode
from sandbox_runtime.recording import Origin, Record, Recording
from sandbox_runtime.result import (
    Bounds,
    Captured,
    Ending,
    Prepared,
    RunError,
    RunResult,
    read_ending,
    read_prepared,
    worker_lost,
)
from sandbox_runtime.worker_process import WorkerProcess

LibraryTable: TypeAlias = Mapping[str, Mapping[str, str]]
"""The functions of each namespace that the script mentions: name to signature in one line.

A function without a signature is hidden from the script. The script can still call it. The port refuses that call.
"""

_FRAME_SLACK_BYTES = 2 << 20
"""Bytes that a frame of the worker may have beyond its payload."""

_OUTBOX_SLACK_BYTES = 6 << 20
"""Bytes of other calls that may precede the longest one: a guest sends them once they exceed 1 Mi characters."""

MAX_SCRIPT_BYTES = 1 << 20
_PREPARE_SECONDS = 5.0
_REPLACEMENTS = 3
_TOO_SLOW = RunError(
    "wall_limit",
    f"parsing took more than the fixed limit of {_PREPARE_SECONDS:g} s",
    hint="Split the script.",
)
_CANCELLED = RunError("cancelled", "the run was cancelled")
_TRAPPED_BYTES = frames.END_HEADER.size + frames.TRAP_HEADER.size
_READ_AT_ONCE_BYTES = 1 << 18

Work: TypeAlias = Callable[[], Awaitable[object]]

_Answer: TypeAlias = bytes | RunError | None
"""The payload of PREPARED or FINISHED, or why there is none; None: the script ended its process without an error."""
_Read = TypeVar("_Read")


def too_long(script_bytes: int) -> RunError:
    message = f"the script has {script_bytes:,} bytes; the limit is {MAX_SCRIPT_BYTES:,}"
    return RunError("syntax_error", message, hint="Split it into several scripts.")


@dataclass(eq=False)
class Run:
    """A run in a worker. Call `prepare` once, then optionally `execute` once.

    Without a worker both return `error`. `replace` gets another worker if this one died before it did anything. A
    session's worker has no `replace`, and keeps its instance after the run.

    The worker calls back: `receive` for each frame, `resume` when it reads again, and `on_worker_lost` when it is gone.
    """

    worker: WorkerProcess | None
    bounds: Bounds
    origin: Origin
    recording: Recording | None = None
    error: RunError | None = None
    """Why it does not start, or what ended it first."""
    replace: Callable[[], Awaitable[WorkerProcess | None]] | None = None
    grants: RunGrants = NO_GRANTS
    _answer: asyncio.Future[_Answer] | None = None
    """Of the worker to what it was asked last: to parse the script, then to run it. None before."""
    _calls: CallsInFlight | None = None
    """None until the script runs."""
    _port_error: BaseException | None = None

    def __post_init__(self) -> None:
        self._captured = Captured(self.bounds.limits)
        self._longest_call = max(self.bounds.limits.argument_bytes, self.grants.longest_write)
        if (replayed := self._replayed) is not None:
            self.origin, self._longest_call = replayed.origin, replayed.longest_call
        self._listen()

    @property
    def worker_pid(self) -> int | None:
        """The process id of the worker, for tests and benchmarks."""
        return None if self.worker is None else self.worker.pid

    @property
    def waits_for_calls(self) -> bool:
        return self._calls is not None and bool(self._calls.running)

    @property
    def stdout(self) -> str:
        return self._captured.stdout

    async def prepare(self, script: str, namespaces: Collection[str], work: Work | None = None) -> Prepared:
        """Parse a script inside the sandbox without running it.

        `namespaces` are all existing ones. `work` is done while the worker parses; the script waits for both.
        Limits: 5 s, and 1 MiB of script.
        """
        script = script if script.isascii() else clean(script)
        if (size := len(script.encode())) > MAX_SCRIPT_BYTES:
            self._keep_first(too_long(size))
        if self.error is not None or self.worker is None:
            return Prepared(script, error=self.error)
        limits, origin, names = self.bounds.limits, self.origin, tuple(namespaces)
        head = Record(origin, script, names, limits, self._longest_call, None, ())
        answer = await self._send_prepare(head, work)
        for _ in range(_REPLACEMENTS):
            if isinstance(answer, bytes) or not await self._replace_worker():
                break
            answer = await self._send_prepare(head)
        if not isinstance(answer, bytes):
            return Prepared(script, error=answer)
        prepared = await _in_thread_if_long(len(answer), partial(read_prepared, answer, script, self.bounds))
        if prepared.error is not None:
            self._keep_first(prepared.error)
        return prepared

    async def execute(
        self, table: LibraryTable, port: CallPort, observer: CallObserver | None = None
    ) -> RunResult:
        """Run the prepared script. `observer` observes all its calls.

        Cancelling it kills the worker and ends the calls in flight within milliseconds.
        Raises Exception: an exception of the port; a script cannot cause one.
        """
        if self.error is not None or self.worker is None:
            return self._result(Ending(None, self.error, ()))
        started = asyncio.get_running_loop().time()
        bounds, files, recording = self.bounds, self.grants.files, self.recording
        calls = CallsInFlight(self.worker, port, observer, bounds, self.fail, files, recording)
        self._calls = calls
        if (replayed := self._replayed) is not None and replayed.settings is not None:
            settings = replayed.settings.encode()
        else:
            settings = _guest_settings(bounds.limits, self.origin, table, self.grants)
        if self.recording is not None:
            self.recording.execute(settings)
        try:
            answer = await self._ask(frames.ToWorker.EXECUTE, (settings,), bounds.limits.wall_seconds)
        finally:
            with anyio.CancelScope(shield=True):
                await calls.stop()
        if self._port_error is not None:
            raise self._port_error
        wall_ms = (asyncio.get_running_loop().time() - started) * 1000
        read_blocks = partial(self._captured.read_blocks, bounds.result_values)
        blocks, values = await _in_thread_if_long(self._captured.blocks_bytes, read_blocks)
        if not isinstance(answer, bytes):
            return self._result(Ending(None, answer, ()), wall_ms, blocks)
        most_values = bounds.result_values - values
        read = partial(read_ending, answer, bounds, calls.answers.error_codes, most_values)
        return self._result(await _in_thread_if_long(len(answer), read), wall_ms, blocks)

    def close(self) -> None:
        """Release the worker. A prepared script that did not run is dropped."""
        if self.worker is not None:
            self.worker.listen(None)
            if self._answer is not None and self._calls is None:  # prepared, and not run
                self.worker.send(frames.ToWorker.DROP)
        # These objects refer to each other. Breaking the cycle frees the run's memory now, not at a garbage collection.
        self._calls = None

    def receive(self, kind: int, payload: bytes) -> None:
        """Process a frame from the worker. Raises FrameError: it is unexpected now."""
        if self._answer is None or self._answer.done():
            raise frames.FrameError(f"unsolicited frame {kind}")
        if self.recording is not None:
            was_live = self.recording.is_live
            self.recording.take(kind, payload)
            if self._calls is not None and self.recording.is_live and not was_live:
                self._calls.go_live()
            if kind == frames.ToPortal.TRACE:
                return
        if kind == frames.ToPortal.TRAPPED and len(payload) >= _TRAPPED_BYTES:
            self._on_trap(payload)
        elif self._calls is not None:
            self._receive_from_script(self._calls, kind, payload)
        elif kind == frames.ToPortal.PREPARED:
            self._resolve(payload)
        else:
            raise frames.FrameError(f"frame {kind} while a script is parsed")

    def _receive_from_script(self, calls: CallsInFlight, kind: int, payload: bytes) -> None:
        match kind:
            case frames.ToPortal.CALLS:
                try:
                    calls.receive(payload)
                except TooManyCallsError:
                    self._keep_first(self.bounds.exceeded("tool_calls_limit"))
                    raise
            case frames.ToPortal.OUTPUT:
                self._captured.take_output(payload)
            case frames.ToPortal.DROPPED if len(payload) == frames.COUNT.size:
                (self._captured.dropped_bytes,) = frames.COUNT.unpack(payload)
            case frames.ToPortal.BLOCK:
                self._captured.take_block(payload)
            case frames.ToPortal.FINISHED if len(payload) >= frames.END_HEADER.size:
                self._captured.take_end(payload)
                self._resolve(payload[frames.END_HEADER.size :])
            case _:
                raise frames.FrameError(f"frame {kind} while a script runs")

    def resume(self) -> None:
        if self._calls is not None:
            self._calls.start_waiting()

    def on_worker_lost(self, reason: str) -> None:
        error = self._keep_first(worker_lost(reason))
        if self._answer is not None:
            self.error = error = self._record_stop(error)
        self._resolve(error)

    def fail(self, error: BaseException) -> None:
        """End the run because its port raised; `execute` raises that error."""
        self._port_error = self._port_error or error
        self._kill(worker_lost("the call's port failed"))

    def _on_trap(self, payload: bytes) -> None:
        """The instance ended without an answer. A session ends with its instance."""
        self._captured.take_end(payload)
        (cause,) = frames.TRAP_HEADER.unpack_from(payload, frames.END_HEADER.size)
        error = self.bounds.trap(cause, payload[_TRAPPED_BYTES:].decode("utf-8", "replace"))
        if cause == frames.TrapCause.CPU:  # when that ends is not deterministic
            error = self._record_stop(error)
        is_clean = cause == frames.TrapCause.CLEAN_EXIT and self._calls is not None
        self._resolve(None if is_clean else self._keep_first(error))
        if self.replace is None and self.worker is not None:
            self.worker.kill("the session's interpreter crashed")

    def _keep_first(self, error: RunError) -> RunError:
        """Set `error`, unless something else has ended the run before. Returns what ended it first."""
        self.error = self.error or error
        return self.error

    def _record_stop(self, error: RunError) -> RunError:
        """Record that the run was ended from outside. Returns the error for the result."""
        if self.recording is None:
            return error
        error, self._captured.dropped_bytes = self.recording.stop(error, self._captured.dropped_bytes)
        return error

    def _resolve(self, answer: _Answer) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    async def _replace_worker(self) -> bool:
        """Use another worker if this one died while it was idle, before anything ran. Returns whether there is one."""
        if self.error is None or self.error.code != "worker_lost":
            return False
        self.worker = await self.replace() if self.replace is not None else None
        if self.worker is None:
            return False
        self.error = None
        self._listen()
        return True

    @property
    def _replayed(self) -> Record | None:
        return None if self.recording is None else self.recording.replayed

    def _listen(self) -> None:
        if self.recording is not None:
            self.recording.worker_pid = self.worker_pid
        if self.worker is not None:
            largest = max(self._longest_call, self.bounds.limits.result_bytes, frames.MAX_PREPARED_BYTES)
            self.worker.listen(self, largest + _FRAME_SLACK_BYTES)

    async def _send_prepare(self, head: Record, work: Work | None = None) -> _Answer:
        limits, origin = head.limits, head.origin
        if self.recording is not None and (log := self.recording.begin(head)) and self.worker is not None:
            self.worker.send(frames.ToWorker.REPLAY_LOG, log)
        start = frames.RunStart(
            cpu_seconds=limits.cpu_seconds,
            memory_bytes=limits.memory_mib << 20,
            stdout_bytes=limits.stdout_bytes,
            outbox_bytes=head.longest_call + _OUTBOX_SLACK_BYTES,
            result_bytes=limits.result_bytes,
            is_session=self.replace is None,
            seed=origin.seed,
            wall_ms=origin.wall_ms,
            monotonic_ms=origin.monotonic_ms,
            at_ns=origin.at_ns(),
            is_traced=self.recording is not None,
        )
        parts = (
            frames.RUN_START.pack(*start),
            " ".join(head.namespaces).encode(),
            b"\n",
            head.script.encode(),
        )
        return await self._ask(frames.ToWorker.PREPARE, parts, _PREPARE_SECONDS, work)

    async def _ask(
        self, kind: frames.ToWorker, parts: tuple[bytes, ...], seconds: float, work: Work | None = None
    ) -> _Answer:
        """Send a frame, do `work`, and wait for the answer. A worker that is too slow is killed."""
        assert self.worker is not None
        loop = asyncio.get_running_loop()
        self._answer = loop.create_future()
        if not self.worker.is_alive:
            self.on_worker_lost("it ended while it was idle")
        timer = loop.call_later(seconds, self._kill_slow)
        self.worker.send(kind, *parts)
        try:
            if work is not None:
                await work()
            return await self._answer
        except asyncio.CancelledError:
            self._kill(_CANCELLED)
            raise
        finally:
            timer.cancel()

    def _kill_slow(self) -> None:
        self._kill(_TOO_SLOW if self._calls is None else self.bounds.exceeded("wall_limit"))

    def _kill(self, error: RunError) -> None:
        assert self.worker is not None and self._answer is not None
        if self._answer.done() and not self._answer.cancelled():
            return  # the answer has arrived
        self._keep_first(error)
        self.worker.kill(error.message)

    def _result(
        self, ending: Ending, wall_ms: float = 0.0, blocks: tuple[dict[str, Json], ...] = ()
    ) -> RunResult:
        captured = self._captured
        notices = (*captured.notices, *ending.notices)
        stdout, dropped, cpu_ms = captured.stdout, captured.dropped_bytes, captured.cpu_ms
        answers_bytes = 0 if self._calls is None else self._calls.answers.value_bytes
        return RunResult(
            ending.value, ending.error, stdout, dropped, blocks, notices, wall_ms, cpu_ms, answers_bytes
        )


def _guest_settings(limits: Limits, origin: Origin, table: LibraryTable, grants: RunGrants) -> bytes:
    settings: dict[str, Json] = {
        "library": {namespace: _table_text(functions) for namespace, functions in table.items()},
        "argument_bytes": limits.argument_bytes,
        "result_bytes": limits.result_bytes,
        # The seed of the module `random`. It reveals nothing about the stream.
        "seed": hashlib.sha256(b"the module random\n" + origin.seed).hexdigest(),
        **grants.settings(),
    }
    return encode(settings)


def _table_text(functions: Mapping[str, str]) -> str:
    """One line "name signature" per function, between line breaks. The guest searches it without parsing."""
    lines = (f"{name} {' '.join(signature.splitlines())}\n" for name, signature in functions.items())
    return "\n" + "".join(lines)


async def _in_thread_if_long(size: int, read: Callable[[], _Read]) -> _Read:
    """Call a reader of `size` bytes, in a thread if they are many, so that it does not block the event loop."""
    return read() if size <= _READ_AT_ONCE_BYTES else await asyncio.to_thread(read)
