"""Who has which workspace: one for all runs, one for each tenant, one for each session, or one for each run."""

import errno
import fcntl
import os
import secrets
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread

from manifests.grants import NO_TENANT, FileGrant
from sandbox_runtime.errors import WorkspaceError
from sandbox_runtime.grants.file_service import OPERATION_SECONDS, FileService
from sandbox_runtime.grants.folder import OURS
from sandbox_runtime.grants.threads import Threads
from sandbox_runtime.grants.workspace import Quota, Workspace
from sandbox_runtime.result import limit_text

_THREADS = 8


class Owner(Protocol):
    """Something that has files of its own as long as it lives: a session."""

    @property
    def alive(self) -> bool: ...


@asynccontextmanager
async def open_workspaces(
    grant: FileGrant | None, folder: Path, where: Callable[[str], str]
) -> AsyncIterator["Workspaces"]:
    """Make ready what `grant` grants; its path is relative to `folder`, and `where` says where a limit is set.

    Raises:
        WorkspaceError: The folder is not there, or the portal may not use it as granted.
    """
    async with AsyncExitStack() as stack:
        workspace = None if grant is None else await anyio.to_thread.run_sync(_usable, grant, folder)
        private = None
        if grant is not None and workspace is not None and grant.share in ("session", "run"):
            private = stack.enter_context(private_folder(workspace))
        yield Workspaces(grant, workspace, private, where)


class Workspaces:
    """Gives each run its files."""

    def __init__(
        self,
        grant: FileGrant | None,
        workspace: Path | None,
        private: Path | None,
        where: Callable[[str], str],
    ) -> None:
        self._grant = grant
        self._private = private
        self._where = where
        self._threads = Threads(_THREADS)
        self._workspace = workspace
        self._shared: dict[str, Place] = {}
        self._owned: dict[Owner, Place] = {}

    @asynccontextmanager
    async def files(
        self, owner: Owner | None, tenant: str | None = None, *, to_read: bool = False
    ) -> AsyncIterator[FileService | None]:
        """The files of one run of `owner`, None where none are granted. What nobody keeps is removed afterwards.

        `tenant` is a name that the manifest has. With `to_read` the run may not change what others share with it.
        """
        if self._grant is None or self._workspace is None:
            yield None
        elif self._private is None:
            place = self._shared_place(self._grant, self._workspace, tenant)
            place.doubt()
            grant = self._grant.model_copy(update={"mode": "read"}) if to_read else self._grant
            yield FileService(grant, partial(place.open, to_read=to_read), self._where, self._threads)
        else:
            await self._sweep()
            place = self._place(self._grant, self._private, owner)
            place.doubt()
            try:
                yield FileService(self._grant, place.open, self._where, self._threads)
            finally:
                if place not in self._owned.values():
                    await self._remove(place)

    def _shared_place(self, grant: FileGrant, workspace: Path, tenant: str | None) -> "Place":
        """One for all runs of a tenant: they have one quota."""
        folder = workspace / (tenant or NO_TENANT) if grant.share == "tenant" else workspace
        place = self._shared.get(folder.name)
        if place is None:
            place = self._shared[folder.name] = Place(folder, grant, self._where)
        return place

    def _place(self, grant: FileGrant, private: Path, owner: Owner | None) -> "Place":
        place = None if owner is None else self._owned.get(owner)
        if place is None:
            place = Place(private / secrets.token_hex(8), grant, self._where)
            if owner is not None and grant.share == "session":
                self._owned[owner] = place
        return place

    async def _sweep(self) -> None:
        """Remove the files of sessions that have ended."""
        for owner in [owner for owner in self._owned if not owner.alive]:
            # Another run may be sweeping, too.
            if (place := self._owned.pop(owner, None)) is not None:
                await self._remove(place)

    async def _remove(self, place: "Place") -> None:
        # A disk that hangs keeps nobody for ever; then it is removed when it answers.
        with anyio.move_on_after(OPERATION_SECONDS, shield=True):
            await self._threads.run(place.remove)


def _usable(grant: FileGrant, folder: Path) -> Path:
    workspace = (folder / grant.workspace).resolve()
    needed = os.R_OK | os.X_OK | (os.W_OK if grant.mode == "write" else 0)
    if not workspace.is_dir():
        raise WorkspaceError(f"the workspace {grant.workspace!r} is not there, or is no folder")
    if not os.access(workspace, needed):
        raise WorkspaceError(f"the portal itself may not {grant.mode} in the workspace {grant.workspace!r}")
    return workspace


class Place:
    """One folder, which is made when it is first used, and what it may hold. Everything blocks."""

    def __init__(self, folder: Path, grant: FileGrant, where: Callable[[str], str]) -> None:
        name = partial(limit_text, grant, where=where)
        self._folder = folder
        self._is_removed = False
        self._making = threading.Lock()
        self._file_bytes = grant.file_bytes
        self._file_limit = name("file_bytes")
        self._quota = Quota(grant.total_bytes, grant.total_files, name) if grant.mode == "write" else None

    def doubt(self) -> None:
        """Count anew what is there before the next change."""
        if self._quota is not None:
            self._quota.doubt()

    def open(self, *, to_read: bool = False) -> Workspace:
        with self._making:
            if self._is_removed:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            with suppress(OSError):  # whether it is there, its opening tells
                self._folder.mkdir(mode=0o700)
            return Workspace(
                self._folder, None if to_read else self._quota, self._file_bytes, self._file_limit
            )

    def remove(self) -> None:
        """Remove it for good. A change that is under way ends before, and what was begun and given up finds nothing."""
        with self._making:
            self._is_removed = True
        with nullcontext() if self._quota is None else self._quota.lock:
            shutil.rmtree(self._folder, ignore_errors=True)


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
