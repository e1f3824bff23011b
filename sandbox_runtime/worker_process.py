"""The portal's side of worker processes. They are forked from a fork server (Linux) or spawned (everywhere)."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Protocol

from manifests.kernels import PYTHON
from sandbox_runtime.errors import WorkerStartError
from sandbox_runtime.frames import COUNT, FrameError, FrameReader, ToPortal, ToWorker, frame
from sandbox_runtime.kernels import KERNELS, Kernel

_START_SECONDS = 10.0
_SERVER_START_SECONDS = 20.0
_IDLE_FRAME_BYTES = 1 << 16
_CONGESTION_BYTES = 8 << 20
_TURN_SECONDS = 0.005
# Folders are appended to the path, so that nothing can shadow the standard library.
_BOOT = (
    "import sys; from importlib import import_module; module, main, folders, *rest = sys.argv[1:]; "
    "sys.path.extend(folders.split(chr(10))); getattr(import_module(module), main)(*rest)"
)


def start_process(
    module: str, main: str, *arguments: str, end: socket.socket | None = None
) -> "subprocess.Popen[bytes]":
    """Start `module.main(*arguments, descriptor of end, own process id)` without environment and files.

    It has its own session, so that Ctrl-C at the terminal does not reach it. It ends with its parent.
    """
    descriptors = () if end is None else (end.fileno(),)
    rest = [*arguments, *map(str, descriptors), str(os.getpid())]
    return subprocess.Popen(
        boot_command(module, main, *rest),
        env={},
        cwd="/",
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def boot_command(module: str, main: str, *arguments: str) -> list[str]:
    """The command that runs `module.main(*arguments)` and loads only the Python modules that this imports."""
    engine = find_spec("wasmtime")  # not imported: only workers map it
    assert engine is not None and engine.origin is not None, "it is a dependency"
    folders = dict.fromkeys(str(Path(file).resolve().parents[1]) for file in (__file__, engine.origin))
    return [sys.executable, "-I", "-S", "-c", _BOOT, module, main, "\n".join(folders), *arguments]


class Launcher(Protocol):
    """Starts workers. `launch` takes a worker's end of a socket pair, and returns a function to kill and reap it."""

    async def launch(self, end: socket.socket) -> Callable[[], None]: ...
    async def close(self) -> None:
        """End the launcher's own processes. It may launch again afterwards, as after a worker that hangs."""


def default_launcher(compiled: Path, kernel: Kernel = KERNELS[PYTHON]) -> Launcher:
    """The faster launcher of this system."""
    # On macOS wasmtime handles traps through Mach ports, which a fork does not inherit.
    return (ForkLauncher if sys.platform == "linux" else SpawnLauncher)(compiled, kernel)


class SpawnLauncher:
    """Spawns each worker as a new process, in about 80 ms."""

    def __init__(self, compiled: Path, kernel: Kernel = KERNELS[PYTHON]) -> None:
        self._arguments = kernel.name, str(compiled)
        self._killed: list[subprocess.Popen[bytes]] = []

    async def launch(self, end: socket.socket) -> Callable[[], None]:
        child = start_process("sandbox_runtime.worker.worker", "work", *self._arguments, end=end)

        def kill() -> None:
            child.kill()
            self._killed = [dead for dead in (*self._killed, child) if dead.poll() is None]

        return kill

    async def close(self) -> None:
        """Reap killed workers, so that none stays a zombie."""
        for child in self._killed:
            await asyncio.to_thread(child.wait)


