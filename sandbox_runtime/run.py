"""One execution of one script, in a worker that is its own meanwhile."""

import asyncio
from collections.abc import Collection, Mapping
from typing import TypeAlias

import anyio

from manifests.json_value import Json
from sandbox_runtime.bounds import Bounds, worker_lost
from sandbox_runtime.calls import CallPort
from sandbox_runtime.calls_in_flight import CallsInFlight
from sandbox_runtime.frames import (
    COUNT,
    END_HEADER,
    RUN_HEADER,
    TRAP_HEADER,
    FrameError,
    ToPortal,
    ToWorker,
    TrapCause,
)
from sandbox_runtime.guest_answer import Ending, read_ending, read_prepared
from sandbox_runtime.guest_json import GuestJsonError, clean, encode, parse
from sandbox_runtime.prepared import Prepared
from sandbox_runtime.result import RunError, RunResult
from sandbox_runtime.worker_process import WorkerProcess

LibraryTable: TypeAlias = Mapping[str, Mapping[str, str]]
"""For each namespace that the script mentions, each function's name and its signature in one line."""

MAX_SCRIPT_BYTES = 1 << 20
_PREPARE_SECONDS = 5.0
_FRAME_SLACK_BYTES = 2 << 20
_MAX_BLOCKS = 1000

_Message: TypeAlias = tuple[int, bytes]
_LOST = 0


