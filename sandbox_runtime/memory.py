"""The memory of the one live instance: where it lies, how large it is, and the pages that runs write to (Linux).

It is a private mapping of the compiled component. The first write to each page is a fault that copies it: some 600 of
them in a script with a few calls, at 2.6 us each. Which pages these are hardly depends on the script. They are learned
once, and then asked for in one go: at half the price, and before a script waits (`python -m benchmarks.sandbox`).
"""

import ctypes
import mmap
import os
import sys
from collections.abc import Iterator, Sequence
from struct import Struct
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


_PAGE_BYTES = mmap.PAGESIZE
_ENTRY = Struct("<Q")  # of /proc/self/pagemap, one for each page
_PRESENT, _OF_FILE = 1 << 63, 1 << 61
_POPULATE_WRITE = 23  # since Linux 5.14; an older one refuses, and pages fault as ever


class HotPages:
    """Knows them as ranges of bytes from the start of the memory. Where they cannot be had, only time is lost."""

    def __init__(self, memory: GuestMemory) -> None:
        self._memory = memory
        self._ranges: Sequence[tuple[int, int]] = ()
        self._start = 0
        self._madvise = ctypes.CDLL(None).madvise
        self._madvise.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]

    def learn(self) -> None:
        """Take the pages that were written to in the one instance that is alive."""
        if sys.platform != "linux":
            return
        try:
            self._memory.open()
            start, end = self._memory.image()
            with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
                self._ranges = [*_ranges(pagemap, start, end)]
        except (OSError, LookupError):
            self._ranges = ()

    def touch(self) -> None:
        """Have them copied in the one instance that is alive, and new."""
        if self._ranges and not self._touch():
            # The memory of this instance lies elsewhere than that of the one before.
            try:
                self._start, _ = self._memory.image()
            except (OSError, LookupError):
                self._ranges = ()
            if not self._touch():
                self._ranges = ()  # a kernel that does not know how

    def _touch(self) -> bool:
        madvise, start = self._madvise, self._start
        return all(madvise(start + offset, size, _POPULATE_WRITE) == 0 for offset, size in self._ranges)


def _ranges(pagemap: BinaryIO, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The pages that are no longer the file's, side by side ones as one range."""
    count = (end - start) // _PAGE_BYTES
    pagemap.seek(start // _PAGE_BYTES * _ENTRY.size)
    entries = [entry for (entry,) in _ENTRY.iter_unpack(pagemap.read(count * _ENTRY.size))]
    is_own = [entry & _PRESENT and not entry & _OF_FILE for entry in entries]
    first = None
    for page, own in enumerate([*is_own, False]):
        if own and first is None:
            first = page
        elif not own and first is not None:
            yield first * _PAGE_BYTES, (page - first) * _PAGE_BYTES
            first = None