class ForkLauncher:
    """Forks workers from the fork server, and starts that if necessary.

    If it dies, its workers die, and the next launch starts another. A fork server that does not read orders is killed.
    """

    def __init__(self, compiled: Path, kernel: Kernel = KERNELS[PYTHON]) -> None:
        self._arguments = kernel.name, str(compiled)
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._starting = asyncio.Lock()
        self._numbers = count(1)

    async def launch(self, end: socket.socket) -> Callable[[], None]:
        async with self._starting:
            if self._control is None or self._server is None or self._server.poll() is not None:
                await self.close()
                self._control = await self._start()
            control = self._control
        number = next(self._numbers)
        try:
            socket.send_fds(control, [b"+%d" % number], [end.fileno()])
        except OSError as error:
            await self.close()
            raise WorkerStartError("the fork server is gone") from error

        def kill() -> None:
            try:
                control.send(b"-%d" % number)
            except BlockingIOError:
                if self._server is not None:
                    self._server.kill()  # it does not read orders; its workers end with it
            except OSError:
                pass  # the fork server is gone, and its workers with it

        return kill

    async def close(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._server is not None:
            self._server.kill()
            await asyncio.to_thread(self._server.wait)

    async def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            self._server = start_process(
                "sandbox_runtime.worker.fork_server", "fork_server", *self._arguments, end=theirs
            )
        with suppress(TimeoutError):
            async with asyncio.timeout(_SERVER_START_SECONDS):
                if await asyncio.get_running_loop().sock_recv(ours, 1):
                    return ours
        ours.close()
        raise WorkerStartError("the fork server did not start")


def cpu_seconds(pid: int | None) -> float | None:
    """The CPU seconds that a process has used; None if the system does not report them."""
    try:
        numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")


class Listener(Protocol):
    """The run that a worker works for."""

    @property
    def waits_for_calls(self) -> bool:
        """Whether a call of the script is in flight."""

    def receive(self, kind: int, payload: bytes) -> None: ...

    def resume(self) -> None: ...

    def on_worker_lost(self, reason: str) -> None: ...


class WorkerProcess(asyncio.Protocol):
    """One worker: its socket, its end, and its listener.

    Its frames are untrusted: a guest that escaped the engine would control them.
    """

    def __init__(self, on_death: Callable[["WorkerProcess"], None]) -> None:
        self.pid = 0
        self.protections: tuple[str, ...] = ()
        self.is_alive = True
        self.is_congested = False
        """Whether it does not read its answers. Then no call is started."""
        self._on_death = on_death
        self._reader = FrameReader(_IDLE_FRAME_BYTES)
        self._listener: Listener | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport
        self._kill: Callable[[], None] = lambda: None

    @classmethod
    async def start(cls, launcher: Launcher, on_death: Callable[["WorkerProcess"], None]) -> "WorkerProcess":
        """Start a worker and wait until it is ready, at most 10 s. Raises WorkerStartError."""
        try:
            ours, theirs = socket.socketpair()
            worker = cls(on_death)
            with theirs:
                await asyncio.get_running_loop().create_connection(lambda: worker, sock=ours)
                try:
                    worker._kill = await launcher.launch(theirs)
                    theirs.close()
                    async with asyncio.timeout(_START_SECONDS):
                        await worker._ready
                except BaseException:
                    worker.kill("it did not start")
                    raise
        except TimeoutError as error:
            await launcher.close()
            raise WorkerStartError("a worker did not become ready") from error
        except (OSError, RuntimeError) as error:  # RuntimeError: no thread can be started
            # Without paths of the host.
            message = error.strerror or "the system refused" if isinstance(error, OSError) else str(error)
            raise WorkerStartError(message) from error
        return worker

    @property
    def waits_for_calls(self) -> bool:
        return self._listener is not None and self._listener.waits_for_calls

    def listen(self, listener: Listener | None, max_frame_bytes: int = _IDLE_FRAME_BYTES) -> None:
        """Pass frames to `listener` from now on. Its FrameError, or a frame without a listener, kills the worker."""
        self._listener = listener
        self._reader.max_bytes = max_frame_bytes

    def send(self, kind: ToWorker, *parts: bytes) -> None:
        if self.is_alive:
            self._transport.write(frame(kind, *parts))

    def kill(self, reason: str) -> None:
        if not self.is_alive:
            return
        self.is_alive = False
        self._kill()
        self._transport.abort()
        if not self._ready.done():
            self._ready.set_exception(WorkerStartError(f"a worker did not start: {reason}"))
            self._ready.exception()  # mark it as retrieved
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.on_worker_lost(reason)
        self._on_death(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=_CONGESTION_BYTES)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.kill("its process ended")

    def pause_writing(self) -> None:
        self.is_congested = True

    def resume_writing(self) -> None:
        self.is_congested = False
        if self._listener is not None:
            self._listener.resume()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        self._take_frames()

    def _take_frames(self) -> None:
        """Process received frames. It yields to the event loop every 5 ms: a hostile script can send many calls."""
        loop = asyncio.get_running_loop()
        turn_ends = loop.time() + _TURN_SECONDS
        try:
            while self.is_alive and (taken := self._reader.take()) is not None:
                self._receive(*taken)
                if loop.time() > turn_ends and self._reader.has_frame:
                    self._transport.pause_reading()
                    loop.call_soon(self._go_on)
                    return
        except FrameError as error:
            self.kill(f"it violated the protocol: {error}")

    def _go_on(self) -> None:
        if self.is_alive:
            self._transport.resume_reading()
            self._take_frames()

    def _receive(self, kind: int, payload: bytes) -> None:
        if self._listener is not None:
            self._listener.receive(kind, payload)
        elif kind == ToPortal.READY and not self._ready.done() and len(payload) >= COUNT.size:
            (self.pid,) = COUNT.unpack_from(payload)
            self.protections = tuple(payload[COUNT.size :].decode("ascii", "replace").split())
            self._ready.set_result(None)
        elif self.is_alive:
            raise FrameError(f"frame {kind} outside of a run")
