"""The portal's end of one worker process."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from sandbox_runtime.errors import NoProcessError, WorkerStartError
from sandbox_runtime.frames import COUNT, FrameError, FrameReader, ToPortal, ToWorker
from sandbox_runtime.launchers import Launcher
from sandbox_runtime.outgoing import Outgoing
from sandbox_runtime.watchdog import Watchdog

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
        self._on_death = on_death
        self._reader = FrameReader(_IDLE_FRAME_BYTES)
        self._listener: FrameListener | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._outgoing: Outgoing | None = None
        self._was_congested = False
        self._kill: Callable[[], None] | None = None
        self._watchdog = Watchdog(self.kill)

    @classmethod
    async def start(cls, launcher: Launcher, on_death: Callable[["WorkerProcess"], None]) -> "WorkerProcess":
        """Start a worker and wait until it is ready.

        Raises:
            WorkerStartError: It ended, did not become ready in 10 s, or there is no room for it.
        """
        worker = cls(on_death)
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise NoProcessError(_reason(error)) from error
        ours.setblocking(False)
        try:
            with theirs:
                worker._kill = await launcher.launch(theirs)
            await asyncio.get_running_loop().create_connection(lambda: worker, sock=ours)
            async with asyncio.timeout(_START_SECONDS):
                await worker._ready
        except TimeoutError as error:
            launcher.start_afresh()
            raise WorkerStartError("a worker did not become ready") from error
        # What thread there is none for is a RuntimeError.
        except (OSError, RuntimeError) as error:
            raise NoProcessError(_reason(error)) from error
        finally:
            if not (
                worker._ready.done() and not worker._ready.cancelled() and worker._ready.exception() is None
            ):
                worker.kill("it did not start")
                ours.close()
        return worker

    def listen(self, listener: FrameListener | None, max_frame_bytes: int = _IDLE_FRAME_BYTES) -> None:
        """Send what comes from now on to `listener`; without one, anything that comes is a breach."""
        self._listener = listener
        self._reader.max_bytes = max_frame_bytes

    def watched(self) -> AbstractContextManager[None]:
        """Kill the worker if it falls silent for seconds while this lasts."""
        return self._watchdog.on_duty()

    def send(self, kind: ToWorker, *parts: bytes) -> None:
        if self._outgoing is not None and self.is_alive:
            self._outgoing.put(kind, parts)
            self._was_congested |= self.is_congested

    @property
    def is_congested(self) -> bool:
        """Whether it does not read, and so nothing is to be begun of which it would be told."""
        outgoing = self._outgoing
        return outgoing is not None and (outgoing.is_held or outgoing.waiting_bytes > _CONGESTION_BYTES)

    def kill(self, reason: str) -> None:
        """End the process now, whatever it does. Harmless when it is dead."""
        if not self.is_alive:
            return
        self.is_alive = False
        if self._kill is not None:
            self._kill()
        if self._transport is not None:
            self._transport.abort()
        if self._outgoing is not None:
            self._outgoing.clear()
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
        self._outgoing = Outgoing(transport, self._tell_of_room)

    def connection_lost(self, exc: Exception | None) -> None:
        self.kill("its process ended")

    def pause_writing(self) -> None:
        if self._outgoing is not None:
            self._outgoing.is_held = self._was_congested = True

    def resume_writing(self) -> None:
        if self._outgoing is not None:
            self._outgoing.is_held = False
            self._outgoing.go_on()
            self._tell_of_room()

    def _tell_of_room(self) -> None:
        """Calls that were held back begin."""
        was_congested, self._was_congested = self._was_congested, self.is_congested
        if was_congested and not self._was_congested and self._listener is not None:
            self._listener.resume()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        self._watchdog.hear()
        self._take_frames()

    def _take_frames(self) -> None:
        """Pass on what has arrived; after some milliseconds everybody else has a turn first."""
        loop = asyncio.get_running_loop()
        turn_ends = loop.time() + _TURN_SECONDS
        try:
            while self.is_alive and (taken := self._reader.take()) is not None:
                self._receive(*taken)
                if loop.time() > turn_ends and self._reader.has_frame:
                    self._rest(loop)
                    return
        except FrameError as error:
            self.kill(f"it broke the channel's rules: {error}")

    def _rest(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self._transport is not None
        self._transport.pause_reading()
        loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self.is_alive and self._transport is not None:
            self._transport.resume_reading()
            self._take_frames()

    def _receive(self, kind: int, payload: bytes) -> None:
        if kind == ToPortal.ALIVE and not payload and self._ready.done():
            self._watchdog.hear_beat()  # even after a run: the clock may be late by one
        elif self._listener is not None:
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
