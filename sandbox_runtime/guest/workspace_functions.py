"""The functions of `os` that take paths or descriptors, for those of the workspace."""

import errno
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

from sandbox_runtime.guest.workspace import MOUNT, Workspace
from sandbox_runtime.guest.workspace_entry import WorkspaceEntry
from sandbox_runtime.guest.workspace_file import WorkspaceFile


class WorkspaceFunctions:
    """Methods are called like the functions they stand for, with the place in the workspace after the path."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def install(self) -> None:
        """Put them in the place of the originals, which go on serving every other path and descriptor."""
        for name in _BY_PATH.split():
            setattr(os, name, self._by_path(getattr(os, name), getattr(self, name)))
        for name in _BY_DESCRIPTOR.split():
            setattr(os, name, self._by_descriptor(getattr(os, name), getattr(self, name)))
        os.unlink, os.replace, os.lstat = os.remove, os.rename, os.stat
        os.getcwd = _Function(os.getcwd, lambda: self._workspace.folder)
        os.getcwdb = _Function(os.getcwdb, lambda: os.fsencode(self._workspace.folder))

    def stat(self, path: Any, place: str, **_: Any) -> os.stat_result:
        return self._workspace.status(place, self._workspace.facts(path, place))

    def access(self, path: Any, place: str, mode: int, **_: Any) -> bool:
        try:
            facts = self._workspace.facts(path, place)
        except OSError:
            return False
        is_refused = (mode & os.W_OK and not self._workspace.is_writable) or (mode & os.X_OK and not facts[0])
        return not is_refused

    def listdir(self, path: Any, place: str) -> list[Any]:
        names = [name for name, _ in self._workspace.ask("list", path, place)]
        return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

    def scandir(self, path: Any, place: str) -> "Scan":
        inside = f"{place}/" if place else ""
        folder = os.fspath(path)
        shown = os.fsencode if isinstance(folder, bytes) else os.fsdecode
        return Scan(
            WorkspaceEntry(self._workspace, folder, inside + name, shown(name), facts)
            for name, facts in self._workspace.ask("list", path, place)
        )

    def mkdir(self, path: Any, place: str, mode: int = 0o777, **_: Any) -> None:
        self._workspace.ask("mkdir", path, place)

    def rmdir(self, path: Any, place: str, **_: Any) -> None:
        self._workspace.ask("rmdir", path, place)

    def remove(self, path: Any, place: str, **_: Any) -> None:
        self._workspace.ask("remove", path, place)
        self._workspace.files.move(place, None)

    def rename(self, path: Any, place: str, target: Any, **_: Any) -> None:
        there = self._workspace.locate(target)
        if there is None:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path, None, target)
        self._workspace.ask("rename", path, place, target=there)
        if place != there:
            self._workspace.files.move(there, None)
            self._workspace.files.move(place, there)

    def truncate(self, path: Any, place: str, length: int) -> None:
        with WorkspaceFile(self._workspace, path, place, os.O_RDWR) as file:
            file.truncate(length)

    def utime(self, path: Any, place: str, *_: Any, **__: Any) -> None:
        """Times are the host's; whoever sets one learns whether the file is there."""
        self._workspace.facts(path, place)

    def chmod(self, path: Any, place: str, mode: int, **_: Any) -> None:
        """Permissions are the host's, too."""
        self._workspace.facts(path, place)

    def readlink(self, path: Any, place: str, **_: Any) -> str:
        self._workspace.facts(path, place)
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)

    def symlink(self, path: Any, place: str, *_: Any, **__: Any) -> None:
        raise PermissionError(errno.EPERM, "there are no links in the workspace", path)

    link = symlink

    def chdir(self, path: Any, place: str) -> None:
        if not self._workspace.facts(path, place)[0]:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        self._workspace.folder = f"{MOUNT}/{place}" if place else MOUNT

    def open(self, path: Any, place: str, flags: int, mode: int = 0o777, **_: Any) -> int:
        file = WorkspaceFile(self._workspace, path, place, flags)
        return self._workspace.files.hold(file.fileno())

    def close(self, file: WorkspaceFile) -> None:
        file.close()

    def read(self, file: WorkspaceFile, length: int) -> bytes:
        return file.read(length) or b""

    def readinto(self, file: WorkspaceFile, buffer: Any) -> int:
        return file.readinto(buffer)

    def write(self, file: WorkspaceFile, data: Any) -> int:
        return file.write(data)

    def lseek(self, file: WorkspaceFile, position: int, whence: int) -> int:
        return file.seek(position, whence)

    def fstat(self, file: WorkspaceFile) -> os.stat_result:
        return self._workspace.status(file.place or "", (False, file.size(), 0, ""))

    def ftruncate(self, file: WorkspaceFile, length: int) -> None:
        file.truncate(length)

    def get_inheritable(self, file: WorkspaceFile) -> bool:
        return False

    def set_inheritable(self, file: WorkspaceFile, is_inheritable: bool) -> None:
        """Nobody could inherit it."""

    def fsync(self, file: WorkspaceFile) -> None:
        file.save()

    fdatasync = fsync

    def _by_path(self, original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
        def function(path: Any = ".", *arguments: Any, **named: Any) -> Any:
            place = self._workspace.locate(path)
            if place is not None:
                return ours(path, place, *arguments, **named)
            file = self._workspace.files.get(path)
            if file is not None and original.__name__ == "stat":
                return self.fstat(file)
            return original(path, *arguments, **named)

        return _Function(original, function)

    def _by_descriptor(self, original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
        def function(descriptor: Any, *arguments: Any) -> Any:
            file = self._workspace.files.get(descriptor)
            return original(descriptor, *arguments) if file is None else ours(file, *arguments)

        return _Function(original, function)


class _Function:
    """No function: one becomes a method of a class that holds it, and those of `os` do not."""

    def __init__(self, original: Callable[..., Any], call: Callable[..., Any]) -> None:
        self._call = call
        functools.update_wrapper(self, original)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._call(*arguments, **named)


class Scan(Iterator[WorkspaceEntry]):
    """What `os.scandir` returns: an iterator that can be closed."""

    def __init__(self, entries: Iterator[WorkspaceEntry]) -> None:
        self._entries = entries

    def __next__(self) -> WorkspaceEntry:
        return next(self._entries)

    def __enter__(self) -> "Scan":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


_BY_PATH = "stat access listdir scandir mkdir rmdir remove rename truncate utime chmod readlink symlink link chdir open"
_BY_DESCRIPTOR = (
    "close read readinto write lseek fstat ftruncate fsync fdatasync get_inheritable set_inheritable"
)
