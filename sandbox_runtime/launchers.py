"""Starts worker processes: through a fork server (Linux), or each on its own (everywhere)."""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import wasmtime

from sandbox_runtime.errors import WorkerStartError
from sandbox_runtime.fork_server import READY

# Appended, so that nothing beside the engine can shadow the standard library.
_BOOT = (
    "import sys; from importlib import import_module; module, folders, *rest = sys.argv[1:]; "
    "sys.path.extend(folders.split(chr(10))); import_module(module).main(rest)"
)


def start_process(
    module: str, *arguments: str, descriptor: int | None = None, parent: int | None = None
) -> "subprocess.Popen[bytes]":
    """Start `module.main([*arguments, descriptor, parent])` in a process group of its own.

    A group of its own keeps a Ctrl-C at the terminal from reaching it: it ends with its parent, not before.
    """
    rest = [*arguments, *(str(number) for number in (descriptor, parent) if number is not None)]
    with _empty_folder() as folder:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOT, module, _folders(), *rest],
            env={},
            cwd=folder,
            close_fds=True,
            pass_fds=() if descriptor is None else (descriptor,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


@contextmanager
def _empty_folder() -> Iterator[str]:
    """One that is gone once it is left: who works there finds nothing, and can make nothing."""
    try:
        folder = tempfile.mkdtemp()
    except OSError:
        yield "/"
        return
    try:
        yield folder
    finally:
        os.rmdir(folder)


def _folders() -> str:
    ours = Path(__file__).resolve().parents[1]
    engine = Path(wasmtime.__file__).resolve().parents[1]
    return "\n".join(dict.fromkeys((str(ours), str(engine))))


class ForkControl:
    """Sends packets in order; those that do not fit into the socket's buffer wait until they do."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._unsent: deque[tuple[bytes, list[int]]] = deque()

    def start(self, number: int, descriptor: int) -> None:
        """Ask for a worker that gets a copy of the descriptor.

        Raises:
            OSError: The fork server is gone.
        """
        self._send(b"+%d" % number, [descriptor])

    def kill(self, number: int) -> None:
        # A fork server that is gone has taken its workers with it.
        with suppress(OSError):
            self._send(b"-%d" % number, [])

    def close(self) -> None:
        if self._end.fileno() != -1:
            asyncio.get_running_loop().remove_writer(self._end)
        self._end.close()
        self._forget_unsent()

    def _send(self, message: bytes, descriptors: list[int]) -> None:
        if self._unsent:
            self._keep(message, descriptors)
            return
        try:
            socket.send_fds(self._end, [message], descriptors)
        except BlockingIOError:
            self._keep(message, descriptors)
            asyncio.get_running_loop().add_writer(self._end, self._flush)

    def _keep(self, message: bytes, descriptors: list[int]) -> None:
        # The caller closes its descriptor now, so the packet needs one of its own.
        self._unsent.append((message, [os.dup(descriptor) for descriptor in descriptors]))

    def _flush(self) -> None:
        while self._unsent:
            message, descriptors = self._unsent[0]
            try:
                socket.send_fds(self._end, [message], descriptors)
            except BlockingIOError:
                return
            except OSError:
                break  # the fork server is gone
            self._unsent.popleft()
            for descriptor in descriptors:
                os.close(descriptor)
        asyncio.get_running_loop().remove_writer(self._end)
        self._forget_unsent()

    def _forget_unsent(self) -> None:
        for _, descriptors in self._unsent:
            for descriptor in descriptors:
                os.close(descriptor)
        self._unsent.clear()


_START_SECONDS = 20.0


class Launcher(Protocol):
    """Starts workers. `launch` takes the worker's end of a socket pair and returns what kills and buries it, once."""

    async def launch(self, end: socket.socket) -> Callable[[], None]: ...
    def start_afresh(self) -> None:
        """A worker did not come up in time."""

    async def close(self) -> None: ...


def default_launcher(compiled: Path) -> Launcher:
    """The faster way that this system offers."""
    # wasmtime handles traps through Mach ports on macOS, which a fork does not carry over.
    return ForkLauncher(compiled) if sys.platform == "linux" else SpawnLauncher(compiled)


class SpawnLauncher:
    """One process per worker, started from scratch in about 80 ms."""

    def __init__(self, compiled: Path) -> None:
        self._compiled = compiled
        self._dying: set[asyncio.Task[None]] = set()

    async def launch(self, end: socket.socket) -> Callable[[], None]:
        child = start_process(
            "sandbox_runtime.worker", str(self._compiled), descriptor=end.fileno(), parent=os.getpid()
        )

        def kill() -> None:
            child.kill()
            reaper = asyncio.get_running_loop().create_task(_reap(child))
            self._dying.add(reaper)
            reaper.add_done_callback(self._dying.discard)

        return kill

    def start_afresh(self) -> None:
        """Each worker is a fresh start here."""

    async def close(self) -> None:
        """Wait for workers that were killed, so that none stays behind as a zombie."""
        if self._dying:
            await asyncio.wait(self._dying, timeout=_START_SECONDS)


class ForkLauncher:
    """Forks workers from a process that has the engine loaded; starts that process when there is none.

    When it dies its workers die with it, and the next launch starts another.
    """

    def __init__(self, compiled: Path) -> None:
        self._compiled = compiled
        self._server: subprocess.Popen[bytes] | None = None
        self._control: ForkControl | None = None
        self._starting = asyncio.Lock()
        self._last_number = 0

    async def launch(self, end: socket.socket) -> Callable[[], None]:
        control = await self._connected()
        self._last_number += 1
        number = self._last_number
        try:
            control.start(number, end.fileno())
        except OSError as error:
            self._forget(control)
            raise WorkerStartError("the fork server is gone") from error
        return lambda: control.kill(number)

    def start_afresh(self) -> None:
        """End a fork server that forks no more. Its workers end too: nothing else could end them."""
        if self._server is not None:
            self._server.kill()

    async def close(self) -> None:
        server, self._server = self._server, None
        if self._control is not None:
            self._control.close()
        if server is not None:
            server.kill()
            await _reap(server)

    async def _connected(self) -> ForkControl:
        async with self._starting:
            if self._control is not None and (self._server is None or self._server.poll() is not None):
                self._forget(self._control)
            if self._control is None:
                self._control = await self._start()
            return self._control

    async def _start(self) -> ForkControl:
        if self._server is not None:
            self._server.kill()
            await _reap(self._server)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control = ForkControl(ours)
        try:
            with theirs:
                self._server = start_process(
                    "sandbox_runtime.fork_server",
                    str(self._compiled),
                    descriptor=theirs.fileno(),
                    parent=os.getpid(),
                )
        except OSError:
            control.close()
            raise
        try:
            async with asyncio.timeout(_START_SECONDS):
                answer = await asyncio.get_running_loop().sock_recv(ours, len(READY))
        except TimeoutError:
            answer = b""
        if answer != READY:
            control.close()
            self._server.kill()
            await _reap(self._server)
            raise WorkerStartError("the fork server did not start")
        return control

    def _forget(self, control: ForkControl) -> None:
        if self._control is control:
            self._control = None
        control.close()


async def _reap(child: "subprocess.Popen[bytes]") -> None:
    """Collect a child that was killed: a matter of milliseconds."""
    await asyncio.to_thread(child.wait)
