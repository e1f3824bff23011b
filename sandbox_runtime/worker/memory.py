"""The memory of the live instance, found in /proc/self (Linux).

It is a private mapping of the compiled component. The first write to a page copies it. After a run, `restore` gives
every page that was written the content that it has in a new instance (docs/decisions/0013).

Rule 1: the kernel reports which pages were written, never the guest.
Rule 2: if anything is not as expected, the worker makes a new instance.
"""

import ctypes
import errno
import mmap
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

_MAPS_BYTES = 1 << 20
_PAGE_BYTES = mmap.PAGESIZE
_WRITABLE = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) .w\S+ \S+ \S+ (\d+)", re.MULTILINE)
_ENTRY_BYTES = 8  # of /proc/self/pagemap, one for each page; the last byte has the flags
_PRESENT, _SWAPPED, _OF_FILE = 1 << 7, 1 << 6, 1 << 5
IS_OWN = bytes(flags & _SWAPPED != 0 or flags & (_PRESENT | _OF_FILE) == _PRESENT for flags in range(256))
"""Whether a page was written, 1 or 0 by its flags. One that was swapped out was."""

_WASM_PAGE_BYTES = 1 << 16
_DONT_NEED = 4
_POPULATE_READ, _POPULATE_WRITE = 22, 23  # since Linux 5.14; without it, pages fault one by one


class GuestMemory:
    """The instance's memory. Its hot pages, which every run writes to, are learned once and copied in advance."""

    def __init__(self, compiled: str) -> None:
        self._inode = str(os.stat(compiled).st_ino).encode()
        self._maps = self._pagemap = -1
        self._start = self._size = 0
        self._hot: Sequence[tuple[int, int]] = ()
        """Offset and size of each range of hot pages, in bytes from the start of the memory."""
        self._hot_pages = 0
        """A number with a byte of 1 for each hot page."""
        self._content: ctypes.Array[ctypes.c_char] | None = None
        """The hot pages' content in a new instance, range by range. None: memories are not restored."""
        self._madvise = ctypes.CDLL(None, use_errno=True).madvise
        self._madvise.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]

    def open(self) -> None:
        """Open the files in /proc/self: after the fork, and before the process gives up files."""
        for descriptor in (self._maps, self._pagemap):
            if descriptor >= 0:  # inherited from the parent
                os.close(descriptor)
        self._maps = self._pagemap = -1
        with suppress(OSError):  # only on Linux
            self._maps = os.open("/proc/self/maps", os.O_RDONLY | os.O_CLOEXEC)
            self._pagemap = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)

    def size_bytes(self) -> int:
        """The current size of the instance's memory; 0 if unknown."""
        start, end = self._place()
        return end - start

    def adopt(self) -> None:
        """Find the memory of a new instance, and copy its hot pages in advance."""
        self._start, end = self._place()
        self._size = end - self._start
        for offset, size in self._hot:
            if self._madvise(self._start + offset, size, _POPULATE_WRITE) != 0:
                self._content = None  # the kernel does not support it; that only costs time
                return

    def learn_hot_pages(self) -> None:
        """Learn the pages that the live instance has written."""
        own = self._own_pages()
        self._hot = [(start * _PAGE_BYTES, size * _PAGE_BYTES) for start, size in _ranges(own)]
        self._hot_pages = int.from_bytes(own, "little")

    def learn_content(self) -> None:
        """Learn the content of the hot pages in a new instance, which must not have run a script."""
        self._content = ctypes.create_string_buffer(self._hot_content()) if self._hot else None

    def check_content(self) -> None:
        """Compare a new instance with what was learned. If it differs, memories are not restored."""
        others = int.from_bytes(self._own_pages(), "little") & ~self._hot_pages
        if others or (self._content is not None and self._content.raw[:-1] != self._hot_content()):
            self._content = None

    def restore(self) -> bool:
        """Give the memory the content that it has in a new instance. Returns whether it succeeded."""
        flags = self._own_pages()
        own = int.from_bytes(flags, "little")
        if self._content is None or own & self._hot_pages != self._hot_pages:
            return False
        if self._size % _WASM_PAGE_BYTES or self._has_grown():
            return False
        source = ctypes.addressof(self._content)
        for offset, size in self._hot:
            ctypes.memmove(self._start + offset, source, size)
            source += size
        # A page that is given back has the content of the file again.
        others = (own & ~self._hot_pages).to_bytes(len(flags), "little")
        return all(
            self._madvise(self._start + start * _PAGE_BYTES, size * _PAGE_BYTES, _DONT_NEED) == 0
            for start, size in _ranges(others)
        )

    def _hot_content(self) -> bytes:
        return b"".join(ctypes.string_at(self._start + offset, size) for offset, size in self._hot)

    def _has_grown(self) -> bool:
        """Whether pages behind the former end belong to the memory. It cannot shrink."""
        if self._madvise(self._start + self._size, _PAGE_BYTES, _POPULATE_READ) == 0:
            return True
        return ctypes.get_errno() != errno.EINVAL  # the pages are not accessible

    def _own_pages(self) -> bytes:
        """A byte for each page: 1 if the instance has written it, so that it no longer belongs to the file.

        Empty if the kernel does not report it.
        """
        size, start = self._size // _PAGE_BYTES * _ENTRY_BYTES, self._start // _PAGE_BYTES * _ENTRY_BYTES
        try:
            entries = os.pread(self._pagemap, size, start)
        except OSError:
            return b""
        return entries[_ENTRY_BYTES - 1 :: _ENTRY_BYTES].translate(IS_OWN) if len(entries) == size else b""

    def _place(self) -> tuple[int, int]:
        """Start and end of the memory: the image, which is the largest writable mapping of the compiled component, and
        the writable mappings before and after it, for pages that are empty there. Reserved ranges around them are not
        writable.
        """
        mappings = self._writable()
        images = ((start, end) for start, end, inode in mappings if inode == self._inode)
        first, last = max(images, key=lambda place: place[1] - place[0], default=(0, 0))
        for start, end, _ in reversed(mappings):
            if end == first:
                first = start
        for start, end, _ in mappings:
            if start == last:
                last = end
        return first, last

    def _writable(self) -> list[tuple[int, int, bytes]]:
        """Start, end and inode of each writable mapping, by address."""
        if self._maps < 0:
            return []
        text = b""
        while more := os.pread(self._maps, _MAPS_BYTES, len(text)):  # about a page at a time
            text += more
        return [(int(start, 16), int(end, 16), inode) for start, end, inode in _WRITABLE.findall(text)]


def _ranges(own: bytes) -> Iterator[tuple[int, int]]:
    """Start and length of each range of pages."""
    start = own.find(b"\1")
    while start >= 0:
        end = own.find(b"\0", start)
        end = end if end >= 0 else len(own)
        yield start, end - start
        start = own.find(b"\1", end)
