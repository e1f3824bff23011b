"""A folder of this machine for guests' files. No name is ever resolved through a link. All methods block."""

import binascii
import errno
import os
import secrets
import stat
import threading
import time
import unicodedata
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from manifests.json_value import Json

FilePath: TypeAlias = tuple[str, ...]
"""The path components below the workspace; () is the workspace itself."""

RESERVED_PREFIX = ".portal-"
"""Prefix of the portal's own files, in any case. Guests can neither see nor create such names."""

MAX_LISTED = 10_000
_MAX_NAME_BYTES = 255
_MAX_DEPTH = 32
_MAX_PATH_CHARS = 4096
# Invisible characters: some control the operator's terminal, others make two names look alike.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_ABANDONED_SECONDS = 3600.0

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK, because opening a pipe would wait.
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class FileError(Exception):
    """A failed operation. `name` is an errno name, like "ENOENT". With an empty message Python uses its own."""

    def __init__(self, name: str, message: str = "") -> None:
        super().__init__(message)
        self.name = name
        self.message = message

    @classmethod
    def from_os(cls, error: OSError) -> "FileError":
        """The error of a system call, without names and paths of this machine."""
        return cls(errno.errorcode.get(error.errno or 0, "EIO"))


def parse_path(text: str) -> FilePath:
    """Parse a path relative to the workspace; "" is the workspace.

    Raises FileError: it is absolute, or has a name that is empty, `.`, `..`, too long, invisible, or reserved.
    """
    path = tuple(text.split("/")) if text else ()
    if len(text) > _MAX_PATH_CHARS or len(path) > _MAX_DEPTH:
        raise FileError("ENAMETOOLONG", f"folders are at most {_MAX_DEPTH} levels deep")
    for name in path:
        if fault := _name_error(name):
            raise fault
    return path


def _name_error(name: str) -> FileError | None:
    """The reason why a name is not allowed; None if it is allowed."""
    if name in ("", ".", "..") or "/" in name:
        return FileError("EINVAL", "not a file name")
    if any(unicodedata.category(character) in _INVISIBLE for character in name):
        return FileError("EINVAL", "a name must have visible characters only")
    if len(name.encode()) > _MAX_NAME_BYTES:
        return FileError("ENAMETOOLONG")
    if unicodedata.normalize("NFKC", name).casefold().startswith(RESERVED_PREFIX):
        return FileError("EACCES", f"names that begin with {RESERVED_PREFIX} are reserved")
    return None


class Quota:
    """Counts the bytes and files of one folder. Everything but `lock` requires holding the lock.

    Other programs may change the folder, so every run that writes counts it again. Sparse files count with their
    apparent size.
    """

    def __init__(self, total_bytes: int, total_files: int, name: Callable[[str], str]) -> None:
        """`name` describes a limit: its key, its value and its place."""
        self.lock = threading.RLock()
        self.is_stale = True
        """Whether to count again before the next change."""
        self._total_bytes = total_bytes
        self._total_files = total_files
        self._name = name
        self._bytes = 0
        self._files = 0

    def refresh(self, root: int) -> None:
        if self.is_stale or self._files > self._total_files:
            self.is_stale = False
            self._bytes = self._files = 0
            self._count(root)

    def check(self, more_bytes: int, more_files: int) -> None:
        """Raises FileError if this much more would exceed the quota."""
        if max(more_files, more_bytes) > 0 and self._files + more_files > self._total_files:
            raise FileError("EDQUOT", f"the workspace would have more files than {self._name('total_files')}")
        if more_bytes > 0 and self._bytes + more_bytes > self._total_bytes:
            raise FileError("EDQUOT", f"the workspace would exceed {self._name('total_bytes')}")

    def note(self, more_bytes: int, more_files: int) -> None:
        self._bytes += more_bytes
        self._files += more_files

    def _count(self, root: int) -> None:
        # A folder that vanished, or that the portal cannot read, counts as empty.
        for _, folders, names, folder in os.fwalk(".", dir_fd=root):
            self._files += len(folders)
            for name in names:
                with suppress(FileNotFoundError):
                    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    is_old = time.time() - found.st_mtime > _ABANDONED_SECONDS
                    # An unfinished file of a portal that was killed.
                    if is_old and name.startswith(RESERVED_PREFIX) and stat.S_ISREG(found.st_mode):
                        os.unlink(name, dir_fd=folder)
                    else:
                        self.note(found.st_size, 1)
                if self._files > self._total_files:
                    return


