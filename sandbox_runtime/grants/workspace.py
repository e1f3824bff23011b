"""A folder of this machine in which guests have files. All of it blocks: it runs in threads."""

import os
import secrets
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from manifests.json_value import Json
from sandbox_runtime.grants.folder import (
    MAX_DEPTH,
    OURS,
    FileError,
    FilePath,
    check_kind,
    entries,
    is_usable,
    look,
    opened_file,
    opened_folder,
)

MAX_LISTED = 10_000
_COSTS_TO_WAIT = 20
_ABANDONED_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or a folder. `version` is another one after every change, wherever that came from."""

    is_folder: bool
    size: int
    modified_ns: int
    version: str

    @classmethod
    def of(cls, found: os.stat_result) -> "Entry":
        is_folder = stat.S_ISDIR(found.st_mode)
        version = f"{found.st_ino:x}.{found.st_mtime_ns:x}.{found.st_size:x}"
        return cls(is_folder, 0 if is_folder else found.st_size, found.st_mtime_ns, version)

    def told(self) -> list[Json]:
        """As the guest is told it."""
        return [self.is_folder, self.size, self.modified_ns, self.version]


class Quota:
    """The bytes and files of one folder, whoever put them there. Everything but `lock` is used while holding it.

    Others may change the folder, too, so it is counted anew for every run that writes; but not so often that counting
    took more than a twentieth of the time. Sparse files count with the size they pretend to have.
    """

    def __init__(self, total_bytes: int, total_files: int, name: Callable[[str], str]) -> None:
        """`name` puts a limit in words: which, its value, and where it is set."""
        self.lock = threading.RLock()
        self._total_bytes = total_bytes
        self._total_files = total_files
        self._name = name
        self._bytes = 0
        self._files = 0
        self._is_stale = True
        self._is_partial = False
        self._recount_at = 0.0

    def doubt(self) -> None:
        """Count again before the next change."""
        self._is_stale = True

    def refresh(self, root: int) -> None:
        began = time.monotonic()
        if not (self._is_partial or (self._is_stale and began >= self._recount_at)):
            return
        self._count(root)
        ended = time.monotonic()
        self._recount_at = ended + _COSTS_TO_WAIT * (ended - began)
        self._is_stale = False

    def check(self, more_bytes: int, more_files: int) -> None:
        """Raises FileError where there is no room for that much more."""
        has_room = self._files + more_files <= self._total_files
        if (more_files > 0 and not has_room) or (more_bytes > 0 and self._is_partial):
            raise FileError("EDQUOT", f"the workspace would hold more files than {self._name('total_files')}")
        if more_bytes > 0 and self._bytes + more_bytes > self._total_bytes:
            raise FileError("EDQUOT", f"the workspace would hold more than {self._name('total_bytes')}")

    def note(self, more_bytes: int, more_files: int) -> None:
        self._bytes += more_bytes
        self._files += more_files

    def _count(self, root: int) -> None:
        """Count until there is more than there may be: then nothing may be added, and no more need be known."""
        self._bytes = self._files = 0
        self._is_partial = False
        pending: list[FilePath] = [()]
        while pending and not self._is_partial:
            path = pending.pop()
            # A folder that vanished, or that the portal itself may not read, holds nothing.
            with suppress(OSError, FileError), opened_folder(root, path) as folder:
                self._count_folder(folder, path, pending)

    def _count_folder(self, folder: int, path: FilePath, pending: list[FilePath]) -> None:
        for name, found in entries(folder):
            if _is_abandoned(name, found):
                os.unlink(name, dir_fd=folder)
                continue
            self._files += 1
            if self._files > self._total_files:
                self._is_partial = True
                return
            if stat.S_ISDIR(found.st_mode):
                pending.append((*path, name))
            else:
                self._bytes += found.st_size


class Workspace:
    """Every name is walked from the folder down, without links, at each operation.

    Files are replaced as a whole: whoever reads meanwhile sees the old content or the new. Only `append` adds in place.
    Operations raise FileError, or OSError from the system.
    """

    def __init__(self, folder: Path, quota: Quota | None, file_bytes: int, file_limit: str) -> None:
        """Open it; without a quota it is only read. `file_limit` tells of `file_bytes` in words.

        Raises:
            OSError: It is not there, or no folder.
        """
        self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # Not before the last thread has let go of this: its descriptor's number would be another file's by then.
        weakref.finalize(self, os.close, self._root)
        self._quota = quota
        self._file_bytes = file_bytes
        self._file_limit = file_limit

    def look(self, path: FilePath) -> Entry:
        if not path:
            return Entry.of(os.fstat(self._root))
        with opened_folder(self._root, path[:-1]) as folder:
            return Entry.of(look(folder, path[-1]))

    def listing(self, path: FilePath) -> list[tuple[str, Entry]]:
        """Files and folders by name. Links, devices and names that guests cannot say are passed over."""
        found: list[tuple[str, Entry]] = []
        with opened_folder(self._root, path) as folder:
            for name, status in entries(folder):
                if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)) or not is_usable(name):
                    continue
                if len(found) >= MAX_LISTED:
                    raise FileError("EFBIG", f"a folder of more than {MAX_LISTED:,} entries")
                found.append((name, Entry.of(status)))
        return sorted(found, key=lambda entry: entry[0])

    def read(self, path: FilePath) -> tuple[bytes, Entry]:
        with self._parent(path) as (folder, name), opened_file(folder, name, os.O_RDONLY) as file:
            status = os.fstat(file)
            if stat.S_ISDIR(status.st_mode):
                raise FileError("EISDIR")
            content = _read_up_to(file, self._file_bytes + 1)
            self._check_size(len(content))
            return content, Entry.of(status)

    def create(self, path: FilePath, *, must_be_new: bool) -> tuple[bool, Entry]:
        """Make sure that there is a file which may be written; True if it is new."""
        with self._changing(path) as (folder, name, quota):
            status = _existing(folder, name)
            if status is not None:
                if must_be_new:
                    raise FileError("EEXIST")
                _check_writable(status)
                return False, Entry.of(status)
            quota.check(0, 1)
            file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
            try:
                status = os.fstat(file)
            finally:
                os.close(file)
            quota.note(0, 1)
            return True, Entry.of(status)

    def write(self, path: FilePath, content: bytes, expected: str | None = None) -> Entry:
        """Give a file new content; with `expected`, only if that is its version still ("": if there is none)."""
        size = len(content)
        self._check_size(size)
        with self._changing(path) as (folder, name, quota):
            status = _existing_file(folder, name)
            if expected is not None and expected != ("" if status is None else Entry.of(status).version):
                raise FileError("EBUSY", "it was changed meanwhile")
            more = size - (0 if status is None else status.st_size), 0 if status else 1
            quota.check(*more)
            written = _replace(folder, name, content, None if status is None else status.st_mode & 0o777)
            quota.note(*more)
            return Entry.of(written)

    def append(self, path: FilePath, content: bytes, at: int | None = None) -> Entry:
        """Add to the end of a file that is there; with `at`, only if it is as long as that still."""
        with (
            self._changing(path) as (folder, name, quota),
            opened_file(folder, name, os.O_WRONLY | os.O_APPEND) as file,
        ):
            status = os.fstat(file)
            _check_writable(status)
            if at is not None and status.st_size != at:
                raise FileError("EBUSY", "it was changed meanwhile")
            size = len(content)
            self._check_size(status.st_size + size)
            quota.check(size, 0)
            _write_all(file, content)
            quota.note(size, 0)
            return Entry.of(os.fstat(file))

    def make_folder(self, path: FilePath) -> None:
        with self._changing(path) as (folder, name, quota):
            quota.check(0, 1)
            os.mkdir(name, 0o777, dir_fd=folder)
            quota.note(0, 1)

    def remove(self, path: FilePath) -> None:
        with self._changing(path) as (folder, name, quota):
            status = look(folder, name)
            if stat.S_ISDIR(status.st_mode):
                raise FileError("EISDIR")
            os.unlink(name, dir_fd=folder)
            quota.note(-status.st_size, -1)

    def remove_folder(self, path: FilePath) -> None:
        with self._changing(path) as (folder, name, quota):
            look(folder, name)
            os.rmdir(name, dir_fd=folder)
            quota.note(0, -1)

    def rename(self, path: FilePath, target: FilePath) -> None:
        """Give a file or folder another name; a file takes the place of one that has it."""
        with self._changing(path) as (folder, name, quota), self._parent(target) as (other, new_name):
            status = look(folder, name)
            if stat.S_ISDIR(status.st_mode) and len(target) + self._height(path) > MAX_DEPTH:
                raise FileError("ENAMETOOLONG", f"folders are at most {MAX_DEPTH} levels deep")
            replaced = _existing(other, new_name)
            os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=other)
            if replaced is not None and (replaced.st_ino, replaced.st_dev) != (status.st_ino, status.st_dev):
                quota.note(0 if stat.S_ISDIR(replaced.st_mode) else -replaced.st_size, -1)

    @contextmanager
    def _parent(self, path: FilePath) -> Iterator[tuple[int, str]]:
        if not path:
            raise FileError("EBUSY", "the workspace itself")
        with opened_folder(self._root, path[:-1]) as folder:
            yield folder, path[-1]

    @contextmanager
    def _changing(self, path: FilePath) -> Iterator[tuple[int, str, Quota]]:
        if self._quota is None:
            raise FileError("EROFS", "scripts may only read here")
        with self._quota.lock:
            self._quota.refresh(self._root)
            with self._parent(path) as (folder, name):
                yield folder, name, self._quota

    def _height(self, path: FilePath) -> int:
        """How many levels of folders there are below a folder."""
        level, height = [path], 0
        while level and height <= MAX_DEPTH:
            below: list[FilePath] = []
            for each in level:
                with opened_folder(self._root, each) as folder:
                    below += [
                        (*each, name) for name, status in entries(folder) if stat.S_ISDIR(status.st_mode)
                    ]
            level, height = below, height + 1
        return height - 1

    def _check_size(self, size: int) -> None:
        if size > self._file_bytes:
            raise FileError("EFBIG", f"larger than {self._file_limit}")


def _existing(folder: int, name: str) -> os.stat_result | None:
    try:
        return look(folder, name)
    except FileNotFoundError:
        return None


def _existing_file(folder: int, name: str) -> os.stat_result | None:
    status = _existing(folder, name)
    if status is not None:
        _check_writable(status)
    return status


def _check_writable(status: os.stat_result) -> None:
    check_kind(status)
    if stat.S_ISDIR(status.st_mode):
        raise FileError("EISDIR")
    if status.st_nlink > 1:
        raise FileError("EACCES", "a file of several names (hard links), of which some may be elsewhere")


def _replace(folder: int, name: str, content: bytes, mode: int | None) -> os.stat_result:
    """Write beside it, then put it in place at once. A file that is replaced keeps its permissions."""
    partial = f"{OURS}{secrets.token_hex(8)}.partial"
    file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
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
    """So many bytes, or what there is: a system may read fewer at a time."""
    content = bytearray()
    while len(content) < most and (more := os.read(file, most - len(content))):
        content += more
    return bytes(content)


def _is_abandoned(name: str, found: os.stat_result) -> bool:
    """A file whose writing was cut off with the portal's life."""
    return (
        name.startswith(OURS)
        and stat.S_ISREG(found.st_mode)
        and time.time() - found.st_mtime > _ABANDONED_SECONDS
    )
