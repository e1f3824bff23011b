"""The granted folder in the guest: its paths, requests to the host, and open files."""

import base64
import contextlib
import errno
import functools
import io
import json
import os
import posixpath
import sqlite3
import stat
import sys
import weakref
import zlib
from typing import Any, NoReturn, TypeAlias

from sandbox_runtime.guest.calls import Calls, ToolError

MOUNT = "/workspace"
"""The path of the folder for scripts, and their working directory."""

Facts: TypeAlias = tuple[bool, int, int, str]
"""The facts of a file or folder: whether it is a folder, its bytes, its mtime in ns, its version."""

_DEVICE = 1
_MAX_NOTICES = 10
_LOOKS = frozenset({"stat", "read", "list", "create", "rename", "remove", "rmdir"})
"""Operations that depend on the content of a file or folder."""

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


class Workspace:
    """The workspace behind the patched functions of `io` and `os`. The host performs and permits the operations.

    Paths are normalised lexically, because there are no links.
    """

    def __init__(self, calls: Calls) -> None:
        self.is_writable = False
        self.file_bytes = 0
        self.file_limit = ""
        """The limit in words: its key, its value and its place."""
        self.folder = MOUNT
        """The working directory."""
        self._calls = calls
        self._last = 1000  # above all real descriptors
        self._opened: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._held: dict[int, Any] = {}
        self._texts: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    # Names.

    def locate(self, path: Any) -> str | None:
        """The path within the workspace, "" for the workspace itself; None for any other path.

        Raises:
            TypeError, ValueError: It is not a path; as Python's own functions raise it.
        """
        if isinstance(path, int) or path is None:
            return None
        name = os.fsdecode(path)
        if not name:
            return None  # Python's own function raises the error
        if "\0" in name:
            raise ValueError("embedded null byte")
        whole = posixpath.normpath("/" + posixpath.join(self.folder, name).lstrip("/"))
        if whole != MOUNT and not whole.startswith(MOUNT + "/"):
            return None
        place = whole[len(MOUNT) + 1 :]
        place.encode()  # raises for invalid UTF-8, which the host does not allow either
        return place

    def enter(self, place: str) -> None:
        """Make a folder the working directory."""
        self.folder = posixpath.join(MOUNT, place).rstrip("/")

    # Requests to the host.

    def ask(self, operation: str, shown: Any, place: str, **more: Any) -> Any:
        """Request an operation, after saving affected open files. `shown` is the path as the script wrote it.

        Raises:
            OSError: The operation failed.
        """
        if operation in _LOOKS:
            self._save(place, is_folder=operation in ("list", "rmdir"))
        return self.give(operation, shown, place, **more)

    def give(self, operation: str, shown: Any, place: str, **more: Any) -> Any:
        """Request an operation without saving open files first."""
        try:
            return self._calls.ask(f"portal.files.{operation}", json.dumps({"path": place, **more}))
        except ToolError as error:
            number = getattr(errno, error.code, None)
            if number is None:
                raise
            raise OSError(number, str(error) or os.strerror(number), shown) from None

    def facts(self, shown: Any, place: str) -> Facts:
        facts: Facts = tuple(self.ask("stat", shown, place))
        return facts

    def status(self, place: str, facts: Facts) -> os.stat_result:
        """The result of `os.stat`. Files have no owner, and all times are that of the last change."""
        is_folder, size, changed_ns, _ = facts
        mode = stat.S_IFDIR | 0o755 if is_folder else stat.S_IFREG | 0o644
        if not self.is_writable:
            mode &= ~0o222
        number = zlib.crc32(place.encode()) | 1 << 32
        seconds = changed_ns // 10**9
        fields = {f"st_{letter}time": changed_ns / 10**9 for letter in "amc"}
        fields |= {f"st_{letter}time_ns": changed_ns for letter in "amc"}
        return os.stat_result((mode, number, _DEVICE, 1, 0, 0, size, seconds, seconds, seconds), fields)

    # Open files.

    def add(self, file: Any) -> int:
        """Register an open file or database, which has a `place` and a `flush`. Returns its descriptor."""
        self._last += 1
        self._opened[self._last] = file
        return self._last

    def add_text(self, file: io.TextIOWrapper) -> None:
        """Register a text wrapper, to be flushed at the end of the run before its file."""
        self._last += 1
        self._texts[self._last] = file

    def file(self, descriptor: Any) -> Any:
        """The open file of a descriptor, or None."""
        return self._opened.get(descriptor) if isinstance(descriptor, int) else None

    def hold(self, descriptor: int) -> int:
        """Keep a file alive if the script has only its descriptor."""
        self._held[descriptor] = self._opened[descriptor]
        return descriptor

    def release(self, descriptor: int) -> Any:
        """The file of a descriptor, which the caller now owns."""
        file = self._opened[descriptor]
        self._held.pop(descriptor, None)
        return file

    def forget(self, descriptor: int) -> None:
        self._held.pop(descriptor, None)
        self._opened.pop(descriptor, None)

    def move(self, place: str, target: str | None) -> None:
        """Update open files after a rename, or a removal if `target` is None."""
        for file in self._opened.values():
            if file.place is not None and (file.place == place or file.place.startswith(place + "/")):
                file.place = None if target is None else target + file.place[len(place) :]

    def save_all(self) -> list[str]:
        """Save all open files, which a script may forget to close. Returns notices about failures."""
        notices: dict[str, None] = {}
        for _, file in [*sorted(self._texts.items()), *sorted(self._opened.items())]:
            try:
                if not file.closed:
                    file.flush()
            except Exception as error:  # noqa: BLE001  # the script has ended, so any error becomes a notice
                notices[f"{str(file.name)!r} was not closed and could not be saved: {error}"] = None
        return list(notices)[:_MAX_NOTICES]

    def _save(self, place: str, *, is_folder: bool) -> None:
        """Save open files of this path, or in this folder, before it is read.

        A failure is not the reader's error; the writer gets it at the next flush or close.
        """
        for file in [*self._opened.values()]:
            if file.place is not None and place == (
                posixpath.dirname(file.place) if is_folder else file.place
            ):
                with contextlib.suppress(OSError, ToolError, sqlite3.Error):
                    file.flush()


