"""Starts worker processes: through a fork server (Linux), or each on its own (everywhere)."""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import wasmtime

from sandbox_runtime.errors import WorkerStartError
from sandbox_runtime.fork_server import READY

_START_SECONDS = 20.0
# Appended, so that nothing beside the engine can shadow the standard library.
_BOOT = (
    "import sys; from importlib import import_module; module, folders, *rest = sys.argv[1:]; "
    "sys.path.extend(folders.split(chr(10))); import_module(module).main(rest)"
)


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

    When it dies its workers die with it, and the next launch starts another. So does one that takes no more orders.
    """

    def __init__(self, compiled: Path) -> None:
        self._compiled = compiled
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._starting = asyncio.Lock()
        self._last_number = 0

    async def launch(self, end: socket.socket) -> Callable[[], None]:
        control = await self._connected()
        self._last_number += 1
        number = self._last_number
        try:
            socket.send_fds(control, [b"+%d" % number], [end.fileno()])
        except OSError as error:
            self.start_afresh()
            raise WorkerStartError("the fork server is gone") from error

        def kill() -> None:
            try:
                control.send(b"-%d" % number)
            except BlockingIOError:
                self.start_afresh()
            except OSError:
                pass  # a fork server that is gone has taken its workers with it

        return kill

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

    async def _connected(self) -> socket.socket:
        async with self._starting:
            if self._control is not None and (self._server is None or self._server.poll() is not None):
                self._control.close()
                self._control = None
            if self._control is None:
                self._control = await self._start()
            return self._control

    async def _start(self) -> socket.socket:
        if self._server is not None:
            self._server.kill()
            await _reap(self._server)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        answer = b""
        try:
            with theirs:
                module, compiled = "sandbox_runtime.fork_server", str(self._compiled)
                self._server = start_process(module, compiled, descriptor=theirs.fileno(), parent=os.getpid())
            with suppress(TimeoutError):
                async with asyncio.timeout(_START_SECONDS):
                    answer = await asyncio.get_running_loop().sock_recv(ours, len(READY))
        finally:
            if answer != READY:
                ours.close()
                self.start_afresh()
        if answer != READY:
            raise WorkerStartError("the fork server did not start")
        return ours


async def _reap(child: "subprocess.Popen[bytes]") -> None:
    """Collect a child that was killed: a matter of milliseconds."""
    await asyncio.to_thread(child.wait)


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
