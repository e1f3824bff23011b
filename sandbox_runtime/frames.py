"""The channel between portal and worker: frames of `<u32 length><u8 kind><payload>` on a Unix socket pair."""

import enum
import os
import select
import socket
from struct import Struct
from typing import NamedTuple

SEED_BYTES = 32

HEADER = Struct("<IB")
REPLAY_LOG_HEADER = Struct("<?I")
"""Starts a REPLAY_LOG frame: whether the run continues live after the log, and the length of the trace that follows."""
END_HEADER = Struct("<dQ")
"""Starts FINISHED and TRAPPED: CPU milliseconds, dropped output bytes."""
TRAP_HEADER = Struct("<B")
"""Follows END_HEADER in TRAPPED: a `TrapCause`."""
COUNT = Struct("<Q")

MAX_LINES_BYTES = 1 << 14
"""A longer CALLS frame has a single line: the portal reads a frame at once, which blocks its event loop."""

MAX_PREPARED_BYTES = 8 << 20
"""Limit of a PREPARED frame: as JSON the longest script may be six times as long."""

MAX_BLOCKS = 1000
"""BLOCK frames of one run that are read. One more shows that there were more; a further one is a violation."""

MAX_TO_WORKER_BYTES = 1 << 30
"""The worker refuses a longer frame. The portal never sends one, because each outcome is limited."""


class ToWorker(enum.IntEnum):
    """Frames from the portal."""

    PREPARE = 1  # RUN_START, a line of the namespaces separated by spaces, the script
    EXECUTE = 2  # settings, JSON for the guest
    ANSWERS = 3  # the elements of a JSON array for the guest
    DROP = 4  # the prepared script will not run
    REPLAY_LOG = 5  # for the next run: REPLAY_LOG_HEADER, a trace, the answers in it


class ToPortal(enum.IntEnum):
    """Frames from the worker."""

    READY = 1  # process id, then the active protections, separated by spaces
    CALLS = 2  # lines of the guest: "ID NAMESPACE.FUNCTION JSON", or "ID" to cancel
    OUTPUT = 3  # printed text
    DROPPED = 4  # COUNT: bytes of output dropped so far
    BLOCK = 5  # a content block of the guest, JSON
    PREPARED = 6  # JSON of the guest
    FINISHED = 7  # END_HEADER, then the guest's header line and value
    TRAPPED = 8  # END_HEADER, TRAP_HEADER, then the engine's message
    TRACE = 10  # the inputs that a traced run got before the next frame; see trace.py


class TrapCause(enum.IntEnum):
    """Why an instance ended without an answer, according to the worker."""

    GUEST = 0  # the guest itself: abort, bad bytecode
    CPU = 1
    MEMORY = 2
    STACK = 3
    EXIT = 4  # the guest exited with a status other than 0
    CLEAN_EXIT = 5
    RESULT = 6  # the answer is too long
    OUTBOX = 7  # a batch of calls is too long
    UNRECORDED = 8  # a replayed run read a clock, or waited for answers, where the recorded one did not
    WAIT = 10  # the guest tried to wait in the engine, where no limit can end it


class RunStart(NamedTuple):
    """The start parameters of a run. The worker enforces the limits, and the portal checks them again.

    The run's wall clock (ms since 1970) and monotonic clock start when this machine's monotonic clock shows `at_ns`.
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


RUN_START = Struct("<dQQQQ?32sQQq?")
"""Starts a PREPARE frame: the fields of `RunStart`, in their order."""


class FrameError(Exception):
    """The other side violated the protocol of the channel."""


class FrameReader:
    """Splits a stream of bytes into frames. `max_bytes` is checked before a frame is buffered."""

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
        """The kind and payload of the next frame, or None while it is incomplete. Raises FrameError: it is too long."""
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
    return b"".join((HEADER.pack(sum(map(len, parts)), kind), *parts))


_RECEIVE_BYTES = 1 << 18
_LONGEST_WAIT_MS = 86_400_000


class Channel(FrameReader):
    """Sends and receives frames. If the portal is gone, the process ends."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__(MAX_TO_WORKER_BYTES)
        self._socket = end

    def send(self, kind: int, *parts: bytes, before: bytes = b"") -> None:
        """Send a frame; `before` is a complete frame to send first, in the same write."""
        try:
            self._socket.sendall(before + frame(kind, *parts))
        except OSError:
            os._exit(0)

    def receive(self) -> tuple[int, bytes]:
        """Wait for the next frame, without a time limit."""
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
        """Whether a frame begins to arrive in time. A negative timeout means no limit."""
        if self.has_frame or timeout_ms < 0:
            return True
        seconds = min(timeout_ms, _LONGEST_WAIT_MS) / 1000
        return bool(select.select([self._socket], [], [], seconds)[0])


def inherited_socket(descriptor: str) -> socket.socket:
    """The socket that this process inherited, under the lowest free descriptor.

    The parent may have thousands of open files, and `select` accepts no descriptor above 1,023.
    """
    low = os.dup(int(descriptor))
    os.close(int(descriptor))
    return socket.socket(fileno=low)
