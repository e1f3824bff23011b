"""What is to be sent to a worker, in pieces: nobody waits while many MiB are copied in one go."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from sandbox_runtime.frames import HEADER

_PIECE_BYTES = 1 << 18


class Outgoing:
    """Frames, in their order. A large one goes to the transport piece by piece, one at each turn of the event loop."""

    def __init__(self, transport: asyncio.Transport, on_given: Callable[[], None]) -> None:
        """`on_given` is called when the transport has got more of what waited."""
        self._transport = transport
        self._on_given = on_given
        self._pieces: deque[memoryview] = deque()
        self._is_pumping = False
        self.waiting_bytes = 0
        """Of frames that the transport was not given yet."""
        self.is_held = False
        """Nothing is to be given to the transport now."""

    def put(self, kind: int, parts: Sequence[bytes]) -> None:
        """Send a frame, whose payload is the parts one after the other."""
        size = sum(map(len, parts))
        header = HEADER.pack(size, kind)
        if not self._pieces and size <= _PIECE_BYTES:
            self._transport.write(b"".join((header, *parts)))
            return
        for part in (header, *parts):
            whole = memoryview(part)
            for start in range(0, len(part), _PIECE_BYTES):
                self._put_piece(whole[start : start + _PIECE_BYTES])
        self.go_on()

    def go_on(self) -> None:
        if not self._is_pumping and self._pieces and not self.is_held:
            self._is_pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def clear(self) -> None:
        self._pieces.clear()
        self.waiting_bytes = 0

    def _put_piece(self, piece: memoryview) -> None:
        self._pieces.append(piece)
        self.waiting_bytes += len(piece)

    def _pump(self) -> None:
        """Give the transport a piece, or as many small ones as make one: each write may be a call of the system."""
        self._is_pumping = False
        if self._pieces and not self.is_held:
            pieces = [self._pieces.popleft()]
            given = len(pieces[0])
            while self._pieces and given + len(self._pieces[0]) <= _PIECE_BYTES:
                pieces.append(self._pieces.popleft())
                given += len(pieces[-1])
            self.waiting_bytes -= given
            self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        self._on_given()
        self.go_on()
