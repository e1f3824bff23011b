"""The guest's texts in the engine's memory."""

import ctypes
from typing import Any


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