class Workspace:
    """File operations in one folder. Each walks its path from the folder down, without following links.

    Files are replaced atomically, so a reader sees the old content or the new. Only `append` writes in place.
    Operations raise FileError, or the system's OSError. They return values for the guest.
    """

    def __init__(self, folder: Path, quota: Quota | None, file_bytes: int, file_limit: str) -> None:
        """Open it; without a quota it is read-only. `file_limit` describes `file_bytes`.

        Raises OSError: it does not exist or is not a folder.
        """
        self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # Closed only after the last thread has released this: the descriptor could otherwise be another file's.
        weakref.finalize(self, os.close, self._root)
        self._quota = quota
        self._file_bytes = file_bytes
        self._file_limit = file_limit

    def look(self, path: FilePath) -> Json:
        if not path:
            return _facts(os.fstat(self._root))
        with self._parent(path) as (folder, name):
            return _facts(_lstat(folder, name))

    def listing(self, path: FilePath) -> Json:
        """Files and folders, sorted by name. Links, devices and names that are not allowed are skipped."""
        found: list[tuple[str, Json]] = []
        with _opened_folder(self._root, path) as folder, os.scandir(folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError, FileError):
                    facts = _facts(_lstat(folder, entry.name))
                    if _name_error(entry.name) is None:
                        found.append((entry.name, facts))
                if len(found) > MAX_LISTED:
                    raise FileError("EFBIG", f"a folder of more than {MAX_LISTED:,} entries")
        return [[name, facts] for name, facts in sorted(found, key=lambda each: each[0])]

    def read(self, path: FilePath) -> Json:
        """The content in base64, and the file's facts."""
        with self._parent(path) as (folder, name), _opened_file(folder, name, os.O_RDONLY) as file:
            status = os.fstat(file)
            if stat.S_ISDIR(status.st_mode):
                raise FileError("EISDIR")
            content = _read_up_to(file, self._file_bytes + 1)
            self._check_size(len(content))
            return [binascii.b2a_base64(content, newline=False).decode(), _facts(status)]

    def create(self, path: FilePath, *, must_be_new: bool) -> Json:
        """Create a file unless a writable one exists. Returns whether it is new, and its facts."""
        with self._changing(path) as (folder, name, quota):
            status = _existing(folder, name)
            if status is not None:
                if must_be_new:
                    raise FileError("EEXIST")
                _check_writable(status)
                return [False, _facts(status)]
            quota.check(0, 1)
            os.close(os.open(name, _NEW, 0o666, dir_fd=folder))
            quota.note(0, 1)
            return [True, _facts(_lstat(folder, name))]

    def write(self, path: FilePath, content: bytes, expected: str | None = None) -> Json:
        """Replace a file's content; with `expected`, only if its version is still that ("": does not exist)."""
        self._check_size(len(content))
        with self._changing(path) as (folder, name, quota):
            status = _existing(folder, name)
            if status is not None:
                _check_writable(status)
            if expected is not None and expected != ("" if status is None else _version(status)):
                raise FileError("EBUSY", "the file was changed in between")
            more = len(content) - (0 if status is None else status.st_size), 0 if status else 1
            quota.check(*more)
            written = _replace(folder, name, content, None if status is None else status.st_mode & 0o777)
            quota.note(*more)
            return _facts(written)

    def append(self, path: FilePath, content: bytes) -> Json:
        """Append to an existing file."""
        with (
            self._changing(path) as (folder, name, quota),
            _opened_file(folder, name, os.O_WRONLY | os.O_APPEND) as file,
        ):
            status = os.fstat(file)
            _check_writable(status)
            self._check_size(status.st_size + len(content))
            quota.check(len(content), 0)
            _write_all(file, content)
            quota.note(len(content), 0)
            return _facts(os.fstat(file))

    def make_folder(self, path: FilePath) -> None:
        with self._changing(path) as (folder, name, quota):
            quota.check(0, 1)
            os.mkdir(name, 0o777, dir_fd=folder)
            quota.note(0, 1)

    def remove(self, path: FilePath) -> None:
        with self._changing(path) as (folder, name, quota):
            status = _lstat(folder, name)
            if stat.S_ISDIR(status.st_mode):
                raise FileError("EISDIR")
            os.unlink(name, dir_fd=folder)
            quota.note(-status.st_size, -1)

    def remove_folder(self, path: FilePath) -> None:
        with self._changing(path) as (folder, name, quota):
            _lstat(folder, name)
            os.rmdir(name, dir_fd=folder)
            quota.note(0, -1)

    def rename(self, path: FilePath, target: FilePath) -> None:
        """Rename a file or folder. A file replaces an existing file."""
        with self._changing(path) as (folder, name, quota), self._parent(target) as (other, new_name):
            status = _lstat(folder, name)
            below = os.fwalk(name, dir_fd=folder) if stat.S_ISDIR(status.st_mode) else ()
            if any(len(target) + inner.count("/") > _MAX_DEPTH for inner, *_ in below):
                raise FileError("ENAMETOOLONG", f"folders are at most {_MAX_DEPTH} levels deep")
            replaced = _existing(other, new_name)
            os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=other)
            if replaced is not None and (replaced.st_ino, replaced.st_dev) != (status.st_ino, status.st_dev):
                quota.note(0 if stat.S_ISDIR(replaced.st_mode) else -replaced.st_size, -1)

    @contextmanager
    def _parent(self, path: FilePath) -> Iterator[tuple[int, str]]:
        if not path:
            raise FileError("EBUSY", "this is the workspace itself")
        with _opened_folder(self._root, path[:-1]) as folder:
            yield folder, path[-1]

    @contextmanager
    def _changing(self, path: FilePath) -> Iterator[tuple[int, str, Quota]]:
        if self._quota is None:
            raise FileError("EROFS", "files are read-only for scripts")
        with self._quota.lock:
            self._quota.refresh(self._root)
            with self._parent(path) as (folder, name):
                yield folder, name, self._quota

    def _check_size(self, size: int) -> None:
        if size > self._file_bytes:
            raise FileError("EFBIG", f"larger than {self._file_limit}")


