"""The worker's end of the channel: blocking, used by the one thread that also runs the guest; another one beats."""

import os
import select
import socket
import threading

from sandbox_runtime.frames import HEADER, MAX_TO_WORKER_BYTES, FrameReader, ToPortal, frame

_RECEIVE_BYTES = 1 << 18
_COPY_BELOW_BYTES = 1 << 16
_LONGEST_WAIT_MS = 86_400_000
_BEAT = frame(ToPortal.ALIVE)


class Channel:
    """Sends and receives frames. A portal that is gone, or breaks the rules, ends the process."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._reader = FrameReader(MAX_TO_WORKER_BYTES)
        self._sending = threading.Lock()

    @property
    def has_frame(self) -> bool:
        return self._reader.has_frame

    def send(self, kind: int, *parts: bytes, before: bytes = b"") -> None:
        """Send a frame; `before` is a whole one that goes out in the same moment."""
        length = sum(map(len, parts))
        header = HEADER.pack(length, kind)
        try:
            with self._sending:
                if length < _COPY_BELOW_BYTES:
                    self._socket.sendall(b"".join((before, header, *parts)))
                else:
                    for part in (before + header, *parts):
                        self._socket.sendall(part)
        except OSError:
            os._exit(0)

    def beat(self) -> None:
        """Tell that this process lives; from any thread, and never waiting.

        A frame that is on its way says as much. A portal that is gone ends the process here even while its guest
        spins.
        """
        if not self._sending.acquire(blocking=False):
            return
        try:
            self._socket.send(_BEAT, socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
        except OSError:
            os._exit(0)
        finally:
            self._sending.release()

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
