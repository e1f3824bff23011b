"""The worker's side of a run: host functions, which count, cut and pass text on without parsing it, and the run's
inputs: time, answers and randomness.

A live run gets real inputs; a replayed run gets those of a record, without waiting. All inputs go into the run's
trace (trace.py), from which the record is made.
"""

import ctypes
import hashlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from wasmtime import WasmtimeError

from sandbox_runtime import frames
from sandbox_runtime.trace import ANSWERED, LATER, MAX_TRACE_TOKENS, READS, REPLAYED, RESUMED, tokens

_NS_PER_MS = 1_000_000


class Text:
    """A string of the guest, copied only by `read`, so that its size can be checked first. Valid during the call."""

    __slots__ = ("_vector", "size")

    def __init__(self, value: Any) -> None:
        self._vector = value.of.string
        self.size: int = self._vector.size

    def read(self, most: int) -> bytes:
        """Its first `most` bytes, UTF-8."""
        size = min(self.size, most)
        return ctypes.string_at(self._vector.data, size) if size else b""


class ReplayLog:
    """The recorded inputs for a replayed run. `goes_on` says whether the run becomes live after them.

    `segments` counts how often the recorded run began or went on, each time with new CPU time.
    """

    def __init__(self, payload: bytes) -> None:
        self.goes_on, length = frames.REPLAY_LOG_HEADER.unpack_from(payload)
        start = frames.REPLAY_LOG_HEADER.size
        trace = payload[start : start + length]
        self.segments = 1 + trace.count(RESUMED.encode())
        self.tokens: Iterator[tuple[str, int]] = tokens(trace)
        self._payload = payload
        self._at = start + length

    def answers(self, length: int) -> bytes:
        start, self._at = self._at, self._at + length
        return self._payload[start : self._at]