def _facts(found: os.stat_result) -> list[Json]:
    """The facts of a file or folder: whether it is a folder, its bytes, its mtime in ns, its version."""
    is_folder = stat.S_ISDIR(found.st_mode)
    return [is_folder, 0 if is_folder else found.st_size, found.st_mtime_ns, _version(found)]


def _version(found: os.stat_result) -> str:
    """A version that differs after every change."""
    return f"{found.st_ino:x}.{found.st_mtime_ns:x}.{found.st_size:x}"


@contextmanager
def _opened_folder(root: int, path: FilePath) -> Iterator[int]:
    """A context with the descriptor of a folder below `root`."""
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
def _opened_file(folder: int, name: str, flags: int) -> Iterator[int]:
    """A context with the descriptor of an existing file."""
    _lstat(folder, name)  # checked first, because opening a device may have an effect
    descriptor = _opened(name, flags | _FILE, folder)
    try:
        _check_kind(os.fstat(descriptor))
        yield descriptor
    finally:
        os.close(descriptor)


def _opened(name: str, flags: int, folder: int) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError:
        _lstat(folder, name)  # raises the clearer error for a link
        raise


def _lstat(folder: int, name: str) -> os.stat_result:
    """The status of a file or folder. Raises FileError for a link, a device, a pipe or a socket."""
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    _check_kind(found)
    return found


def _existing(folder: int, name: str) -> os.stat_result | None:
    try:
        return _lstat(folder, name)
    except FileNotFoundError:
        return None


def _check_kind(found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise FileError("EACCES", "it is a link; links are not followed")
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise FileError("EACCES", "it is neither a file nor a folder")


def _check_writable(status: os.stat_result) -> None:
    _check_kind(status)
    if stat.S_ISDIR(status.st_mode):
        raise FileError("EISDIR")
    if status.st_nlink > 1:
        raise FileError("EACCES", "it has hard links, which may be outside the workspace")


def _replace(folder: int, name: str, content: bytes, mode: int | None) -> os.stat_result:
    """Replace a file atomically. A replaced file keeps its permissions."""
    partial = f"{RESERVED_PREFIX}{secrets.token_hex(8)}.partial"
    file = os.open(partial, _NEW, 0o666, dir_fd=folder)
    try:
        try:
            if mode is not None:
                os.fchmod(file, mode)
            _write_all(file, content)
            status = os.fstat(file)
        finally:
            os.close(file)
        os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(partial, dir_fd=folder)
        raise
    return status


def _write_all(file: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(file, left) :]


def _read_up_to(file: int, most: int) -> bytes:
    """Read up to `most` bytes; one system call may return fewer."""
    content = bytearray()
    while len(content) < most and (more := os.read(file, most - len(content))):
        content += more
    return bytes(content)
