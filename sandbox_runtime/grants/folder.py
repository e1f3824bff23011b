"""Names, errors and folders of the host by descriptor: no name is ever resolved through a link."""

import errno
import os
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias


class FileError(Exception):
    """`name` is errno's, like "ENOENT": numbers differ inside. An empty message leaves the words to Python."""

    def __init__(self, name: str, message: str = "") -> None:
        super().__init__(message)
        self.name = name
        self.message = message


def from_os(error: OSError) -> FileError:
    """The error of a system call, without the names and paths of this machine that it may carry."""
    name = errno.errorcode.get(error.errno or 0, "")
    return FileError(name if name in _TOLD else "EIO")


_WORDS = """
    EACCES EBUSY EDQUOT EEXIST EFBIG EINVAL EIO EISDIR ELOOP ENAMETOOLONG ENOENT ENOSPC ENOTDIR ENOTEMPTY EPERM
    EROFS EXDEV
"""
_TOLD = frozenset(_WORDS.split())


FilePath: TypeAlias = tuple[str, ...]
"""The names from the workspace down; of the workspace itself none."""

OURS = ".portal-"
"""How names begin that only the portal uses, whatever their case; guests neither see nor make them."""

MAX_NAME_BYTES = 255
MAX_DEPTH = 32
MAX_PATH_CHARS = 4096
# Invisible: control characters steer the operator's terminal, others make two names look alike.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def parse_path(text: str) -> FilePath:
    """Read a path relative to the workspace, with `/` between its names; "" is the workspace.

    Raises:
        FileError: It is absolute, or has a name that is empty, `.`, `..`, too long, not visible, or ours.
    """
    if len(text) > MAX_PATH_CHARS:
        raise FileError("ENAMETOOLONG")
    path = tuple(text.split("/")) if text else ()
    if len(path) > MAX_DEPTH:
        raise FileError("ENAMETOOLONG", f"folders are at most {MAX_DEPTH} levels deep")
    for name in path:
        if fault := _fault(name):
            raise fault
    return path


def is_usable(name: str) -> bool:
    """Whether guests may see a name that is there."""
    return _fault(name) is None


def _fault(name: str) -> FileError | None:
    if name in ("", ".", "..") or "/" in name:
        return FileError("EINVAL", "not a name of a file")
    if any(unicodedata.category(character) in _INVISIBLE for character in name):
        return FileError("EINVAL", "a name has visible characters only")
    if len(name.encode()) > MAX_NAME_BYTES:
        return FileError("ENAMETOOLONG")
    if unicodedata.normalize("NFKC", name).casefold().startswith(OURS):
        return FileError("EACCES", f"names that begin with {OURS} are the portal's own")
    return None


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
