"""Folders on disk that workspaces are opened in, and the portal's own folder for those that nobody keeps."""

import errno
import fcntl
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path

from manifests.grants import FileGrant
from sandbox_runtime.bounds import limit_text
from sandbox_runtime.errors import WorkspaceError
from sandbox_runtime.grants.file_path import OURS
from sandbox_runtime.grants.quota import Quota
from sandbox_runtime.grants.workspace import Workspace


class Place:
    """One folder and what it may hold. Everything blocks."""

    def __init__(
        self, folder: Path, grant: FileGrant, where: Callable[[str], str], *, is_made: bool = False
    ) -> None:
        """With `is_made` the folder need not be there: who may write has it made, and who only reads finds it empty."""
        name = partial(limit_text, grant, where=where)
        self._folder = folder
        self._is_made = is_made
        self._is_removed = False
        self._making = threading.Lock()
        self._file_bytes = grant.file_bytes
        self._file_limit = name("file_bytes")
        self._quota = Quota(grant.total_bytes, grant.total_files, name) if grant.mode == "write" else None

    def doubt(self) -> None:
        """Count anew what is there before the next change."""
        if self._quota is not None:
            self._quota.doubt()

    def open(self) -> Workspace:
        return self._opened(self._quota)

    def open_to_read(self) -> Workspace:
        return self._opened(None)

    def remove(self) -> None:
        """Remove it for good. A change that is under way ends before, and what was begun and given up finds nothing."""
        with self._making:
            self._is_removed = True
        with nullcontext() if self._quota is None else self._quota.lock:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _opened(self, quota: Quota | None) -> Workspace:
        with self._making:
            if self._is_removed:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            if self._is_made and quota is not None:
                self._folder.mkdir(mode=0o700, exist_ok=True)
            is_absent = self._is_made and _is_absent(self._folder)
            folder = None if is_absent else self._folder
            return Workspace(folder, quota, self._file_bytes, self._file_limit)


@contextmanager
def private_folder(workspace: Path) -> Iterator[Path]:
    """A folder in the workspace for what goes with a run or a session. It is removed at the end; what portals left that
    were killed is removed now: the system lets go of their locks.
    """
    for left in workspace.glob(f"{OURS}*"):
        with suppress(OSError), _locked(left):
            shutil.rmtree(left, ignore_errors=True)
    folder = workspace / f"{OURS}{secrets.token_hex(8)}"
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise WorkspaceError(
            f"no folders can be made in the workspace {workspace.name!r}: {error.strerror}"
        ) from None
    try:
        with _locked(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Raises OSError if another process holds it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _is_absent(folder: Path) -> bool:
    """Whether nothing is there; what cannot be looked at, or leads nowhere, is no empty folder."""
    try:
        folder.lstat()
    except FileNotFoundError:
        return True
    return False
