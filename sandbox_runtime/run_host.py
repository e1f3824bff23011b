"""The worker's side of the host functions: it counts and cuts, and passes text on without reading it."""

from dataclasses import dataclass
from typing import Protocol

from wasmtime import WasmtimeError

from sandbox_runtime.frames import COUNT, RUN_HEADER, FrameError, ToPortal, ToWorker, TrapCause

_BATCH_BYTES = 1 << 20
_TELL_DROPPED_EVERY_BYTES = 1 << 18


class Portal(Protocol):
    """The channel to the portal."""

    @property
    def has_frame(self) -> bool: ...
    def send(self, kind: int, *parts: bytes) -> None: ...
    def receive(self) -> tuple[int, bytes]: ...
    def wait(self, timeout_ms: int) -> bool: ...


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What the worker enforces for one run; the portal counts again what reaches it."""

    cpu_seconds: float
    memory_bytes: int
    stdout_bytes: int
    outbox_bytes: int
    result_bytes: int
    is_session: bool

    @classmethod
    def parse(cls, payload: bytes) -> "RunLimits":
        cpu_seconds, memory, stdout, outbox, result, is_session = RUN_HEADER.unpack_from(payload)
        return cls(cpu_seconds, memory, stdout, outbox, result, is_session)


class RunHost:
    """Serves the guest of the current run."""

    def __init__(self) -> None:
        self.stopped: TrapCause | None = None
        self.dropped_bytes = 0
        self._channel: Portal | None = None
        self._limits = RunLimits(0, 0, 0, 0, 0, False)
        self._printed_bytes = 0
        self._told_bytes = 0
        self._emitted_bytes = 0

    def connect(self, channel: Portal) -> None:
        self._channel = channel

    def begin(self, limits: RunLimits) -> None:
        self._limits = limits
        self.stopped = None
        self.dropped_bytes = self._printed_bytes = self._told_bytes = self._emitted_bytes = 0

    def exchange(self, outbox: bytes, timeout_ms: int) -> bytes:
        channel = self._connected()
        if len(outbox) > self._limits.outbox_bytes:
            raise self.stop(TrapCause.OUTBOX)
        if outbox:
            channel.send(ToPortal.CALLS, outbox)
        if not channel.wait(timeout_ms):
            return b""
        parts = [self._answers(channel)]
        size = len(parts[0])
        while channel.has_frame and size < _BATCH_BYTES:
            parts.append(self._answers(channel))
            size += len(parts[-1])
        return b"[%b]" % b",".join(parts)

    def print(self, text: bytes) -> None:
        # Once something is dropped, all that follows is: output has an end, not holes.
        left = 0 if self.dropped_bytes else self._limits.stdout_bytes - self._printed_bytes
        kept = text
        if len(text) > left:
            kept = text[:left].decode("utf-8", "ignore").encode()
            self.dropped_bytes += len(text) - len(kept)
        self._printed_bytes += len(kept)
        if kept:
            self._connected().send(ToPortal.OUTPUT, kept)
        if self.dropped_bytes - self._told_bytes >= _TELL_DROPPED_EVERY_BYTES:
            self._told_bytes = self.dropped_bytes
            self._connected().send(ToPortal.DROPPED, COUNT.pack(self.dropped_bytes))

    def emit(self, block: bytes) -> None:
        self._emitted_bytes += len(block)
        if self._emitted_bytes > self._limits.result_bytes:
            raise self.stop(TrapCause.RESULT)
        self._connected().send(ToPortal.BLOCK, block)

    def stop(self, cause: TrapCause) -> WasmtimeError:
        """Note why the guest is about to be stopped; the caller raises what this returns."""
        self.stopped = cause
        return WasmtimeError(f"stopped: {cause.name.lower()}")

    def _answers(self, channel: Portal) -> bytes:
        kind, payload = channel.receive()
        if kind != ToWorker.ANSWERS:
            raise FrameError(f"frame {kind} while the guest waits for answers")
        return payload

    def _connected(self) -> Portal:
        if self._channel is None:
            raise WasmtimeError("the guest calls out before its worker is connected")
        return self._channel
