"""The portal's end of the fork server's control socket: it never blocks, and never loses a message."""

import asyncio
import os
import socket
from collections import deque
from contextlib import suppress


class ForkControl:
    """Sends packets in order; those that do not fit into the socket's buffer wait until they do."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._unsent: deque[tuple[bytes, list[int]]] = deque()

    def start(self, number: int, descriptor: int) -> None:
        """Ask for a worker that gets a copy of the descriptor.

        Raises:
            OSError: The fork server is gone.
        """
        self._send(b"+%d" % number, [descriptor])

    def kill(self, number: int) -> None:
        # A fork server that is gone has taken its workers with it.
        with suppress(OSError):
            self._send(b"-%d" % number, [])

    def close(self) -> None:
        if self._end.fileno() != -1:
            asyncio.get_running_loop().remove_writer(self._end)
        self._end.close()
        self._forget_unsent()

    def _send(self, message: bytes, descriptors: list[int]) -> None:
        if self._unsent:
            self._keep(message, descriptors)
            return
        try:
            socket.send_fds(self._end, [message], descriptors)
        except BlockingIOError:
            self._keep(message, descriptors)
            asyncio.get_running_loop().add_writer(self._end, self._flush)

    def _keep(self, message: bytes, descriptors: list[int]) -> None:
        # The caller closes its descriptor now, so the packet needs one of its own.
        self._unsent.append((message, [os.dup(descriptor) for descriptor in descriptors]))

    def _flush(self) -> None:
        while self._unsent:
            message, descriptors = self._unsent[0]
            try:
                socket.send_fds(self._end, [message], descriptors)
            except BlockingIOError:
                return
            except OSError:
                break  # the fork server is gone
            self._unsent.popleft()
            for descriptor in descriptors:
                os.close(descriptor)
        asyncio.get_running_loop().remove_writer(self._end)
        self._forget_unsent()

    def _forget_unsent(self) -> None:
        for _, descriptors in self._unsent:
            for descriptor in descriptors:
                os.close(descriptor)
        self._unsent.clear()
