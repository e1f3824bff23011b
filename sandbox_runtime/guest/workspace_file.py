"""Files of the workspace: read as a whole when they are opened, given back when they are flushed or closed."""

import _pyio  # type: ignore[import-not-found]  # typeshed has no stub of it
import base64
import errno
import functools
import io
import operator
import os
import sys
from typing import Any

from sandbox_runtime.guest.workspace import Workspace

_ACCESS = os.O_RDONLY | os.O_WRONLY | os.O_RDWR
_FLAGS = {
    "r": os.O_RDONLY,
    "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
}
_NAMES_OF_OPEN = (
    ("builtins", "open"),
    ("io", "open"),
    ("_io", "open"),
    ("tokenize", "_builtin_open"),
    ("tarfile", "bltn_open"),
)


class WorkspaceFile(io.RawIOBase):
    """An open file. What is written is kept here until `save`, which every flush and every close calls."""

    closefd = True
    _blksize = io.DEFAULT_BUFFER_SIZE
    _isatty_open_only = io.RawIOBase.isatty

    def __init__(self, workspace: Workspace, shown: Any, place: str, flags: int) -> None:
        """Open it as `os.open` would with `flags`.

        Raises:
            OSError: As `os.open` would.
        """
        super().__init__()
        access = flags & _ACCESS
        self.name = shown
        self.place: str | None = place
        """None once it was removed: what is written then is kept nowhere."""
        self.changed_ns = 0
        """When the host's file was changed last, as far as is known here."""
        self._workspace = workspace
        self._is_readable = access != os.O_WRONLY
        self._is_writable = access != os.O_RDONLY
        self._is_appending = bool(flags & os.O_APPEND)
        self._base = 0
        """Bytes of the host's that are not kept here: what only adds to a file does not read it."""
        self._content = bytearray()
        self._is_dirty = False
        self._position = 0
        self._descriptor = 0
        self._open(place, flags)
        if self._is_appending:
            self._position = self.size()
        self._descriptor = workspace.add(self)

    @property
    def mode(self) -> str:
        letter = "a" if self._is_appending else "r" if self._is_readable else "w"
        return f"{letter}b{'+' * (self._is_readable and self._is_writable)}"

    def readable(self) -> bool:
        return self._is_readable

    def writable(self) -> bool:
        return self._is_writable

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        return self._base + len(self._content)

    def readinto(self, buffer: Any) -> int:
        self._check(self._is_readable, "reading")
        with memoryview(buffer).cast("B") as target:
            part = self._content[self._position : self._position + len(target)]
            target[: len(part)] = part
        self._position += len(part)
        return len(part)

    def write(self, data: Any) -> int:
        self._check(self._is_writable, "writing")
        with memoryview(data).cast("B") as source:
            start = self.size() if self._is_appending else self._position
            end = start + len(source)
            self._grow(max(end, self.size()))
            self._content.extend(bytes(max(0, start - self.size())))
            self._content[start - self._base : end - self._base] = source
        self._position = end
        return end - start

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._check()
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size()}.get(whence)
        offset = operator.index(offset)
        if base is None or base + offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        self._check()
        return self._position

    def truncate(self, size: int | None = None, /) -> int:
        self._check(self._is_writable, "writing")
        size = self._position if size is None else size
        if size < self._base:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._grow(size)
        del self._content[size - self._base :]
        self._content.extend(bytes(size - self.size()))
        return size

    def flush(self) -> None:
        """Give the host what it does not have yet.

        Raises:
            OSError: It does not take it; the next flush tries again.
        """
        super().flush()
        if not self._is_dirty or self.place is None:
            return
        operation = "append" if self._is_adding else "write"
        text = base64.b64encode(self._content).decode()
        facts = self._workspace.give(operation, self.name, self.place, base64=text)
        self.changed_ns = facts[2]
        self._is_dirty = False
        if self._is_adding:
            self._base += len(self._content)
            self._content.clear()

    def fileno(self) -> int:
        """A number that the patched functions of `os` know."""
        self._check()
        return self._descriptor

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._workspace.forget(self._descriptor)

    @property
    def _is_adding(self) -> bool:
        """Whether it only adds to the file; others may do so at the same time."""
        return self._is_appending and not self._is_readable

    def _open(self, place: str, flags: int) -> None:
        workspace, name = self._workspace, self.name
        if self._is_writable and not workspace.is_writable:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), name)
        is_new, facts = False, None
        if flags & os.O_CREAT:
            is_new, facts = workspace.ask("create", name, place, must_be_new=bool(flags & os.O_EXCL))
        if is_new or flags & os.O_TRUNC:
            self._is_dirty = not is_new  # what is there stays until there is something else
        elif not self._is_adding:
            text, facts = workspace.ask("read", name, place)
            self._content[:] = base64.b64decode(text)
        facts = facts or workspace.facts(name, place)
        if facts[0]:
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if self._is_adding:
            self._base = facts[1]
        self.changed_ns = facts[2]

    def _grow(self, size: int) -> None:
        """The content is about to change, and the file to have this size."""
        if size > self._workspace.file_bytes:
            raise OSError(errno.EFBIG, f"larger than {self._workspace.file_limit}", self.name)
        self._is_dirty = True

    def _check(self, is_allowed: bool = True, purpose: str = "") -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        if not is_allowed:
            raise io.UnsupportedOperation(f"File not open for {purpose}")


