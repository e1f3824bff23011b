"""The worker's end of the channel: blocking, used by the one thread that also runs the guest."""

import os
import select
import socket

from sandbox_runtime.frames import HEADER, MAX_TO_WORKER_BYTES, FrameReader

_RECEIVE_BYTES = 1 << 18
_COPY_BELOW_BYTES = 1 << 16
_LONGEST_WAIT_MS = 86_400_000


class Channel:
    """Sends and receives frames. A portal that is gone, or breaks the rules, ends the process."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._reader = FrameReader(MAX_TO_WORKER_BYTES)

    @property
    def has_frame(self) -> bool:
        return self._reader.has_frame

    def send(self, kind: int, *parts: bytes) -> None:
        length = sum(map(len, parts))
        header = HEADER.pack(length, kind)
        try:
            if length < _COPY_BELOW_BYTES:
                self._socket.sendall(b"".join((header, *parts)))
            else:
                for part in (header, *parts):
                    self._socket.sendall(part)
        except OSError:
            os._exit(0)

    def receive(self) -> tuple[int, bytes]:
        """The next frame; waits without end."""
        while True:
            frame = self._reader.take()
            if frame is not None:
                return frame
            try:
                data = self._socket.recv(_RECEIVE_BYTES)
            except OSError:
                data = b""
            if not data:
                os._exit(0)
            self._reader.feed(data)

    def wait(self, timeout_ms: int) -> bool:
        """Whether a frame begins to arrive in time. A negative timeout is no limit."""
        if self.has_frame or timeout_ms < 0:
            return True
        seconds = min(timeout_ms, _LONGEST_WAIT_MS) / 1000
        return bool(select.select([self._socket], [], [], seconds)[0])
