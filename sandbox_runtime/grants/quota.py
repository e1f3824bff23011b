"""How much a workspace holds, and whether there is room for more."""

import os
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from sandbox_runtime.grants.file_error import FileError
from sandbox_runtime.grants.file_path import OURS, FilePath
from sandbox_runtime.grants.folder import entries, opened_folder

_COSTS_TO_WAIT = 20
_ABANDONED_SECONDS = 3600.0


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


def _is_abandoned(name: str, found: os.stat_result) -> bool:
    """A file whose writing was cut off with the portal's life."""
    return (
        name.startswith(OURS)
        and stat.S_ISREG(found.st_mode)
        and time.time() - found.st_mtime > _ABANDONED_SECONDS
    )
