"""The memory of the one live instance: where it lies, how large it is, and the pages that runs write to (Linux).

It is a private mapping of the compiled component. The first write to each page is a fault that copies it: some 600 of
them in a script with a few calls, at 2.6 us each. Which pages these are hardly depends on the script. They are learned
once, and then asked for in one go: at half the price, and before a script waits (`python -m benchmarks.sandbox`).
"""

import ctypes
import mmap
import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from struct import Struct
from typing import BinaryIO

_MAPS_BYTES = 1 << 20
_PAGE_BYTES = mmap.PAGESIZE
_ENTRY = Struct("<Q")  # of /proc/self/pagemap, one for each page
_PRESENT, _OF_FILE = 1 << 63, 1 << 61
_POPULATE_WRITE = 23  # since Linux 5.14; an older one refuses, and pages fault as ever


class GuestMemory:
    """The engine does not tell it, so it is looked for in what the kernel tells of this process."""

    def __init__(self, compiled: str) -> None:
        self._inode = str(os.stat(compiled).st_ino).encode()
        self._maps: BinaryIO | None = None
        self._hot_ranges: Sequence[tuple[int, int]] = ()
        """Offset and size of each, in bytes from the start of the memory."""
        self._start = 0
        self._madvise = ctypes.CDLL(None).madvise
        self._madvise.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]

    def open(self) -> None:
        """Open what tells where the memory lies. Comes after a fork, and before files are given up."""
        with suppress(OSError):  # other systems have no such file
            self._maps = open("/proc/self/maps", "rb", buffering=0)  # noqa: SIM115  # stays open

    def size_bytes(self) -> int:
        """How much the instance has by now, from its image on; 0 where that cannot be seen.

        What it may still grow into lies behind that and is not writable, so nothing else lies side by side with it.
        """
        mappings = self._writable()
        first, last = self._image(mappings)
        for start, end, _ in mappings:
            if start == last:
                last = end
        return last - first

    def learn_hot_pages(self) -> None:
        """Take the pages that were written to in the one instance that is alive: those no longer the file's."""
        self.open()
        start, end = self._image(self._writable())
        with suppress(OSError), open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
            pagemap.seek(start // _PAGE_BYTES * _ENTRY.size)
            entries = _ENTRY.iter_unpack(pagemap.read((end - start) // _PAGE_BYTES * _ENTRY.size))
            ranges, offset = [], 0
            for is_own, pages in groupby(entries, lambda entry: entry[0] & (_PRESENT | _OF_FILE) == _PRESENT):
                size = sum(1 for _ in pages) * _PAGE_BYTES
                if is_own:
                    ranges.append((offset, size))
                offset += size
            self._hot_ranges = ranges

    def touch_hot_pages(self) -> None:
        """Have them copied in the one instance that is alive, and new. Where they cannot be, only time is lost."""
        if not self._touch():
            # The memory of this instance lies elsewhere than that of the one before.
            self._start, _ = self._image(self._writable())
            if not self._touch():
                self._hot_ranges = ()  # a kernel that does not know how

    def _touch(self) -> bool:
        madvise, start = self._madvise, self._start
        return all(madvise(start + offset, size, _POPULATE_WRITE) == 0 for offset, size in self._hot_ranges)

    def _writable(self) -> list[tuple[int, int, bytes]]:
        """Where each writable mapping starts and ends, and the inode of its file; by address."""
        if self._maps is None:
            return []
        text = b""
        while more := os.pread(self._maps.fileno(), _MAPS_BYTES, len(text)):  # about a page at a time
            text += more
        found = []
        for line in text.splitlines():
            place, access, _, _, inode, *_ = line.split(maxsplit=5)
            if b"w" in access:
                start, _, end = place.partition(b"-")
                found.append((int(start, 16), int(end, 16), inode))
        return found

    def _image(self, mappings: Sequence[tuple[int, int, bytes]]) -> tuple[int, int]:
        """Where the part lies that the compiled component is the image of: its largest writable mapping."""
        images = ((start, end) for start, end, inode in mappings if inode == self._inode)
        return max(images, key=lambda place: place[1] - place[0], default=(0, 0))
