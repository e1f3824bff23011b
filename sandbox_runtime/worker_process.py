"""The portal's end of one worker process."""

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

from sandbox_runtime.errors import WorkerStartError
from sandbox_runtime.frames import COUNT, HEADER, FrameError, FrameReader, ToPortal, ToWorker
from sandbox_runtime.launchers import Launcher

_START_SECONDS = 10.0
_IDLE_FRAME_BYTES = 1 << 16
_CONGESTION_BYTES = 8 << 20
_TURN_SECONDS = 0.005


class FrameListener(Protocol):
    """Takes what a worker tells during a run. May raise FrameError, which costs the worker its life."""

    def receive(self, kind: int, payload: bytes) -> None: ...
    def resume(self) -> None:
        """The worker reads again."""

    def lose(self, reason: str) -> None:
        """The worker is dead, by whatever cause."""


class WorkerProcess(asyncio.Protocol):
    """One worker: its socket, its death, and who listens to it.

    What a worker says is not believed either: a guest that broke out of the engine would speak through it.
    """

    def __init__(self, on_death: Callable[["WorkerProcess"], None]) -> None:
        self.pid = 0
        self.protections: tuple[str, ...] = ()
        self.is_alive = True
        self.is_congested = False
        """Whether it does not read its answers: then no call is begun."""
        self._on_death = on_death
        self._reader = FrameReader(_IDLE_FRAME_BYTES)
        self._listener: FrameListener | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._kill: Callable[[], None] | None = None

    @classmethod
    async def start(cls, launcher: Launcher, on_death: Callable[["WorkerProcess"], None]) -> "WorkerProcess":
        """Start a worker and wait until it is ready.

        Raises:
            WorkerStartError: It ended, did not become ready in 10 s, or there is no process for it.
        """
        worker = cls(on_death)
        is_started = False
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise WorkerStartError(_reason(error)) from error
        ours.setblocking(False)
        try:
            with theirs:
                worker._kill = await launcher.launch(theirs)
            await asyncio.get_running_loop().create_connection(lambda: worker, sock=ours)
            async with asyncio.timeout(_START_SECONDS):
                await worker._ready
            is_started = True
        except TimeoutError as error:
            launcher.start_afresh()
            raise WorkerStartError("a worker did not become ready") from error
        except (OSError, RuntimeError) as error:  # no thread to be had is a RuntimeError
            raise WorkerStartError(_reason(error)) from error
        finally:
            if not is_started:
                worker.kill("it did not start")
                ours.close()
        return worker

    def listen(self, listener: FrameListener | None, max_frame_bytes: int = _IDLE_FRAME_BYTES) -> None:
        """Send what comes from now on to `listener`; without one, anything that comes is a breach."""
        self._listener = listener
        self._reader.max_bytes = max_frame_bytes

    def send(self, kind: ToWorker, *parts: bytes) -> None:
        """Send a frame, whose payload is the parts one after the other."""
        if self._transport is not None and self.is_alive:
            self._transport.write(b"".join((HEADER.pack(sum(map(len, parts)), kind), *parts)))

    def kill(self, reason: str) -> None:
        """End the process now, whatever it does. Harmless when it is dead."""
        if not self.is_alive:
            return
        self.is_alive = False
        if self._kill is not None:
            self._kill()
        if self._transport is not None:
            self._transport.abort()
        if not self._ready.done():
            self._ready.set_exception(WorkerStartError(f"a worker did not start: {reason}"))
            self._ready.exception()  # nobody may be waiting for it any more
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.lose(reason)
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
        """Pass on what has arrived. After 5 ms the event loop has a turn: a hostile script fills 256 KiB with calls."""
        loop = asyncio.get_running_loop()
        turn_ends = loop.time() + _TURN_SECONDS
        try:
            while self.is_alive and (taken := self._reader.take()) is not None:
                self._receive(*taken)
                if loop.time() > turn_ends and self._reader.has_frame and self._transport is not None:
                    self._transport.pause_reading()
                    loop.call_soon(self._go_on)
                    return
        except FrameError as error:
            self.kill(f"it broke the channel's rules: {error}")

    def _go_on(self) -> None:
        if self.is_alive and self._transport is not None:
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


def _reason(error: OSError | RuntimeError) -> str:
    """Without the paths of the host that it may name."""
    return error.strerror or "the system refuses" if isinstance(error, OSError) else str(error)
