"""The worker's side of the host functions: it counts and cuts, and passes text on without reading it."""

from collections.abc import Iterator
from typing import NoReturn

from wasmtime import WasmtimeError

from sandbox_runtime.engine import Text
from sandbox_runtime.frames import (
    COUNT,
    MAX_BLOCKS,
    MAX_LINES_BYTES,
    Channel,
    FrameError,
    RunStart,
    ToPortal,
    ToWorker,
    TrapCause,
    frame,
)
from sandbox_runtime.timeline import Randomness, RecordedPast, Timeline

_BATCH_BYTES = 1 << 20
_TELL_DROPPED_EVERY_BYTES = 1 << 18


class RunHost:
    """Serves the guest of the current run. `channel` is set before the first one."""

    channel: Channel

    def __init__(self) -> None:
        self.stopped: TrapCause | None = None
        self.dropped_bytes = 0
        self._start = RunStart()
        self._printed_bytes = self._told_bytes = 0
        self._emitted_bytes = self._blocks = 0
        self._timeline = Timeline(self.stop, self._tell_trace)
        self._randomness = Randomness(self._start.seed)
        # Called at every step of an event loop: two calls less.
        self.monotonic_ns = self._timeline.monotonic_ns
        self.wall_ns = self._timeline.wall_ns

    def begin(self, start: RunStart, past: RecordedPast | None) -> None:
        self._timeline.begin(start, past)
        self._randomness = Randomness(start.seed)
        self._start = start
        self.stopped = None
        self.dropped_bytes = self._printed_bytes = self._told_bytes = 0
        self._emitted_bytes = self._blocks = 0

    def end(self) -> None:
        """No run is going on. A new instance asks for randomness once: all get the same, and a seed with their run."""
        self._randomness = Randomness(RunStart().seed)

    def exchange(self, outbox: Text, timeout_ms: int) -> bytes:
        if outbox.size > self._start.outbox_bytes:
            raise self.stop(TrapCause.OUTBOX)
        for lines in cut_lines(outbox.read(outbox.size)):
            self.tell(ToPortal.CALLS, lines)
        repeated = self._timeline.repeated_answers()
        if repeated is not None:
            return repeated
        if not self.channel.wait(timeout_ms):
            self._timeline.note_answers(0)
            return b""
        parts: list[bytes] = []
        size = 0
        while not parts or (self.channel.has_frame and size < _BATCH_BYTES):
            kind, answers = self.channel.receive()
            if kind != ToWorker.ANSWERS:
                raise FrameError(f"frame {kind} while the guest waits for answers")
            parts.append(answers)
            size += len(answers)
        self._timeline.note_answers(len(parts))
        return b"[%b]" % b",".join(parts)

    def print(self, text: Text) -> None:
        # Once something is dropped, all that follows is: output has an end, not holes.
        left = 0 if self.dropped_bytes else self._start.stdout_bytes - self._printed_bytes
        kept = text.read(left)
        if text.size > left:
            kept = kept.decode("utf-8", "ignore").encode()
            self.dropped_bytes += text.size - len(kept)
        self._printed_bytes += len(kept)
        if kept:
            self.tell(ToPortal.OUTPUT, kept)
        if self.dropped_bytes - self._told_bytes >= _TELL_DROPPED_EVERY_BYTES:
            self._told_bytes = self.dropped_bytes
            self.channel.send(ToPortal.DROPPED, COUNT.pack(self.dropped_bytes))

    def emit(self, block: Text) -> None:
        self._emitted_bytes += block.size
        if self._emitted_bytes > self._start.result_bytes:
            raise self.stop(TrapCause.RESULT)
        self._blocks += 1
        if self._blocks <= MAX_BLOCKS + 1:
            self.tell(ToPortal.BLOCK, block.read(block.size))

    def random_bytes(self, size: int) -> bytes:
        return self._randomness.draw(size)

    def refuse_to_wait(self) -> NoReturn:
        raise self.stop(TrapCause.WAIT)

    def tell(self, kind: ToPortal, *parts: bytes) -> None:
        """Send a frame, and before it what the run learned since the last one."""
        trace = self._timeline.take_trace()
        before = frame(ToPortal.TRACE, trace) if trace else b""
        self.channel.send(kind, *parts, before=before)

    def stop(self, cause: TrapCause) -> WasmtimeError:
        """Note why the guest is about to be stopped; the caller raises what this returns."""
        self.stopped = cause
        return WasmtimeError(f"stopped: {cause.name.lower()}")

    def _tell_trace(self, trace: bytes) -> None:
        self.channel.send(ToPortal.TRACE, trace)


def cut_lines(outbox: bytes) -> Iterator[bytes]:
    """The lines in frames that keep nobody waiting for long: a longer one is a single line."""
    start = 0
    while len(outbox) - start > MAX_LINES_BYTES:
        end = outbox.rfind(b"\n", start, start + MAX_LINES_BYTES)
        if end < 0:
            end = outbox.find(b"\n", start + MAX_LINES_BYTES)
        if end < 0:
            break
        yield outbox[start:end]
        start = end + 1
    if outbox:
        yield outbox[start:]