class Run:
    """A worker, from its taking to its release. `prepare` comes first, then, if at all, `execute`, each once."""

    def __init__(
        self, worker: WorkerProcess | None, bounds: Bounds, *, is_session: bool, refusal: RunError | None
    ) -> None:
        """A run without a worker answers with `refusal` to everything."""
        self._worker = worker
        self._bounds = bounds
        self._is_session = is_session
        self._error = refusal
        self._next: asyncio.Future[_Message] | None = None
        self._calls: CallsInFlight | None = None
        self._output: list[bytes] = []
        self._output_bytes = 0
        self._dropped_bytes = 0
        self._blocks: list[dict[str, Json]] = []
        self._blocks_bytes = 0
        self._notices: list[str] = []
        self._port_error: BaseException | None = None
        self._is_renewed = False
        if worker is not None:
            limits = bounds.limits
            worker.listen(
                self, max(limits.argument_bytes, limits.result_bytes, MAX_SCRIPT_BYTES) + _FRAME_SLACK_BYTES
            )

    async def prepare(self, script: str, namespaces: Collection[str]) -> Prepared:
        """Parse a script inside the sandbox; nothing of it runs.

        `namespaces` are all that exist. Parsing may take 5 s and a script 1 MiB.
        """
        text = script.encode() if script.isascii() else clean(script).encode()
        if len(text) > MAX_SCRIPT_BYTES:
            message = f"the script is {len(text):,} bytes; at most {MAX_SCRIPT_BYTES:,} are read"
            self._error = self._error or RunError("syntax_error", message)
        if self._error is not None or self._worker is None:
            return Prepared(script, error=self._error)
        names = " ".join(namespaces).encode()
        too_slow = RunError("wall_limit", f"the script took more than {_PREPARE_SECONDS:g} s to parse")
        head = self._run_header() + COUNT.pack(len(names))
        kind, payload = await self._ask(ToWorker.PREPARE, (head, names, text), _PREPARE_SECONDS, too_slow)
        if kind == ToPortal.PREPARED:
            prepared = read_prepared(payload, script)
            self._error = prepared.error
            return prepared
        self._error = self._failure(kind, payload)
        return Prepared(script, error=self._error)

    async def execute(self, table: LibraryTable, port: CallPort) -> RunResult:
        """Run the prepared script; whatever it does is in the result.

        Cancelling this kills the worker and ends the calls in flight, in milliseconds.

        Raises:
            Exception: What the port raised; a script cannot make it raise.
        """
        loop = asyncio.get_running_loop()
        started = loop.time()
        if self._error is not None or self._worker is None:
            return self._result(Ending(None, self._error, ()), 0.0, 0.0)
        self._calls = CallsInFlight(self._worker, port, self._bounds, self._fail)
        try:
            settings = encode(self._settings(table))
            wall_seconds = self._bounds.limits.wall_seconds
            kind, payload = await self._ask(ToWorker.EXECUTE, (settings,), wall_seconds, self._bounds.wall())
        finally:
            if self._calls.stop():
                with anyio.CancelScope(shield=True):
                    await self._calls.ended()
        if self._port_error is not None:
            raise self._port_error
        cpu_ms, ending = self._ending(kind, payload)
        return self._result(ending, (loop.time() - started) * 1000, cpu_ms)

    def close(self) -> None:
        """Let go of the worker; what was prepared and not run is forgotten."""
        worker = self._worker
        if worker is not None and worker.is_alive:
            worker.listen(None)
            if not (self._is_session or self._is_renewed):
                worker.send(ToWorker.RENEW)

    def receive(self, kind: int, payload: bytes) -> None:
        """Take a frame from the worker."""
        if self._next is None or self._next.done():
            raise FrameError(f"frame {kind} while nothing was asked")
        if self._calls is None:
            if kind not in (ToPortal.PREPARED, ToPortal.TRAPPED):
                raise FrameError(f"frame {kind} while a script is parsed")
            self._next.set_result((kind, payload))
            return
        match kind:
            case ToPortal.CALLS:
                self._calls.receive(payload)
            case ToPortal.OUTPUT:
                self._receive_output(payload)
            case ToPortal.DROPPED if len(payload) == COUNT.size:
                (self._dropped_bytes,) = COUNT.unpack(payload)
            case ToPortal.BLOCK:
                self._receive_block(payload)
            case ToPortal.FINISHED | ToPortal.TRAPPED:
                self._next.set_result((kind, payload))
            case _:
                raise FrameError(f"frame {kind} while a script runs")

    def resume(self) -> None:
        if self._calls is not None:
            self._calls.resume()

    def lose(self, reason: str) -> None:
        if self._error is None:
            self._error = worker_lost(reason)
        if self._next is not None and not self._next.done():
            self._next.set_result((_LOST, b""))

    async def _ask(
        self, kind: ToWorker, parts: tuple[bytes, ...], seconds: float, too_slow: RunError
    ) -> _Message:
        """Send a frame and wait for the one that answers it; a worker that is too slow dies."""
        assert self._worker is not None
        loop = asyncio.get_running_loop()
        self._next = loop.create_future()
        timer = loop.call_later(seconds, self._kill, too_slow)
        self._worker.send(kind, *parts)
        if not self._worker.is_alive:
            self.lose("it ended before the run")
        try:
            return await self._next
        except asyncio.CancelledError:
            self._kill(RunError("cancelled", "the run was cancelled"))
            raise
        finally:
            timer.cancel()

    def _kill(self, error: RunError) -> None:
        assert self._worker is not None
        if self._next is not None and self._next.done() and not self._next.cancelled():
            return  # the answer came first
        self._error = self._error or error
        self._worker.kill(error.message)

    def _fail(self, error: BaseException) -> None:
        self._port_error = self._port_error or error
        self._kill(RunError("worker_lost", "the call's port failed"))

    def _receive_output(self, text: bytes) -> None:
        self._output_bytes += len(text)
        if self._output_bytes > self._bounds.limits.stdout_bytes:
            raise FrameError("more output than the worker lets through")
        self._output.append(text)

    def _receive_block(self, payload: bytes) -> None:
        self._blocks_bytes += len(payload)
        if self._blocks_bytes > self._bounds.limits.result_bytes:
            raise FrameError("more content than the worker lets through")
        try:
            block = parse(payload)
        except GuestJsonError as problem:
            self._leave_out(str(problem))
            return
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            self._leave_out("it is no object with a type")
        elif len(self._blocks) >= _MAX_BLOCKS:
            self._leave_out(f"there are {_MAX_BLOCKS:,} already")
        else:
            self._blocks.append(block)

    def _leave_out(self, why: str) -> None:
        notice = f"a content block was left out of the answer: {why}"
        if notice not in self._notices:
            self._notices.append(notice)

    def _ending(self, kind: int, payload: bytes) -> tuple[float, Ending]:
        if kind == ToPortal.FINISHED and len(payload) >= END_HEADER.size:
            self._is_renewed = True
            cpu_ms, self._dropped_bytes = END_HEADER.unpack_from(payload)
            assert self._calls is not None
            return cpu_ms, read_ending(payload[END_HEADER.size :], self._bounds, self._calls.knows)
        cpu_ms = END_HEADER.unpack_from(payload)[0] if len(payload) >= END_HEADER.size else 0.0
        error = self._failure(kind, payload)
        if error.code == "script_exit" and payload[END_HEADER.size] == TrapCause.CLEAN_EXIT:
            return cpu_ms, Ending(None, None, ())
        return cpu_ms, Ending(None, error, ())

    def _failure(self, kind: int, payload: bytes) -> RunError:
        """The error for a run whose instance gave no answer."""
        if kind != ToPortal.TRAPPED or len(payload) < END_HEADER.size + TRAP_HEADER.size:
            return self._error or worker_lost("it answered nonsense")
        self._is_renewed = True
        _, self._dropped_bytes = END_HEADER.unpack_from(payload)
        (cause,) = TRAP_HEADER.unpack_from(payload, END_HEADER.size)
        message = payload[END_HEADER.size + TRAP_HEADER.size :].decode("utf-8", "replace")
        if self._is_session and self._worker is not None:
            self._worker.kill("the session's instance broke down")
        return self._bounds.trap(cause, message)

    def _run_header(self) -> bytes:
        limits = self._bounds.limits
        memory_bytes = limits.memory_mib << 20
        outbox_bytes = limits.argument_bytes + _FRAME_SLACK_BYTES
        rest = (memory_bytes, limits.stdout_bytes, outbox_bytes, limits.result_bytes, self._is_session)
        return RUN_HEADER.pack(limits.cpu_seconds, *rest)

    def _settings(self, table: LibraryTable) -> Json:
        limits = self._bounds.limits
        library = {namespace: _table_text(functions) for namespace, functions in table.items()}
        return {
            "library": library,
            "argument_bytes": limits.argument_bytes,
            "result_bytes": limits.result_bytes,
        }

    def _result(self, ending: Ending, wall_ms: float, cpu_ms: float) -> RunResult:
        stdout = b"".join(self._output).decode("utf-8", "replace")
        notices = (*self._notices, *ending.notices)
        emitted = tuple(self._blocks)
        return RunResult(
            ending.value, ending.error, stdout, self._dropped_bytes, emitted, notices, wall_ms, cpu_ms
        )


def _table_text(functions: Mapping[str, str]) -> str:
    """One line per function, "name signature", between line breaks: the guest searches it without parsing."""
    lines = (f"{name} {' '.join(signature.splitlines())}\n" for name, signature in functions.items())
    return "\n" + "".join(lines)
