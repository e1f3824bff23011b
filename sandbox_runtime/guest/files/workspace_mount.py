"""Mounts the workspace if the run is granted files. Without a grant Python is not patched."""

import errno
import functools
import importlib
import io
import os
import posixpath
import sqlite3
import stat
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

from sandbox_runtime.guest.calls import Calls, ToolError
from sandbox_runtime.guest.files import databases
from sandbox_runtime.guest.files.workspace import MOUNT, Open, Workspace, WorkspaceFile

_MAX_NOTICES = 10


class WorkspaceMount:
    """The workspace of an instance. Its first run with granted files mounts it permanently."""

    def __init__(self, calls: Calls) -> None:
        self._is_mounted = False
        self._workspace = Workspace(calls)
        self._unsaved: list[str] = []

    def mount(self, settings: dict[str, Any]) -> None:
        workspace = self._workspace
        vars(workspace).update(settings)  # is_writable, file_bytes, file_limit
        if self._is_mounted:
            return
        self._is_mounted = True
        opening = Open(workspace)
        opening.install()
        _Functions(workspace).install()
        # tempfile stored the original in a default when it was imported.
        tempfile._TemporaryFileCloser.cleanup.__defaults__ = (False, os.unlink)  # type: ignore[attr-defined]
        databases.install(workspace)
        _install_imports(opening)
        sys.unraisablehook = self._noting(sys.unraisablehook)
        if workspace.is_writable:
            tempfile.tempdir = MOUNT
            os.environ.setdefault("TMPDIR", MOUNT)

    def save(self) -> list[str]:
        """Save open files. Returns notices about failures."""
        unsaved, self._unsaved = self._unsaved, []
        return [*unsaved[:_MAX_NOTICES], *self._workspace.save_all()] if self._is_mounted else []

    def _noting(self, original: Any) -> Any:
        """Report failed saves of dropped files: `open("f", "w").write(text)` saves where no error can be raised."""

        def hook(unraisable: Any) -> None:
            error = unraisable.exc_value
            if isinstance(error, (OSError, ToolError, sqlite3.Error)):
                self._unsaved.append(f"a file that was not closed could not be saved: {error}")
            else:
                original(unraisable)

        return hook


def _install_imports(opening: Open) -> None:
    """Let Python's import machinery use the patched `os` and `open` instead of its own copies.

    The workspace is not on `sys.path`: in a shared workspace a missing package must not run another user's file.
    """
    sys.modules["_frozen_importlib_external"]._os = os  # type: ignore[attr-defined]

    def open_code(path: str) -> Any:
        return opening(path, "rb")

    io.open_code = sys.modules["_io"].open_code = open_code  # type: ignore[attr-defined]
    sys.dont_write_bytecode = True  # it would cost operations and not help the next run
    importlib.invalidate_caches()