class SavingWriter(io.BufferedWriter):
    """A flush reaches the host."""

    def flush(self) -> None:
        super().flush()
        self.raw.flush()


class SavingRandom(io.BufferedRandom):
    """A flush reaches the host."""

    def flush(self) -> None:
        super().flush()
        self.raw.flush()


class Open:
    """`open`, for the workspace and all else. No function: one becomes a method of a class that holds it.

    What it opens in the workspace is put together by `_pyio`, the `open` that Python has in Python.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._original = io.open
        self._file_io: Any = io.FileIO
        functools.update_wrapper(self, io.open)

    def install(self) -> None:
        """Put it where modules that are there already have the original."""
        for module, name in _NAMES_OF_OPEN:
            if module in sys.modules:
                setattr(sys.modules[module], name, self)
        kinds = {name: getattr(io, name) for name in ("BufferedReader", "TextIOWrapper")}
        kinds |= {"BufferedWriter": SavingWriter, "BufferedRandom": SavingRandom, "FileIO": self._raw}
        vars(_pyio).update(kinds)
        io.FileIO = sys.modules["_io"].FileIO = _file_io_of(self)  # type: ignore[misc,attr-defined]

    def __call__(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        is_ours = self.has(file)
        function: Any = _pyio.open if is_ours else self._original
        opened = function(file, mode, buffering, encoding, errors, newline, closefd, opener)
        if is_ours and opened.writable():
            self._workspace.add_writer(opened)
        return opened

    def has(self, file: Any) -> bool:
        """Whether it is a path in the workspace, or the number of an open file of it."""
        return self._workspace.locate(file) is not None or self._workspace.file(file) is not None

    def _raw(self, file: Any, mode: str, closefd: bool, opener: Any) -> Any:
        """The file itself, or that elsewhere of which an opener came back with the number."""
        flags = _FLAGS[mode[0]]
        if "+" in mode:
            flags = flags & ~os.O_WRONLY | os.O_RDWR
        place = self._workspace.locate(file)
        if place is not None and opener is None:
            return WorkspaceFile(self._workspace, file, place, flags)
        number: int = file if place is None else opener(file, flags)
        if self._workspace.file(number) is None:
            return self._file_io(number, mode, closefd)
        raw: WorkspaceFile = self._workspace.release(number)
        raw.name = file
        return raw


def _file_io_of(opening: Open) -> Any:
    original: Any = io.FileIO

    class FileIO(original):  # type: ignore[misc]
        """Files of the workspace are of another class."""

        def __new__(
            cls, file: Any, mode: str = "r", closefd: bool = True, opener: Any = None, **more: Any
        ) -> Any:
            if not opening.has(file):
                return original.__new__(cls, file, mode, closefd, opener)
            return opening(file, mode.replace("b", "") + "b", 0, None, None, None, closefd, opener)

    return FileIO
