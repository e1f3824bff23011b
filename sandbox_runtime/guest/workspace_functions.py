"""The functions of `os` that take paths or descriptors, for those of the workspace."""

import contextlib
import errno
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

from sandbox_runtime.guest.workspace import Workspace
from sandbox_runtime.guest.workspace_entry import WorkspaceEntry
from sandbox_runtime.guest.workspace_file import WorkspaceFile
from sandbox_runtime.guest.workspace_path import ROOT


class WorkspaceFunctions:
    """Methods are called like the functions they stand for, with the place in the workspace after the path."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def install(self) -> None:
        """Put them in the place of the originals, which go on serving every other path and descriptor."""
        for name, parameter in _BY_PATH.items():
            setattr(os, name, self._by_path(getattr(os, name), getattr(self, name), parameter))
        for name in (*_BY_FILE, *_BY_DESCRIPTOR):
            setattr(os, name, self._by_descriptor(getattr(os, name), getattr(self, name)))
        os.getcwd = _Function(os.getcwd, lambda: self._workspace.folder)
        os.getcwdb = _Function(os.getcwdb, lambda: os.fsencode(self._workspace.folder))

    def stat(self, path: Any, place: str, *, follow_symlinks: bool = True) -> os.stat_result:
        return self._workspace.status(place, self._workspace.facts(path, place))

    def lstat(self, path: Any, place: str) -> os.stat_result:
        return self.stat(path, place)

    def access(
        self, path: Any, place: str, mode: int, *, effective_ids: bool = False, follow_symlinks: bool = True
    ) -> bool:
        try:
            facts = self._workspace.facts(path, place)
        except OSError:
            return False
        is_writable = self._workspace.is_writable and place != ROOT
        is_refused = (mode & os.W_OK and not is_writable) or (mode & os.X_OK and not facts[0])
        return not is_refused

    def listdir(self, path: Any, place: str) -> list[Any]:
        names = [name for name, _ in self._workspace.ask("list", path, place)]
        return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

    def scandir(self, path: Any, place: str) -> "Scan":
        inside = f"{place}/" if place else ""
        folder = os.fspath(path)
        shown = os.fsencode if isinstance(folder, bytes) else os.fsdecode
        return Scan(
            WorkspaceEntry(
                self._workspace, folder, "" if place == ROOT else inside + name, shown(name), facts
            )
            for name, facts in self._workspace.ask("list", path, place)
        )

    def mkdir(self, path: Any, place: str, mode: int = 0o777) -> None:
        self._workspace.ask("mkdir", path, place)

    def rmdir(self, path: Any, place: str) -> None:
        self._workspace.ask("rmdir", path, place)

    def remove(self, path: Any, place: str) -> None:
        self._workspace.ask("remove", path, place)
        self._workspace.files.move(place, None)

    unlink = remove

    def rename(self, path: Any, place: str, dst: Any) -> None:
        there = self._workspace.locate(dst)
        if there is None:
            number = errno.EXDEV if os.fspath(dst) else errno.ENOENT
            raise OSError(number, os.strerror(number), path, None, dst)
        self._workspace.check_target(path, dst)
        self._workspace.ask("rename", path, place, target=there)
        if place != there:
            self._workspace.files.move(there, None)
            self._workspace.files.move(place, there)

    replace = rename

    def truncate(self, path: Any, place: str, length: int) -> None:
        with WorkspaceFile(self._workspace, path, place, os.O_RDWR) as file:
            file.truncate(length)

    def utime(
        self, path: Any, place: str, times: Any = None, *, ns: Any = None, follow_symlinks: bool = True
    ) -> None:
        """Times are the host's; whoever sets one learns whether the file is there."""
        self._workspace.facts(path, place)

    def chmod(self, path: Any, place: str, mode: int, *, follow_symlinks: bool = True) -> None:
        """Permissions are the host's, too."""
        self._workspace.facts(path, place)

    def readlink(self, path: Any, place: str) -> str:
        self._workspace.facts(path, place)
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)

    def symlink(self, path: Any, place: str, dst: Any, target_is_directory: bool = False) -> None:
        raise PermissionError(errno.EPERM, "there are no links in the workspace", path)

    def link(self, path: Any, place: str, dst: Any, *, follow_symlinks: bool = True) -> None:
        self.symlink(path, place, dst)

    def chdir(self, path: Any, place: str) -> None:
        if not self._workspace.facts(path, place)[0]:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        self._workspace.enter(place)

    def open(self, path: Any, place: str, flags: int, mode: int = 0o777) -> int:
        file = WorkspaceFile(self._workspace, path, place, flags)
        return self._workspace.files.hold(file.fileno())

    def close(self, file: WorkspaceFile) -> None:
        file.close()

    def read(self, file: WorkspaceFile, length: int, /) -> bytes:
        return file.read(length) or b""

    def pread(self, file: WorkspaceFile, length: int, offset: int, /) -> bytes:
        with _elsewhere(file, offset):
            return self.read(file, length)

    def readinto(self, file: WorkspaceFile, buffer: Any, /) -> int:
        return file.readinto(buffer)

    def write(self, file: WorkspaceFile, data: Any, /) -> int:
        return file.write(data)

    def pwrite(self, file: WorkspaceFile, data: Any, offset: int, /) -> int:
        with _elsewhere(file, offset):
            return file.write(data)

    def lseek(self, file: WorkspaceFile, position: int, whence: int, /) -> int:
        return file.seek(position, whence)

    def fstat(self, file: WorkspaceFile) -> os.stat_result:
        return self._workspace.status(file.place or "", (False, file.size(), file.changed_ns, ""))

    def stat_open(self, file: WorkspaceFile, *_: Any) -> os.stat_result:
        return self.fstat(file)

    def ftruncate(self, file: WorkspaceFile, length: int, /) -> None:
        file.truncate(length)

    def isatty(self, file: WorkspaceFile, /) -> bool:
        return False

    def touch(self, file: WorkspaceFile, *_: Any) -> None:
        """Its times and permissions are the host's."""

    def get_inheritable(self, file: WorkspaceFile, /) -> bool:
        return False

    def set_inheritable(self, file: WorkspaceFile, is_inheritable: bool, /) -> None:
        """Nobody could inherit it."""

    def fsync(self, file: WorkspaceFile) -> None:
        file.save()

    fdatasync = fsync

    def _by_path(
        self, original: Callable[..., Any], ours: Callable[..., Any], parameter: str
    ) -> Callable[..., Any]:
        by_number = getattr(self, _BY_NUMBER.get(original.__name__, ""), None)

        def function(*arguments: Any, **named: Any) -> Any:
            path, rest, more = _split(arguments, named, parameter)
            if more.keys() & _FOLDERS_BY_NUMBER:
                return original(*arguments, **named)  # no folder of the workspace has a number
            if path is None and original.__name__ in _HERE_WITHOUT_PATH:
                path = "."
            place = self._workspace.locate(path)
            if place is not None:
                return ours(path, place, *rest, **more)
            file = self._workspace.files.get(path)
            if file is not None and by_number is not None:
                return by_number(file, *rest, *more.values())
            return original(*arguments, **named)

        return _Function(original, function)

    def _by_descriptor(self, original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
        parameter = "fd" if original.__name__ in _WITH_NAMED_FD else ""

        def function(*arguments: Any, **named: Any) -> Any:
            descriptor, rest, more = _split(arguments, named, parameter)
            if original.__name__ in _BY_FILE and hasattr(descriptor, "fileno"):
                descriptor = descriptor.fileno()
            file = self._workspace.files.get(descriptor)
            return original(*arguments, **named) if file is None else ours(file, *rest, **more)

        return _Function(original, function)


class _Function:
    """No function: one becomes a method of a class that holds it, and those of `os` do not."""

    def __init__(self, original: Callable[..., Any], call: Callable[..., Any]) -> None:
        self._call = call
        functools.update_wrapper(self, original)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._call(*arguments, **named)


def _split(
    arguments: tuple[Any, ...], named: dict[str, Any], parameter: str
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """What is given for the first parameter, and the others; folders by number only where there are some."""
    more = {key: value for key, value in named.items() if key not in _FOLDERS_BY_NUMBER or value is not None}
    if arguments:
        return arguments[0], arguments[1:], more
    return more.pop(parameter, None), (), more


@contextlib.contextmanager
def _elsewhere(file: WorkspaceFile, offset: int) -> Iterator[None]:
    """Read or write at another position, and leave the file's own as it is."""
    position = file.tell()
    file.seek(offset)
    try:
        yield
    finally:
        file.seek(position)


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


_PATH = "stat lstat access listdir scandir mkdir rmdir remove unlink truncate utime chmod readlink chdir open"
_SOURCE = "rename replace symlink link"
_BY_PATH = dict.fromkeys(_PATH.split(), "path") | dict.fromkeys(_SOURCE.split(), "src")
"""With the name of the parameter that is the path."""

_HERE_WITHOUT_PATH = frozenset({"listdir", "scandir"})
_FOLDERS_BY_NUMBER = frozenset({"dir_fd", "src_dir_fd", "dst_dir_fd"})
_BY_NUMBER = {"stat": "stat_open", "truncate": "ftruncate", "utime": "touch", "chmod": "touch"}
"""Functions that take the number of an open file for a path, and what does that."""

_WITH_NAMED_FD = frozenset({"close", "fstat", "fsync", "fdatasync"})
_BY_FILE = ("fsync", "fdatasync")
"""Those that take the file itself, too."""

_DESCRIPTOR = (
    "close read pread readinto write pwrite lseek fstat ftruncate isatty get_inheritable set_inheritable"
)
_BY_DESCRIPTOR = tuple(_DESCRIPTOR.split())
