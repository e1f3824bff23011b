"""The worker process: one channel, one live instance, one run at a time.

It imports the engine and the standard library, holds no secret, and never parses what guest and portal exchange.
"""

import os
import socket
import threading
import time

from wasmtime import ExitTrap, WasmtimeError

from manifests.kernels import KernelName
from sandbox_runtime import frames
from sandbox_runtime.kernels import KERNELS, Kernel
from sandbox_runtime.worker.engine import GuestEngine
from sandbox_runtime.worker.lockdown import end_with_parent, harden, seal
from sandbox_runtime.worker.run_host import ReplayLog, RunHost

_RENEWAL_MS = 2
"""So much after a run its instance is renewed, or when the next script comes: the portal writes the answer first."""

_REPLAY_SHARE = 2
"""A replay may use so many times the CPU time that the recorded run may have used: this machine may be slower."""

_LITTLE_MEMORY = 0.4
_ARENA_BYTES = 5 << 18  # 1 MiB, and what malloc adds


def work(kernel: KernelName, compiled: str, descriptor: str, parent: str) -> None:
    """The main function of a spawned worker: kernel, compiled component, channel's descriptor, portal's process id."""
    end_with_parent(int(parent))
    host = RunHost()
    engine = GuestEngine(compiled, host)
    Worker(frames.inherited_socket(descriptor), engine, host, int(parent), KERNELS[kernel]).serve()


class Worker:
    """Serves the portal at the other end of a socket until that is closed."""

    def __init__(
        self, end: socket.socket, engine: GuestEngine, host: RunHost, parent: int, kernel: Kernel
    ) -> None:
        self._channel = frames.Channel(end)
        self._kernel = kernel
        self._engine = engine
        self._host = host
        self._start = frames.RunStart()
        self._clock = CpuClock(engine, parent)
        self._least_memory_bytes = 0
        self._is_used = self._is_over = False
        self._replay_log: ReplayLog | None = None
        host.channel = self._channel

    def serve(self) -> None:
        self._engine.memory.open()
        protections = harden()
        self._clock.start()
        self._instance = self._engine.instantiate()
        if self._kernel.has_engine_threads:
            self._start_engine_threads()
        self._least_memory_bytes = self._engine.memory.size_bytes()
        self._engine.memory.check_content()
        pid = frames.COUNT.pack(os.getpid())
        protections += seal()
        self._channel.send(frames.ToPortal.READY, pid, " ".join(protections).encode())
        while True:
            if self._is_over and not self._channel.wait(_RENEWAL_MS):
                self._renew()
            kind, payload = self._channel.receive()
            if kind == frames.ToWorker.PREPARE:
                self._prepare(payload)
            elif kind == frames.ToWorker.EXECUTE:
                self._execute(payload)
            elif kind == frames.ToWorker.REPLAY_LOG:
                self._replay_log = ReplayLog(payload)
            elif kind == frames.ToWorker.DROP:
                self._is_over = self._is_used
            # ANSWERS may come too late.

    def _start_engine_threads(self) -> None:
        """Make the engine start its I/O thread now: a sealed process cannot, and a script's `select` would hang.

        By default it starts one thread per core; only the variable changes that.
        """
        os.environ["TOKIO_WORKER_THREADS"] = "1"
        self._instance.call("prepare", b"__import__('select').select([0], [], [])", b"", most=1000)
        self._instance.call(
            "execute", b'{"library": {}, "argument_bytes": 0, "result_bytes": 100}', most=1000
        )
        self._instance.close()
        self._instance = self._engine.instantiate()

    def _prepare(self, payload: bytes) -> None:
        self._renew()
        self._start = frames.RunStart(*frames.RUN_START.unpack_from(payload))
        self._is_used = not self._start.is_session  # a session keeps its instance
        replay_log, self._replay_log = self._replay_log, None
        cpu_seconds = self._start.cpu_seconds
        self._host.begin(self._start, replay_log, on_live=lambda: self._clock.renew(cpu_seconds))
        namespaces, _, script = payload[frames.RUN_START.size :].partition(b"\n")
        self._instance.limit(self._start.memory_bytes)
        self._clock.begin(cpu_seconds * (_REPLAY_SHARE * replay_log.segments if replay_log else 1))
        try:
            answer = self._instance.call("prepare", script, namespaces, most=frames.MAX_PREPARED_BYTES)
            if len(answer) > frames.MAX_PREPARED_BYTES:
                raise self._host.stop(frames.TrapCause.GUEST)
        except WasmtimeError as error:
            self._report_trap(error)
        else:
            self._clock.pause()
            self._host.send(frames.ToPortal.PREPARED, answer)

    def _execute(self, settings: bytes) -> None:
        self._clock.resume()
        most = self._start.result_bytes + self._start.outbox_bytes
        try:
            answer = self._instance.call("execute", settings, most=most)
            if len(answer) > most:
                raise self._host.stop(frames.TrapCause.RESULT)
        except WasmtimeError as error:
            self._report_trap(error)
            return
        self._clock.pause()
        self._host.send(frames.ToPortal.FINISHED, self._end(), answer)

    def _report_trap(self, error: WasmtimeError) -> None:
        self._clock.pause()
        self._instance.is_dead = True
        message = str(error)
        cause = frames.TRAP_HEADER.pack(self._cause(error, message))
        self._host.send(frames.ToPortal.TRAPPED, self._end(), cause, message[-500:].encode())

    def _cause(self, error: WasmtimeError, message: str) -> frames.TrapCause:
        if self._host.stopped is not None:
            return self._host.stopped
        if self._clock.is_exceeded:
            return frames.TrapCause.CPU
        if isinstance(error, ExitTrap):
            return frames.TrapCause.CLEAN_EXIT if error.code == 0 else frames.TrapCause.EXIT
        if "call stack exhausted" in message:
            return frames.TrapCause.STACK
        # CPython aborts if it cannot even raise MemoryError, and so does the code that receives an answer. In both
        # cases the next arena of CPython, or the answer, does not fit into the remaining memory.
        has, most = self._engine.memory.size_bytes(), self._start.memory_bytes
        least = self._least_memory_bytes
        is_used_up = has > 0 and most - has < max(_ARENA_BYTES, _LITTLE_MEMORY * (most - least))
        return frames.TrapCause.MEMORY if is_used_up else frames.TrapCause.GUEST

    def _end(self) -> bytes:
        self._is_over = self._is_used
        return frames.END_HEADER.pack(self._clock.used_seconds * 1000, self._host.dropped_bytes)

    def _renew(self) -> None:
        """Make the instance ready for the next script, if one ran in it."""
        if self._is_used:
            self._instance = self._engine.renewed(self._instance)
            self._is_used = self._is_over = False


