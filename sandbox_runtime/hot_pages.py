"""The pages of an instance's memory that runs write to, copied all at once instead of one fault at a time (Linux).

The memory of a new instance is a private mapping of the compiled component, and the first write to each page is
a fault that copies it: some 600 of them in a script with a few calls, at 2.6 us each. Which pages these are
hardly depends on the script, so they are learned once, from a script with calls, and then asked for in one go, at
half the price and before there is a script that would wait for it (`python -m benchmarks.sandbox`).
"""

import ctypes
import mmap
import sys
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import BinaryIO

from sandbox_runtime.guest_memory import GuestMemory

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