class Timeline:
    """The clocks of a run. A read advances them to the real time, at most once per millisecond.

    So a record needs one entry per new value, and a script that waits for a clock still sees it advance. Each new value
    is a whole millisecond plus one nanosecond more than the last. Then a script that slept for 20 ms sees at least
    0.02 s pass, although binary fractions cannot represent 0.02 exactly.
    """

    def __init__(self, stop: Callable[[frames.TrapCause], Exception], send: Callable[[bytes], None]) -> None:
        """`stop` creates the error that ends a diverging replay; `send` sends a part of the trace early."""
        self._stop = stop
        self._send = send
        self._trace: list[str] = []
        self.begin(frames.RunStart(), None)

    def begin(
        self, start: frames.RunStart, replay_log: ReplayLog | None, on_live: Callable[[], None] = lambda: None
    ) -> None:
        """`on_live` is called when a replayed run becomes live."""
        self._replay_log, self._on_live = replay_log, on_live
        self._is_traced = start.is_traced
        self._now_ms = start.monotonic_ms
        self._moves = 0
        self._zero_ns = start.at_ns - start.monotonic_ms * _NS_PER_MS
        self._wall_offset_ms = start.wall_ms - start.monotonic_ms
        self._trace.clear()
        self._reads = self._reads_left = 0

    def monotonic_ns(self) -> int:
        later_ms = self._replayed_read() if self._replay_log is not None else None
        if later_ms is None:
            later_ms = (time.monotonic_ns() - self._zero_ns) // _NS_PER_MS - self._now_ms
        if later_ms > 0:
            self._now_ms += later_ms
            self._moves = min(self._moves + 1, _NS_PER_MS - 1)
            self._note(LATER, later_ms)
        else:
            self._reads += 1
        return self._now_ms * _NS_PER_MS + self._moves

    def wall_ns(self) -> int:
        return self.monotonic_ns() + self._wall_offset_ms * _NS_PER_MS

    def replayed_answers(self) -> bytes | None:
        """The recorded result of an exchange; None in a live run."""
        replay_log = self._replay_log
        if replay_log is None or (token := self._next_of(replay_log, REPLAYED)) is None:
            return None
        self.note_answers(1 if token[1] else 0)
        return replay_log.answers(token[1])

    def note_answers(self, count: int) -> None:
        self._note(ANSWERED, count)

    def take_trace(self) -> bytes:
        """The unsent part of the trace. It must be sent before any other frame of the run."""
        if not self._is_traced or not (self._trace or self._reads):
            return b""
        self._settle_reads()
        trace = " ".join(self._trace).encode()
        self._trace.clear()
        return trace

    def _replayed_read(self) -> int | None:
        assert self._replay_log is not None
        if self._reads_left:
            self._reads_left -= 1
            return 0
        token = self._next_of(self._replay_log, READS, LATER)
        if token is None or token[0] == LATER:
            return token and token[1]
        self._reads_left = token[1] - 1
        return 0

    def _next_of(self, replay_log: ReplayLog, *expected: str) -> tuple[str, int] | None:
        """The next recorded input; None where the log ends and the run becomes live."""
        for sign, number in replay_log.tokens if not self._reads_left else ():
            if sign in expected:
                return sign, number
            if sign != RESUMED:
                raise self._stop(frames.TrapCause.UNRECORDED)
            self._set_wall(number)
        if self._reads_left or not replay_log.goes_on:
            raise self._stop(frames.TrapCause.UNRECORDED)
        self._replay_log = None
        self._on_live()
        self._zero_ns = time.monotonic_ns() - self._now_ms * _NS_PER_MS
        self._set_wall(time.time_ns() // _NS_PER_MS)
        self._send(self.take_trace())
        return None

    def _set_wall(self, wall_ms: int) -> None:
        self._wall_offset_ms = wall_ms - self._now_ms
        self._note(RESUMED, wall_ms)

    def _note(self, sign: str, number: int) -> None:
        if not self._is_traced:
            return
        self._settle_reads()
        self._trace.append(f"{sign}{number}")
        if len(self._trace) >= MAX_TRACE_TOKENS:
            self._send(self.take_trace())

    def _settle_reads(self) -> None:
        if self._reads:
            self._trace.append(f"{READS}{self._reads}")
            self._reads = 0


class Randomness:
    """SHAKE-256 of the seed and a counter: unpredictable without the seed."""

    def __init__(self, seed: bytes) -> None:
        self._state = hashlib.shake_256(seed)
        self._draws = 0

    def draw(self, size: int) -> bytes:
        self._draws += 1
        stream = self._state.copy()
        stream.update(self._draws.to_bytes(8, "little"))
        return stream.digest(size)


_BATCH_BYTES = 1 << 20
_REPORT_DROPPED_EVERY_BYTES = 1 << 18


class RunHost:
    """The host functions for the guest of the current run. Set `channel` before the first run."""

    channel: frames.Channel

    def __init__(self) -> None:
        self._timeline = Timeline(self.stop, lambda trace: self.channel.send(frames.ToPortal.TRACE, trace))
        # Bound directly, because they are called at every step of an event loop.
        self.monotonic_ns = self._timeline.monotonic_ns
        self.wall_ns = self._timeline.wall_ns
        self.begin(frames.RunStart(), None)

    def begin(
        self, start: frames.RunStart, replay_log: ReplayLog | None, on_live: Callable[[], None] = lambda: None
    ) -> None:
        self._timeline.begin(start, replay_log, on_live)
        self._randomness = Randomness(start.seed)
        self._start = start
        self.stopped: frames.TrapCause | None = None
        self.dropped_bytes = self._printed_bytes = self._reported_bytes = 0
        self._emitted_bytes = self._blocks = 0

    def exchange(self, outbox: Text, timeout_ms: int) -> bytes:
        if outbox.size > self._start.outbox_bytes:
            raise self.stop(frames.TrapCause.OUTBOX)
        for lines in split_lines(outbox.read(outbox.size)):
            self.send(frames.ToPortal.CALLS, lines)
        repeated = self._timeline.replayed_answers()
        if repeated is not None:
            return repeated
        if not self.channel.wait(timeout_ms):
            self._timeline.note_answers(0)
            return b""
        parts: list[bytes] = []
        size = 0
        while not parts or (self.channel.has_frame and size < _BATCH_BYTES):
            kind, answers = self.channel.receive()
            if kind != frames.ToWorker.ANSWERS:
                raise frames.FrameError(f"frame {kind} while the guest waits for answers")
            parts.append(answers)
            size += len(answers)
        self._timeline.note_answers(len(parts))
        return b"[%b]" % b",".join(parts)

    def print(self, text: Text) -> None:
        # After the first drop everything is dropped, so that the output has no gaps.
        left = 0 if self.dropped_bytes else self._start.stdout_bytes - self._printed_bytes
        kept = text.read(left)
        if text.size > left:
            kept = kept.decode("utf-8", "ignore").encode()
            self.dropped_bytes += text.size - len(kept)
        self._printed_bytes += len(kept)
        if kept:
            self.send(frames.ToPortal.OUTPUT, kept)
        if self.dropped_bytes - self._reported_bytes >= _REPORT_DROPPED_EVERY_BYTES:
            self._reported_bytes = self.dropped_bytes
            self.channel.send(frames.ToPortal.DROPPED, frames.COUNT.pack(self.dropped_bytes))

    def emit(self, block: Text) -> None:
        self._emitted_bytes += block.size
        if self._emitted_bytes > self._start.result_bytes:
            raise self.stop(frames.TrapCause.RESULT)
        self._blocks += 1
        if self._blocks <= frames.MAX_BLOCKS + 1:
            self.send(frames.ToPortal.BLOCK, block.read(block.size))

    def random_bytes(self, size: int) -> bytes:
        return self._randomness.draw(size)

    def refuse_to_wait(self) -> NoReturn:
        raise self.stop(frames.TrapCause.WAIT)

    def send(self, kind: frames.ToPortal, *parts: bytes) -> None:
        """Send a frame, preceded by the trace since the last one."""
        trace = self._timeline.take_trace()
        before = frames.frame(frames.ToPortal.TRACE, trace) if trace else b""
        self.channel.send(kind, *parts, before=before)

    def stop(self, cause: frames.TrapCause) -> WasmtimeError:
        """Record why the guest is stopped. The caller raises the returned error."""
        self.stopped = cause
        return WasmtimeError(f"stopped: {cause.name.lower()}")


def split_lines(outbox: bytes) -> Iterator[bytes]:
    """Split lines into chunks of at most MAX_LINES_BYTES. A longer chunk is a single line."""
    start = 0
    while len(outbox) - start > frames.MAX_LINES_BYTES:
        end = outbox.rfind(b"\n", start, start + frames.MAX_LINES_BYTES)
        if end < 0:
            end = outbox.find(b"\n", start + frames.MAX_LINES_BYTES)
        if end < 0:
            break
        yield outbox[start:end]
        start = end + 1
    if outbox:
        yield outbox[start:]