class WorkspaceFile(io.BytesIO):
    """An open file: read as a whole on open, written as a whole on each flush and close."""

    _is_dirty = False
    _descriptor = 0
    _changed_ns = 0
    _version = ""

    def __init__(self, workspace: Workspace, shown: Any, place: str, flags: int) -> None:
        """Open it as `os.open` does with `flags`. Raises OSError as `os.open` does."""
        access = flags & _ACCESS
        self.name = shown
        self.place: str | None = place
        """None once the file was removed; later writes are lost."""
        self._workspace = workspace
        self._is_readable = access != os.O_WRONLY
        self._is_writable = access != os.O_RDONLY
        self._is_appending = bool(flags & os.O_APPEND)
        self._base = 0
        """Bytes that stay at the host: a file that is only appended to is not read."""
        self._open(place, flags)
        self._descriptor = workspace.add(self)

    @property
    def mode(self) -> str:
        letter = "a" if self._is_appending else "r" if self._is_readable else "w"
        return f"{letter}b{'+' * (self._is_readable and self._is_writable)}"

    def size(self) -> int:
        return self._base + len(self.getbuffer())

    def status(self) -> os.stat_result:
        return self._workspace.status(self.place or "", (False, self.size(), self._changed_ns, ""))

    def readable(self) -> bool:
        return self._is_readable

    def writable(self) -> bool:
        return self._is_writable

    def write(self, data: Any, /) -> int:
        if self._is_appending:
            super().seek(0, io.SEEK_END)
        with memoryview(data) as source:
            self._grow(max(self.tell() + source.nbytes, self.size()))
        return super().write(data)

    writelines = io.IOBase.writelines  # that of `BytesIO` does not call `write`

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._limit(offset)
        return self._base + super().seek(offset - (0 if whence else self._base), whence)

    def tell(self) -> int:
        return self._base + super().tell()

    def truncate(self, size: int | None = None, /) -> int:
        size = self.tell() if size is None else size
        self._grow(size)
        missing = bytes(max(0, size - self.size()))
        super().truncate(size - self._base)
        position = super().seek(0, io.SEEK_CUR)
        super().seek(0, io.SEEK_END)
        super().write(missing)
        super().seek(position)
        return size

    def flush(self) -> None:
        """Write unsaved content to the host.

        Raises:
            OSError: It failed, for example because another program changed the file since it was opened; the next flush
            tries again.
        """
        if not self._is_dirty or self.place is None:
            return
        more = {"base64": base64.b64encode(self.getbuffer()).decode()}
        if not self._is_adding:
            more["expected"] = self._version
        operation = "append" if self._is_adding else "write"
        facts = self._workspace.give(operation, self.name, self.place, **more)
        self._changed_ns, self._version = facts[2:]
        self._is_dirty = False
        if self._is_adding:
            self._base = self.size()
            super().seek(0)
            super().truncate()

    def fileno(self) -> int:
        """The descriptor for the patched functions of `os`."""
        return self._descriptor

    def close(self) -> None:
        try:
            if not self.closed:
                self.flush()
        finally:
            super().close()
            self._workspace.forget(self._descriptor)

    @property
    def _is_adding(self) -> bool:
        """Whether it only appends; other writers may append at the same time."""
        return self._is_appending and not self._is_readable

    def _open(self, place: str, flags: int) -> None:
        workspace, name = self._workspace, self.name
        if self._is_writable and not workspace.is_writable:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), name)
        text, is_new, facts = "", False, None
        if flags & os.O_CREAT:
            is_new, facts = workspace.ask("create", name, place, must_be_new=bool(flags & os.O_EXCL))
        if not (is_new or flags & os.O_TRUNC or self._is_adding):
            text, facts = workspace.ask("read", name, place)
        facts = facts or workspace.facts(name, place)
        if facts[0]:
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        super().__init__(base64.b64decode(text))
        self._changed_ns, self._version = facts[2:]
        self._base = facts[1] if self._is_adding else 0
        # A truncated file keeps its old content until the first save.
        self._is_dirty = bool(flags & os.O_TRUNC) and not is_new
        if self._is_appending:
            super().seek(0, io.SEEK_END)
        if not self._is_readable:
            vars(self).update(dict.fromkeys(("read", "read1", "readinto", "readline", "readlines"), _refuse))

    def _grow(self, size: int) -> None:
        """Prepare for a change that gives the file this size."""
        if not self._is_writable:
            raise io.UnsupportedOperation("File not open for writing")
        self._limit(size)
        self._is_dirty = True

    def _limit(self, size: int) -> None:
        if size > self._workspace.file_bytes:
            raise OSError(errno.EFBIG, f"larger than {self._workspace.file_limit}", self.name)


