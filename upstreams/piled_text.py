"""A long text that comes bit by bit, and is put together in steps: each megabyte of a copy takes the portal's time."""

from io import BytesIO
from typing import Final

from upstreams.steps import STEP_BYTES, Steps

_PIECES_OF_A_STEP: Final = 4
_DROPPED_IN_A_STEP: Final = 16


class PiledText:
    """What came of a text so far; it takes as much memory as that, also where it came byte by byte."""

    def __init__(self) -> None:
        self._pieces: list[bytearray] = []
        self._bytes = 0

    def __len__(self) -> int:
        return self._bytes

    def add(self, more: bytes | memoryview) -> None:
        self._bytes += len(more)
        if self._pieces and len(self._pieces[-1]) < STEP_BYTES:
            self._pieces[-1] += more
        else:
            self._pieces.append(bytearray(more))

    def start(self, count: int) -> bytes:
        """The first so many bytes of it, at most `STEP_BYTES`."""
        return b"".join(self._pieces[:1])[:count]

    def keep_end(self, count: int) -> Steps[None]:
        """Drop all but the last so many bytes, at most `STEP_BYTES`."""
        kept = b"".join(self._pieces[-2:])[-count:]
        pieces = self._emptied()
        while pieces:
            del pieces[-_DROPPED_IN_A_STEP:]
            if pieces:
                yield
        self.add(kept)

    def taken(self) -> Steps[bytes]:
        """All of it; nothing is left here."""
        size, pieces = self._bytes, self._emptied()
        if len(pieces) <= _PIECES_OF_A_STEP:
            return b"".join(pieces)
        # A buffer of that size has no memory before something is written there, and is given away without a copy.
        whole = BytesIO(bytes(size))
        for number, piece in enumerate(pieces, start=1):
            whole.write(piece)
            piece.clear()
            if number % _PIECES_OF_A_STEP == 0:
                yield
        return whole.getvalue()

    def _emptied(self) -> list[bytearray]:
        pieces, self._pieces, self._bytes = self._pieces, [], 0
        return pieces
