"""The fork server: loads the engine once, and forks a worker in a few milliseconds (Linux).

It stays without threads, since a forked child would have only one of them. Its control socket takes one
message per packet: `+NUMBER` with a socket starts a worker under a number, `-NUMBER` kills that worker. Only
the parent of a process can name it without the danger that its id is already another's.
"""

import gc
import json
import os
import select
import signal
import socket

from sandbox_runtime.engine import GuestEngine
from sandbox_runtime.frames import Channel, RunStart, ToPortal, ToWorker, passed_on
from sandbox_runtime.lockdown import end_with_parent
from sandbox_runtime.run_host import RunHost
from sandbox_runtime.worker import Worker

_SCRIPT = b"""\
rows = [await rehearsal.one(i=i) for i in range(2)]
rows += await asyncio.gather(*[rehearsal.one(i=i) for i in range(2)])
print(len(rows))
[row["content"] for row in rows]
"""
_SETTINGS = {
    "library": {"rehearsal": "\none async def rehearsal.one(...)\n"},
    "argument_bytes": 1 << 16,
    "result_bytes": 1 << 16,
    "seed": "any",
}
_START = RunStart(10, 64 << 20, 1 << 16, 1 << 16, 1 << 16)


def learn_hot_pages(engine: GuestEngine, host: RunHost) -> None:
    """Run it in an instance that is dropped afterwards; that also leaves every lazy part of the engine ready."""
    host.channel = _Answers()
    host.begin(_START, None)
    instance = engine.instantiate()
    try:
        instance.prepare(_SCRIPT, b"rehearsal", most=1 << 16)
        instance.execute(json.dumps(_SETTINGS).encode(), most=1 << 16)
        engine.hot_pages.learn()
    finally:
        instance.close()
        host.end()


class _Answers(Channel):
    """The channel of a portal that answers every call at once."""

    def __init__(self) -> None:
        self._calls: list[bytes] = []

    @property
    def has_frame(self) -> bool:
        return bool(self._calls)

    def send(self, kind: int, *parts: bytes, before: bytes = b"") -> None:
        if kind == ToPortal.CALLS:
            self._calls += b"".join(parts).split(b"\n")

    def receive(self) -> tuple[int, bytes]:
        identities = [line.partition(b" ")[0] for line in self._calls]
        self._calls.clear()
        answers = [b'[%b,1,{"content": [1, 2.5, "text", null, true]}]' % identity for identity in identities]
        return ToWorker.ANSWERS, b",".join(answers)

    def wait(self, timeout_ms: int) -> bool:
        return self.has_frame or timeout_ms < 0


READY = b"ready"
_MESSAGE_BYTES = 64


class ForkServer:
    """The server's own process."""

    def __init__(self, control: socket.socket, compiled: str) -> None:
        self._control = control
        self._host = RunHost()
        self._engine = GuestEngine(compiled, self._host)
        self._children: dict[int, int] = {}
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)

    def serve(self) -> None:
        learn_hot_pages(self._engine, self._host)
        gc.collect()
        gc.freeze()
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        self._control.send(READY)
        while True:
            readable, _, _ = select.select([self._control.fileno(), self._wake_reader], [], [])
            if self._wake_reader in readable:
                os.read(self._wake_reader, 4096)
                self._reap()
            if self._control.fileno() in readable:
                self._obey()

    def _obey(self) -> None:
        message, descriptors, _, _ = socket.recv_fds(self._control, _MESSAGE_BYTES, 1)
        if not message:
            os._exit(0)  # the portal is gone; the children get their signal
        number = int(message[1:])
        if message[:1] == b"-":
            if number in self._children:
                os.kill(self._children[number], signal.SIGKILL)
            return
        self._fork(number, descriptors[0])

    def _fork(self, number: int, descriptor: int) -> None:
        server = os.getpid()
        try:
            child = os.fork()
        except OSError:
            child = -1  # too many processes, or too little memory: the closed descriptor tells the portal
        if child == 0:
            self._become_worker(descriptor, server)
        os.close(descriptor)
        if child > 0:
            self._children[number] = child

    def _become_worker(self, descriptor: int, server: int) -> None:
        end_with_parent(server)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._control.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)
        try:
            Worker(socket.socket(fileno=descriptor), self._engine, self._host, server).serve()
        finally:
            os._exit(1)

    def _reap(self) -> None:
        while self._children:
            child, _ = os.waitpid(-1, os.WNOHANG)
            if child == 0:
                return
            self._children = {number: other for number, other in self._children.items() if other != child}


def main(arguments: list[str]) -> None:
    """Start: compiled component, descriptor of the control socket, process id of the portal."""
    compiled, descriptor, parent = arguments
    end_with_parent(int(parent))
    ForkServer(passed_on(descriptor), compiled).serve()
