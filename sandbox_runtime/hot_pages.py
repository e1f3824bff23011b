"""The pages of an instance's memory that runs write to, copied all at once instead of one fault at a time (Linux).

The memory of a new instance is a private mapping of the compiled component, and the first write to each page is
a fault that copies it: some 600 of them in a script with a few calls, at 2.6 us each. Which pages these are
hardly depends on the script, so they are learned once, from a script with calls, and then asked for in one go, at
half the price and before there is a script that would wait for it (`python -m benchmarks.sandbox`).
"""

import ctypes
import mmap
import os
import sys
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import BinaryIO

_PAGE_BYTES = mmap.PAGESIZE
_ENTRY = Struct("<Q")  # of /proc/self/pagemap, one for each page
_PRESENT, _OF_FILE = 1 << 63, 1 << 61
_POPULATE_WRITE = 23  # since Linux 5.14; an older one refuses, and pages fault as ever
_MAPS_BYTES = 1 << 20


class HotPages:
    """Knows them as ranges of bytes from the start of the memory. Where they cannot be had, only time is lost."""

    def __init__(self, compiled: str) -> None:
        self._inode = str(os.stat(compiled).st_ino).encode()
        self._ranges: Sequence[tuple[int, int]] = ()
        self._start = 0
        self._maps: BinaryIO | None = None
        self._madvise = ctypes.CDLL(None).madvise
        self._madvise.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]

    def learn(self) -> None:
        """Take the pages that were written to in the one instance that is alive."""
        if sys.platform != "linux":
            return
        try:
            self.open()
            start, end = self._memory()
            with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
                self._ranges = [*_ranges(pagemap, start, end)]
        except (OSError, LookupError):
            self._ranges = ()

    def open(self) -> None:
        """Open what tells where the memory lies. Comes after a fork, and before files are given up."""
        if sys.platform == "linux":
            self._maps = open("/proc/self/maps", "rb", buffering=0)  # noqa: SIM115  # stays open

    def touch(self) -> None:
        """Have them copied in the one instance that is alive, and new."""
        if self._ranges and not self._touch():
            # The memory of this instance lies elsewhere than that of the one before.
            try:
                self._start, _ = self._memory()
            except (OSError, LookupError):
                self._ranges = ()
            if not self._touch():
                self._ranges = ()  # a kernel that does not know how

    def _touch(self) -> bool:
        madvise, start = self._madvise, self._start
        return all(madvise(start + offset, size, _POPULATE_WRITE) == 0 for offset, size in self._ranges)

    def _memory(self) -> tuple[int, int]:
        """Where the part of the memory lies that the compiled component is the image of: its largest writable mapping.

        Raises:
            LookupError: There is none.
        """
        found = [(0, 0)]
        for line in self._mappings():
            place, access, _, _, inode, *_ = line.split(maxsplit=5)
            if inode == self._inode and b"w" in access:
                start, end = (int(number, 16) for number in place.split(b"-"))
                found.append((start, end))
        start, end = max(found, key=lambda place: place[1] - place[0])
        if start == end:
            raise LookupError("no memory of an instance")
        return start, end

    def _mappings(self) -> Sequence[bytes]:
        """The lines of /proc/self/maps, which gives about a page at a time."""
        assert self._maps is not None
        text = b""
        while more := os.pread(self._maps.fileno(), _MAPS_BYTES, len(text)):
            text += more
        return text.splitlines()


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
