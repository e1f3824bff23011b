"""Where in this process the memory of the one live instance lies, and how large it is (Linux)."""

import os
import sys
from collections.abc import Sequence
from typing import BinaryIO, Final, TypeAlias

_MAPS_BYTES: Final = 1 << 20

_Mapping: TypeAlias = tuple[int, int, bytes]
"""Where it starts and ends, and the inode of its file."""


class GuestMemory:
    """The engine does not tell it, so it is looked for in what the kernel tells of this process."""

    def __init__(self, compiled: str) -> None:
        self._inode = str(os.stat(compiled).st_ino).encode()
        self._maps: BinaryIO | None = None

    def open(self) -> None:
        """Open what tells where the memory lies. Comes after a fork, and before files are given up."""
        if sys.platform == "linux":
            self._maps = open("/proc/self/maps", "rb", buffering=0)  # noqa: SIM115  # stays open

    def image(self) -> tuple[int, int]:
        """Where the part lies that the compiled component is the image of: its largest writable mapping.

        Raises:
            OSError, LookupError: It cannot be seen, or there is none.
        """
        return self._image(self._writable())

    def size_bytes(self) -> int:
        """How much the instance has by now, from its image on; 0 where that cannot be seen.

        What it may still grow into lies behind that and is not writable, so nothing else lies side by side with it.
        """
        if self._maps is None:
            return 0
        try:
            writable = self._writable()
            first, last = self._image(writable)
        except (OSError, LookupError):
            return 0
        for start, end, _ in writable:
            if start == last:
                last = end
        return last - first

    def _image(self, writable: Sequence[_Mapping]) -> tuple[int, int]:
        found = [(start, end) for start, end, inode in writable if inode == self._inode]
        if not found:
            raise LookupError("no memory of an instance")
        return max(found, key=lambda place: place[1] - place[0])

    def _writable(self) -> list[_Mapping]:
        """By address."""
        found = []
        for line in self._mappings():
            place, access, _, _, inode, *_ = line.split(maxsplit=5)
            if b"w" in access:
                start, _, end = place.partition(b"-")
                found.append((int(start, 16), int(end, 16), inode))
        return found

    def _mappings(self) -> list[bytes]:
        """The lines of /proc/self/maps, which gives about a page at a time."""
        assert self._maps is not None
        text = b""
        while more := os.pread(self._maps.fileno(), _MAPS_BYTES, len(text)):
            text += more
        return text.splitlines()
