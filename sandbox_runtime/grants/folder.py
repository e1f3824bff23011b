"""Folders of the host by descriptor: no name is ever resolved through a link, whoever changes the tree meanwhile."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sandbox_runtime.grants.file_error import FileError
from sandbox_runtime.grants.file_path import FilePath

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK a pipe that was put in a file's place would be waited for.
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@contextmanager
def opened_folder(root: int, path: FilePath) -> Iterator[int]:
    """The descriptor of a folder below another one, while it lasts.

    Raises:
        FileError: A part of the path is a link.
        OSError: It is not there, or no folder.
    """
    descriptor = os.dup(root)
    try:
        for name in path:
            inner = _opened(name, _FOLDER, descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_file(folder: int, name: str, flags: int) -> Iterator[int]:
    """The descriptor of a file that is there, while it lasts.

    Raises:
        FileError: It is a link, or neither a file nor a folder.
        OSError: It is not there, a folder, or not permitted to the portal itself.
    """
    look(folder, name)  # a device can act when it is opened
    descriptor = _opened(name, flags | _FILE, folder)
    try:
        check_kind(os.fstat(descriptor))
        yield descriptor
    finally:
        os.close(descriptor)


def look(folder: int, name: str) -> os.stat_result:
    """What a name stands for.

    Raises:
        FileError: A link, a device, a pipe or a socket.
        OSError: It is not there.
    """
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    check_kind(found)
    return found


def check_kind(found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise FileError("EACCES", "a link: links lead nowhere here")
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise FileError("EACCES", "neither a file nor a folder")


def entries(folder: int) -> Iterator[tuple[str, os.stat_result]]:
    """What is in a folder, links and all; what vanishes meanwhile is passed over."""
    with os.scandir(folder) as found:
        for entry in found:
            with suppress(FileNotFoundError):
                yield entry.name, os.stat(entry.name, dir_fd=folder, follow_symlinks=False)


def _opened(name: str, flags: int, folder: int) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError:
        look(folder, name)  # says it where it is a link
        raise