def _refuse(*_: object) -> NoReturn:
    raise io.UnsupportedOperation("File not open for reading")


class Open:
    """`open`, for the workspace and other files. Not a function, which would become a method as a class attribute."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._original = io.open
        functools.update_wrapper(self, io.open)

    def install(self) -> None:
        """Replace the original in modules that are already imported."""
        for module, name in _NAMES_OF_OPEN:
            if module in sys.modules:
                setattr(sys.modules[module], name, self)

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
        workspace, number = self._workspace, file
        place = workspace.locate(file)
        if place is not None and opener is not None:
            place, number = None, opener(file, self._flags(mode))
        if place is None and workspace.file(number) is None:
            return self._original(number, mode, buffering, encoding, errors, newline, closefd)
        if place is not None:
            raw = WorkspaceFile(workspace, file, place, self._flags(mode))
        else:
            raw = workspace.release(number)
            raw.name = file
        if "b" in mode:
            return raw
        text = io.TextIOWrapper(raw, encoding, errors, newline, line_buffering=buffering == 1)
        text.mode = mode  # type: ignore[misc]  # as Python's own `open` does
        if raw.writable():
            workspace.add_text(text)
        return text

    def _flags(self, mode: str) -> int:
        kinds = [letter for letter in mode if letter in _FLAGS]
        if len(kinds) != 1 or set(mode) - {*_FLAGS, *"bt+"}:
            raise ValueError(f"invalid mode: {mode!r}")
        flags = _FLAGS[kinds[0]]
        return flags & ~os.O_WRONLY | os.O_RDWR if "+" in mode else flags