class CpuClock:
    """Ends a run that has used up its CPU time. Waiting for calls does not count.

    The engine's epoch advances only when the limit is exceeded, so other runs are never interrupted. After a second
    without runs the thread sleeps until the next one.
    """

    TICK_SECONDS = 0.01
    _IDLE_TICKS = 100

    def __init__(self, engine: GuestEngine, parent: int) -> None:
        self.is_exceeded = False
        self.used_seconds = 0.0
        self._engine = engine
        self._parent = parent
        self._deadline: float | None = None
        self._left = 0.0
        self._lock = threading.Lock()
        self._awake = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._tick, daemon=True).start()

    def begin(self, cpu_seconds: float) -> None:
        self.is_exceeded, self.used_seconds, self._left = False, 0.0, cpu_seconds
        self.resume()

    def renew(self, cpu_seconds: float) -> None:
        """From now on the run may use so much, whatever it has used."""
        self.pause()
        self._left = cpu_seconds
        self.resume()

    def resume(self) -> None:
        with self._lock:
            self._deadline = time.process_time() + self._left
            self._awake.set()

    def pause(self) -> None:
        with self._lock:
            deadline, self._deadline = self._deadline, None
        if deadline is not None:
            left = deadline - time.process_time()
            self.used_seconds += self._left - left
            self._left = left

    def _tick(self) -> None:
        idle = 0
        while self._awake.wait():
            time.sleep(self.TICK_SECONDS)
            if os.getppid() != self._parent:
                os._exit(0)
            with self._lock:
                idle = idle + 1 if self._deadline is None else 0
                if idle >= self._IDLE_TICKS:
                    self._awake.clear()
                if self._deadline is not None and time.process_time() > self._deadline:
                    self.is_exceeded = True
                    self._engine.engine.increment_epoch()
