"""The fork server (Linux): loads the engine once, warms it up, and forks workers."""

import gc
import os
import signal
import socket

from manifests.kernels import PYTHON, KernelName
from sandbox_runtime.frames import Channel, RunStart, ToPortal, ToWorker, inherited_socket
from sandbox_runtime.kernels import KERNELS, Kernel
from sandbox_runtime.worker.engine import GuestEngine
from sandbox_runtime.worker.lockdown import end_with_parent
from sandbox_runtime.worker.run_host import RunHost
from sandbox_runtime.worker.worker import Worker

_ORDER_BYTES = 64


def fork_server(kernel: KernelName, compiled: str, descriptor: str, parent: str) -> None:
    """Load the engine once, and fork workers in a few milliseconds. A fork loses threads, so this process has none.

    The control socket takes one order per packet: `+NUMBER` with a socket starts a worker, `-NUMBER` kills and reaps
    it. Until then its process id is not reused.
    """
    end_with_parent(int(parent))
    control = inherited_socket(descriptor)
    host = RunHost()
    engine = GuestEngine(compiled, host)
    learn_memory(engine, host, KERNELS[kernel])
    gc.collect()
    gc.freeze()
    server = os.getpid()
    children: dict[bytes, int] = {}
    control.send(b"!")  # it is ready
    while True:
        order, descriptors, _, _ = socket.recv_fds(control, _ORDER_BYTES, 1)
        number = order[1:]
        if not order:
            os._exit(0)  # the portal is gone; the children get a signal
        if order[:1] == b"-":
            if (child := children.pop(number, 0)) > 0:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            continue
        try:
            child = os.fork()
        except OSError:
            child = -1  # too many processes, or too little memory; the portal sees the closed descriptor
        if child == 0:
            end_with_parent(server)
            control.close()
            try:
                end = socket.socket(fileno=descriptors[0])
                Worker(end, engine, host, server, KERNELS[kernel]).serve()
            finally:
                os._exit(1)
        os.close(descriptors[0])
        children[number] = child


_SETTINGS = b"""\
{"library": {"warmup": "\\none async def one(*, i: int) -> dict\\n"},
"argument_bytes": 65536, "result_bytes": 65536, "seed": "any"}
"""


def learn_memory(engine: GuestEngine, host: RunHost, kernel: Kernel = KERNELS[PYTHON]) -> None:
    """Run a warm-up script in a temporary instance, which also initialises the engine, and inspect a new instance."""
    host.channel = _WarmUpChannel()
    host.begin(RunStart(10, 64 << 20, 1 << 16, 1 << 16, 1 << 16), None)
    engine.memory.open()
    instance = engine.instantiate()
    instance.call("prepare", kernel.warm_up, b"warmup", most=1 << 16)
    instance.call("execute", _SETTINGS, most=1 << 16)
    engine.memory.learn_hot_pages()
    instance.close()
    instance = engine.instantiate()
    engine.memory.learn_content()
    instance.close()


class _WarmUpChannel(Channel):
    """A channel that answers every call at once."""

    has_frame = False

    def __init__(self) -> None:
        self._calls: list[bytes] = []

    def send(self, kind: int, *parts: bytes, before: bytes = b"") -> None:
        if kind == ToPortal.CALLS:
            self._calls += b"".join(parts).split(b"\n")

    def receive(self) -> tuple[int, bytes]:
        identities = [line.partition(b" ")[0] for line in self._calls]
        self._calls.clear()
        answers = [b'[%b,1,{"content": [1, 2.5, "text", null, true]}]' % identity for identity in identities]
        return ToWorker.ANSWERS, b",".join(answers)

    def wait(self, timeout_ms: int) -> bool:
        return bool(self._calls) or timeout_ms < 0