class _Functions:
    """Functions of `os` for paths and descriptors in the workspace.

    Methods have the names of the functions that they replace, and an extra parameter `place` after the path.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def install(self) -> None:
        """Replace the originals, which still serve other paths and descriptors."""
        for name in _BY_PATH:
            setattr(os, name, self._by_path(getattr(os, name), getattr(self, name)))
        for name, method in _BY_DESCRIPTOR.items():
            setattr(os, name, self._by_descriptor(getattr(os, name), method))
        os.getcwd = lambda: self._workspace.folder

    def stat(self, path: Any, place: str, *, follow_symlinks: bool = True) -> os.stat_result:
        return self._workspace.status(place, self._workspace.facts(path, place))

    def lstat(self, path: Any, place: str) -> os.stat_result:
        return self.stat(path, place)

    def access(self, path: Any, place: str, mode: int, **_: Any) -> bool:
        try:
            facts = self._workspace.facts(path, place)
        except OSError:
            return False
        return not ((mode & os.W_OK and not self._workspace.is_writable) or (mode & os.X_OK and not facts[0]))

    def listdir(self, path: Any, place: str) -> list[Any]:
        return [name for name, _ in self._workspace.ask("list", path, place)]

    def scandir(self, path: Any, place: str) -> "_Scan":
        workspace, folder = self._workspace, os.fsdecode(path)
        return _Scan(
            [
                _Entry(name, os.path.join(folder, name), workspace.status(posixpath.join(place, name), facts))
                for name, facts in workspace.ask("list", path, place)
            ]
        )

    def mkdir(self, path: Any, place: str, mode: int = 0o777) -> None:
        self._workspace.ask("mkdir", path, place)

    def rmdir(self, path: Any, place: str) -> None:
        self._workspace.ask("rmdir", path, place)

    def remove(self, path: Any, place: str) -> None:
        self._workspace.ask("remove", path, place)
        self._workspace.move(place, None)

    unlink = remove

    def rename(self, path: Any, place: str, dst: Any) -> None:
        there = self._workspace.locate(dst)
        if there is None:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path, None, dst)
        self._workspace.ask("rename", path, place, target=there)
        if place != there:
            self._workspace.move(there, None)
            self._workspace.move(place, there)

    replace = rename

    def truncate(self, path: Any, place: str, length: int) -> None:
        with WorkspaceFile(self._workspace, path, place, os.O_RDWR) as file:
            file.truncate(length)

    def utime(self, path: Any, place: str, *_: Any, **__: Any) -> None:
        """Only check that the file exists: scripts cannot set times or permissions."""
        self._workspace.facts(path, place)

    chmod = utime

    def chdir(self, path: Any, place: str) -> None:
        if not self._workspace.facts(path, place)[0]:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        self._workspace.enter(place)

    def open(self, path: Any, place: str, flags: int, mode: int = 0o777) -> int:
        file = WorkspaceFile(self._workspace, path, place, flags)
        return self._workspace.hold(file.fileno())

    def _by_path(self, original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def function(*arguments: Any, **named: Any) -> Any:
            # Folders have no descriptors here, and None is the default of those parameters.
            more = {key: value for key, value in named.items() if value is not None}
            path = arguments[0] if arguments else more.pop("path", more.pop("src", None))
            if path is None and original.__name__ in ("listdir", "scandir"):
                path = "."
            place = None if any(key.endswith("dir_fd") for key in more) else self._workspace.locate(path)
            if place is None:
                return original(*arguments, **named)
            return ours(path, place, *arguments[1:], **more)

        return function

    def _by_descriptor(self, original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def function(*arguments: Any, **named: Any) -> Any:
            descriptor: Any = arguments[0] if arguments else named.get("fd")
            file = self._workspace.file(descriptor.fileno() if hasattr(descriptor, "fileno") else descriptor)
            return original(*arguments, **named) if file is None else ours(file, *arguments[1:])

        return function


@dataclass(frozen=True)
class _Entry:
    """Like `os.DirEntry`, with the status from the time of the listing."""

    name: str
    path: str
    _status: os.stat_result

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return stat.S_ISDIR(self._status.st_mode)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return stat.S_ISREG(self._status.st_mode)

    def is_symlink(self) -> bool:
        return False

    is_junction = is_symlink

    def inode(self) -> int:
        return self._status.st_ino

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return self._status

    def __fspath__(self) -> Any:
        return self.path


class _Scan(chain[_Entry]):
    """The result of `os.scandir`: an iterator with `close`."""

    def __enter__(self) -> "_Scan":
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    close = __exit__


_BY_PATH = """
    stat lstat access listdir scandir mkdir rmdir remove unlink truncate utime chmod chdir open rename replace
""".split()  # noqa: SIM905
_BY_DESCRIPTOR: dict[str, Callable[..., Any]] = {
    "close": WorkspaceFile.close,
    "read": WorkspaceFile.read,
    "write": WorkspaceFile.write,
    "lseek": WorkspaceFile.seek,
    "fstat": WorkspaceFile.status,
    "ftruncate": WorkspaceFile.truncate,
    "fsync": WorkspaceFile.flush,
}
