"""The channel between portal and worker: frames of `<u32 length><u8 kind><payload>` on a Unix socket pair."""

import enum
import os
import select
import socket
from struct import Struct
from typing import NamedTuple

SEED_BYTES = 32

HEADER = Struct("<IB")
RUN_START = Struct("<dQQQQ?32sQQq?")
"""Starts a PREPARE frame: a `RunStart`."""
REPLAY_LOG_HEADER = Struct("<?I")
"""Starts a PAST frame: whether the run goes on live where its past ends, and the length of the trace that follows."""
END_HEADER = Struct("<dQ")
"""Starts FINISHED and TRAPPED: CPU milliseconds, bytes of output that were dropped."""
TRAP_HEADER = Struct("<B")
"""Follows END_HEADER in TRAPPED: a `TrapCause`."""
COUNT = Struct("<Q")

MAX_LINES_BYTES = 1 << 14
"""A CALLS frame with more bytes holds a single line: the portal reads a frame in one go, and others wait for it."""

MAX_PREPARED_BYTES = 8 << 20
"""Of a PREPARED frame: JSON of the longest script may be six times as long."""

MAX_BLOCKS = 1000
"""BLOCK frames of one run that are looked at. One more tells that there were more; a further one breaks the rules."""

MAX_TO_WORKER_BYTES = 1 << 30
"""The worker refuses a longer frame; the portal never makes one, since outcomes are limited one by one."""


class ToWorker(enum.IntEnum):
    """What the portal asks."""

    PREPARE = 1  # RUN_START, u64 length of the namespaces, these separated by spaces, script
    EXECUTE = 2  # settings, JSON for the guest
    ANSWERS = 3  # the elements of a JSON array for the guest
    RENEW = 4  # drop the instance, and have a new one
    REPLAY_LOG = (
        5  # what the run that is prepared next learned before: REPLAY_LOG_HEADER, a trace, the answers in it
    )


class ToPortal(enum.IntEnum):
    """What the worker tells."""

    READY = 1  # process id, then the protections in force, separated by spaces
    CALLS = 2  # lines of the guest: "ID NAMESPACE.FUNCTION JSON", or "ID" to cancel
    OUTPUT = 3  # text that the script printed
    DROPPED = 4  # COUNT: bytes of output dropped so far
    BLOCK = 5  # a content block of the guest, JSON
    PREPARED = 6  # JSON of the guest
    FINISHED = 7  # END_HEADER, then the guest's header line and value
    TRAPPED = 8  # END_HEADER, TRAP_HEADER, then the engine's message
    TRACE = 10  # what a traced run learned before the next of the others, see trace.py


class TrapCause(enum.IntEnum):
    """Why the worker says that an instance ended without an answer."""

    GUEST = 0  # the guest itself: abort, bad bytecode
    CPU = 1
    MEMORY = 2
    STACK = 3
    EXIT = 4  # the guest ended its process with a status other than 0
    CLEAN_EXIT = 5
    RESULT = 6  # the answer is longer than it may be
    OUTBOX = 7  # a batch of calls is longer than it may be
    UNRECORDED = 8  # a repeated run looked at a clock, or waited for answers, where the recorded one did not
    WAIT = 10  # the guest was about to wait in the engine, where no limit could end it


class RunStart(NamedTuple):
    """What a run begins with. The portal counts again what the worker limits.

    The wall clock (ms since 1970) and the monotonic clock of the run begin when this machine's monotonic clock shows
    `at_ns`.
    """

    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    stdout_bytes: int = 0
    outbox_bytes: int = 0
    result_bytes: int = 0
    is_session: bool = False
    seed: bytes = bytes(SEED_BYTES)
    wall_ms: int = 0
    monotonic_ms: int = 0
    at_ns: int = 0
    is_traced: bool = False


class FrameError(Exception):
    """The other side broke the rules of the channel."""


class FrameReader:
    """Cuts a stream of bytes into frames. `max_bytes` is checked before anything of that size is kept."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._buffer = bytearray()

    @property
    def has_frame(self) -> bool:
        """Whether a whole frame is waiting."""
        buffer = self._buffer
        return len(buffer) >= HEADER.size and len(buffer) >= HEADER.size + HEADER.unpack_from(buffer)[0]

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def take(self) -> tuple[int, bytes] | None:
        """The next frame, kind and payload, or None while it is not whole. Raises FrameError: it is too long."""
        buffer = self._buffer
        if len(buffer) < HEADER.size:
            return None
        length, kind = HEADER.unpack_from(buffer)
        if length > self.max_bytes:
            raise FrameError(f"a frame of {length} bytes, where {self.max_bytes} are allowed")
        end = HEADER.size + length
        if len(buffer) < end:
            return None
        with memoryview(buffer) as view:
            payload = bytes(view[HEADER.size : end])
        del buffer[:end]
        return kind, payload


def frame(kind: int, *parts: bytes) -> bytes:
    """One frame, as bytes."""
    return b"".join((HEADER.pack(sum(map(len, parts)), kind), *parts))


_RECEIVE_BYTES = 1 << 18
_LONGEST_WAIT_MS = 86_400_000


class Channel(FrameReader):
    """Sends and receives frames. A portal that is gone, or breaks the rules, ends the process."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__(MAX_TO_WORKER_BYTES)
        self._socket = end

    def send(self, kind: int, *parts: bytes, before: bytes = b"") -> None:
        """Send a frame; `before` is a whole one that goes out in the same moment."""
        try:
            self._socket.sendall(before + frame(kind, *parts))
        except OSError:
            os._exit(0)

    def receive(self) -> tuple[int, bytes]:
        """The next frame; waits without end."""
        while True:
            if (taken := self.take()) is not None:
                return taken
            try:
                data = self._socket.recv(_RECEIVE_BYTES)
            except OSError:
                data = b""
            if not data:
                os._exit(0)
            self.feed(data)

    def wait(self, timeout_ms: int) -> bool:
        """Whether a frame begins to arrive in time. A negative timeout is no limit."""
        if self.has_frame or timeout_ms < 0:
            return True
        seconds = min(timeout_ms, _LONGEST_WAIT_MS) / 1000
        return bool(select.select([self._socket], [], [], seconds)[0])


def inherited_socket(descriptor: str) -> socket.socket:
    """The socket that a process was started with, under the lowest number there is here: the starting process may have
    thousands of files open, and `select` takes none above 1,023.
    """
    low = os.dup(int(descriptor))
    os.close(int(descriptor))
    return socket.socket(fileno=low)
