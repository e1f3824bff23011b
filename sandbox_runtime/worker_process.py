"""The portal's end of a worker process, and how one is started: forked from a server that has the engine loaded
(Linux), or on its own (everywhere).
"""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import wasmtime

from sandbox_runtime.errors import WorkerStartError
from sandbox_runtime.frames import COUNT, FrameError, FrameReader, ToPortal, ToWorker, frame

if TYPE_CHECKING:
    from sandbox_runtime.run import Run

_START_SECONDS = 10.0
_SERVER_START_SECONDS = 20.0
_IDLE_FRAME_BYTES = 1 << 16
_CONGESTION_BYTES = 8 << 20
_TURN_SECONDS = 0.005
# Appended, so that nothing beside the engine can shadow the standard library.
_BOOT = (
    "import sys; from importlib import import_module; module, main, folders, *rest = sys.argv[1:]; "
    "sys.path.extend(folders.split(chr(10))); getattr(import_module(module), main)(*rest)"
)


def start_process(
    module: str, main: str, *arguments: str, end: socket.socket | None = None
) -> "subprocess.Popen[bytes]":
    """Start `module.main(*arguments, descriptor of end, process id of this one)`, with no environment and no files.

    A process group of its own keeps a Ctrl-C at the terminal from reaching it: it ends with its parent, not before.
    """
    folders = dict.fromkeys(str(Path(file).resolve().parents[1]) for file in (__file__, wasmtime.__file__))
    descriptors = () if end is None else (end.fileno(),)
    rest = [*arguments, *map(str, descriptors), str(os.getpid())]
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _BOOT, module, main, "\n".join(folders), *rest],
        env={},
        cwd="/",
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


class Launcher(Protocol):
    """Starts workers. `launch` takes the worker's end of a socket pair and returns what kills and buries it, once."""

    async def launch(self, end: socket.socket) -> Callable[[], None]: ...
    async def close(self) -> None:
        """End what only the launcher could end. It may launch again: a worker that hangs as it starts asks for this."""


def default_launcher(compiled: Path) -> Launcher:
    """The faster way that this system offers."""
    # wasmtime handles traps through Mach ports on macOS, which a fork does not carry over.
    return ForkLauncher(compiled) if sys.platform == "linux" else SpawnLauncher(compiled)


class SpawnLauncher:
    """One process per worker, started from scratch in about 80 ms."""

    def __init__(self, compiled: Path) -> None:
        self._compiled = compiled
        self._killed: list[subprocess.Popen[bytes]] = []

    async def launch(self, end: socket.socket) -> Callable[[], None]:
        child = start_process("sandbox_runtime.worker.worker", "work", str(self._compiled), end=end)

        def kill() -> None:
            child.kill()
            self._killed = [dead for dead in (*self._killed, child) if dead.poll() is None]

        return kill

    async def close(self) -> None:
        """Wait for workers that were killed, so that none stays behind as a zombie."""
        for child in self._killed:
            await asyncio.to_thread(child.wait)


class ForkLauncher:
    """Forks workers from a process that has the engine loaded; starts that process when there is none.

    When it dies its workers die with it, and the next launch starts another. So does one that takes no more orders.
    """

    def __init__(self, compiled: Path) -> None:
        self._compiled = compiled
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
                    self._server.kill()  # it takes no more orders; its workers end with it
            except OSError:
                pass  # a fork server that is gone has taken its workers with it

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
            compiled = str(self._compiled)
            self._server = start_process(
                "sandbox_runtime.worker.fork_server", "fork_server", compiled, end=theirs
            )
        with suppress(TimeoutError):
            async with asyncio.timeout(_SERVER_START_SECONDS):
                if await asyncio.get_running_loop().sock_recv(ours, 1):
                    return ours
        ours.close()
        raise WorkerStartError("the fork server did not start")


class WorkerProcess(asyncio.Protocol):
    """One worker: its socket, its death, and who listens to it.

    What a worker says is not believed either: a guest that broke out of the engine would speak through it.
    """

    def __init__(self) -> None:
        self.pid = 0
        self.protections: tuple[str, ...] = ()
        self.is_alive = True
        self.is_congested = False
        """Whether it does not read its answers: then no call is begun."""
        self.on_death: Callable[[WorkerProcess], None] = lambda _: None
        self._reader = FrameReader(_IDLE_FRAME_BYTES)
        self._listener: Run | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport
        self._kill: Callable[[], None] = lambda: None

    @classmethod
    async def start(cls, launcher: Launcher) -> "WorkerProcess":
        """Start a worker and wait until it is ready, at most 10 s. Raises WorkerStartError."""
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                _, worker = await asyncio.get_running_loop().create_connection(cls, sock=ours)
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
        except (OSError, RuntimeError) as error:  # no thread to be had is a RuntimeError
            # Without the paths of the host that it may name.
            message = error.strerror or "the system refuses" if isinstance(error, OSError) else str(error)
            raise WorkerStartError(message) from error
        return worker

    def listen(self, listener: "Run | None", max_frame_bytes: int = _IDLE_FRAME_BYTES) -> None:
        """Tell `listener` what comes from now on; its FrameError, or a frame without one, costs the worker its life."""
        self._listener = listener
        self._reader.max_bytes = max_frame_bytes

    def send(self, kind: ToWorker, *parts: bytes) -> None:
        """Send a frame, whose payload is the parts one after the other."""
        if self.is_alive:
            self._transport.write(frame(kind, *parts))

    def kill(self, reason: str) -> None:
        """End the process now, whatever it does. Harmless when it is dead."""
        if not self.is_alive:
            return
        self.is_alive = False
        self._kill()
        self._transport.abort()
        if not self._ready.done():
            self._ready.set_exception(WorkerStartError(f"a worker did not start: {reason}"))
            self._ready.exception()  # nobody may be waiting for it any more
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.on_worker_lost(reason)
        self.on_death(self)

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
        """Pass on what has arrived. After 5 ms the event loop has a turn: a hostile script fills 256 KiB with calls."""
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
            self.kill(f"it broke the channel's rules: {error}")

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
            raise FrameError(f"frame {kind} while no run is going on")
