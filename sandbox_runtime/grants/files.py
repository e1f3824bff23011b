"""Files of runs: their folders and their operations, which are counted, threaded and limited in time."""

import asyncio
import binascii
import errno
import fcntl
import os
import secrets
import shutil
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, Protocol, TypeAlias

import anyio
import anyio.to_thread
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from manifests.grants import NO_TENANT, FileGrant
from manifests.json_value import Json
from sandbox_runtime.errors import WorkspaceError
from sandbox_runtime.frames import FrameError
from sandbox_runtime.grants.workspace import (
    RESERVED_PREFIX,
    FileError,
    FilePath,
    Quota,
    Workspace,
    parse_path,
)
from sandbox_runtime.guest_json import GuestJsonError, encode, parse, values_in
from sandbox_runtime.result import limit_text

FILE_PREFIX = "portal.files."
"""Prefix of the functions for file operations. No namespace can be called `portal`."""

FileState: TypeAlias = Literal["done", "failed", "refused", "unknown"]

OPERATION_SECONDS = 20.0
"""Time limit of one operation. After it the script continues, and the operation may still happen."""

_THREADS = 8
_MAX_VALUES = 20
_READING = frozenset({"stat", "list", "read"})


def changes(operation: str) -> bool:
    """Whether an operation may change the workspace."""
    return operation not in _READING


@dataclass(slots=True)
class FileTally:
    """Counts operations of one kind with the same state."""

    is_writing: bool
    state: FileState
    count: int = 0
    ms: float = 0.0


@dataclass(frozen=True, slots=True)
class FileAnswer:
    """The answer for the guest, as JSON without brackets: `1, value` or `0, code, message, hint`.

    There the code is an errno name if Python should raise an OSError. The field `code` is set if the operation was
    refused; the run may then end with that code.
    """

    text: bytes
    code: str = ""


@dataclass(eq=False)
class FileService:
    """Answers the file operations of one run, one at a time.

    `open_workspace` is called in a thread before the first one; `where` gives the place of a limit.
    """

    grant: FileGrant
    open_workspace: Callable[[], Workspace]
    where: Callable[[str], str]
    threads: ThreadPoolExecutor
    is_in_doubt: bool = False
    """Whether the run was interrupted during a change. Then all further changes are refused, because closing a file
    retries a failed save, and the change could happen twice."""
    before_change: Callable[[], Awaitable[None]] | None = None
    """Awaited before each operation that may change a file. If it raises, nothing is changed, and the run ends."""
    after: Callable[[], Awaitable[None]] | None = None
    """Awaited after each operation, before the script learns anything by it. If it raises, the run ends."""
    shared: str = ""
    """The tenant's folder in the workspace, if there is one for each tenant."""
    is_busy: bool = False
    """Whether an operation is in progress."""
    operations: int = 0
    """How many the run has begun."""
    _workspace: Workspace | None = None
    _tallies: dict[tuple[bool, FileState], FileTally] = field(default_factory=dict)

    async def __call__(self, operation: str, arguments: bytes) -> FileAnswer:
        """Perform one operation. System errors become answers. Raises FrameError: the guest violated the protocol."""
        self.operations += 1
        is_writing = changes(operation)
        if is_writing and self.is_in_doubt:
            return FileAnswer(
                _error_json("EIO", "the run was interrupted; the change may or may not have happened")
            )
        if self.operations > self.grant.operations:
            self._count(is_writing, "refused")
            message = f"{self.limit('operations')} is used up"
            return _refused("file_operations_limit", message, "Read and write whole files.")
        self.is_busy = True
        if is_writing and self.before_change is not None:
            await self.before_change()
        state: FileState = "unknown" if is_writing else "failed"
        began = time.monotonic()
        try:
            with anyio.fail_after(OPERATION_SECONDS):
                # A cancelled wait leaves its thread running; the pool limits how many.
                loop = asyncio.get_running_loop()
                value = await loop.run_in_executor(self.threads, self._operate, operation, arguments)
            state, answer = "done", FileAnswer(b"1," + encode(value))
        except FileError as error:
            state, answer = "failed", FileAnswer(_error_json(error.name, error.message))
        except TimeoutError:
            message = "the disk did not answer; a change may still happen"
            answer = FileAnswer(_error_json("ETIMEDOUT", message))
        finally:
            self._count(is_writing, state, time.monotonic() - began)
        if self.after is not None:  # not after a cancellation: the run is over, and `after` may wait for long
            await self.after()
        self.is_busy = False
        return answer

    def limit(self, key: str) -> str:
        return limit_text(self.grant, key, self.where)

    def tallies(self) -> list[FileTally]:
        return [*self._tallies.values()]

    def _count(self, is_writing: bool, state: FileState, seconds: float = 0.0) -> None:
        tally = self._tallies.setdefault((is_writing, state), FileTally(is_writing, state))
        tally.count += 1
        tally.ms += seconds * 1000

    def _operate(self, operation: str, arguments: bytes) -> Json:
        request = _FileRequest.read(arguments)
        if operation not in _OPERATIONS:
            raise FrameError("a file operation that does not exist")
        path = parse_path(request.path)
        try:
            if self._workspace is None:
                self._workspace = self.open_workspace()
            return _OPERATIONS[operation](self._workspace, path, request)
        except OSError as error:
            raise FileError.from_os(error) from None


def _refused(code: str, message: str, hint: str) -> FileAnswer:
    return FileAnswer(_error_json(code, message, hint), code)


def _error_json(code: str, message: str, hint: str = "") -> bytes:
    return encode([0, code, message, hint])[1:-1]


NOT_GRANTED = _refused(
    "not_granted",
    "file access is not granted",
    "Only the operator can grant a folder (capabilities.files): ask them.",
)
"""The answer if no files are granted."""


class _FileRequest(BaseModel):
    """The arguments of an operation. Anything that our guest would not send is a protocol violation."""

    model_config = ConfigDict(extra="forbid", strict=True)

    path: str
    target: str = ""
    base64: Annotated[bytes, BeforeValidator(partial(binascii.a2b_base64, strict_mode=True))] = b""
    expected: str | None = None
    must_be_new: bool = False

    @classmethod
    def read(cls, arguments: bytes) -> "_FileRequest":
        try:
            if values_in(arguments, _MAX_VALUES) <= _MAX_VALUES:
                return cls.model_validate(parse(arguments))
        except (GuestJsonError, ValidationError, TypeError):  # TypeError: content that is not a string
            pass
        raise FrameError("invalid arguments of a file operation")


_OPERATIONS: dict[str, Callable[[Workspace, FilePath, _FileRequest], Json]] = {
    "stat": lambda workspace, path, _: workspace.look(path),
    "list": lambda workspace, path, _: workspace.listing(path),
    "read": lambda workspace, path, _: workspace.read(path),
    "create": lambda workspace, path, request: workspace.create(path, must_be_new=request.must_be_new),
    "write": lambda workspace, path, request: workspace.write(path, request.base64, request.expected),
    "append": lambda workspace, path, request: workspace.append(path, request.base64),
    "mkdir": lambda workspace, path, _: workspace.make_folder(path),
    "remove": lambda workspace, path, _: workspace.remove(path),
    "rmdir": lambda workspace, path, _: workspace.remove_folder(path),
    "rename": lambda workspace, path, request: workspace.rename(path, parse_path(request.target)),
}


class Owner(Protocol):
    """A session, which has its own files while it is alive."""

    @property
    def alive(self) -> bool: ...


@asynccontextmanager
async def open_workspaces(
    grant: FileGrant | None, folder: Path, where: Callable[[str], str]
) -> AsyncIterator["Workspaces"]:
    """Prepare the granted folder. Its path is relative to `folder`; `where` gives the place of a limit.

    Raises WorkspaceError: the folder does not exist, or the portal cannot access it as granted.
    """
    if grant is None:
        yield Workspaces(None, folder, where)
        return
    workspace = await anyio.to_thread.run_sync(_usable, grant, folder)
    is_private = grant.share in ("session", "run")
    with _private_folder(workspace) if is_private else nullcontext(workspace) as inner:
        yield Workspaces(grant, inner, where)


class Workspaces:
    """Gives each run its files: those of all runs, of its tenant, of its session, or its own."""

    def __init__(self, grant: FileGrant | None, folder: Path, where: Callable[[str], str]) -> None:
        """`folder` has the files of all runs, or the folders of tenants, sessions and runs."""
        self._grant = grant
        self._folder = folder
        self._where = where
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="files")
        self._shared: dict[str, Place] = {}
        self._owned: dict[Owner, Place] = {}

    @asynccontextmanager
    async def files(
        self, owner: Owner | None, tenant: str | None = None, *, to_read: bool = False
    ) -> AsyncIterator[FileService | None]:
        """The files of one run of `owner`; None if none are granted. A run's private folder is removed at the end.

        `tenant` is a name from the manifest. With `to_read` shared files are read-only for this run.
        """
        grant = self._grant
        if grant is None:
            yield None
        elif grant.share in ("all", "tenant"):
            # All runs of a tenant share one quota.
            name = (tenant or NO_TENANT) if grant.share == "tenant" else ""
            place = self._shared.setdefault(
                name, Place(self._folder / name, grant, self._where, is_below=bool(name))
            )
            effective = grant.model_copy(update={"mode": "read"}) if to_read else grant
            opening = partial(place.open, to_read=to_read)
            yield FileService(effective, opening, self._where, self._threads, shared=name)
        else:
            await self._sweep()
            place = Place(self._folder / secrets.token_hex(8), grant, self._where)
            if owner is not None and grant.share == "session":
                place = self._owned.setdefault(owner, place)
            try:
                yield FileService(grant, place.open, self._where, self._threads)
            finally:
                if place not in self._owned.values():
                    await self._remove(place)

    async def _sweep(self) -> None:
        """Remove the files of sessions that have ended."""
        for owner in [owner for owner in self._owned if not owner.alive]:
            # Another run may be sweeping at the same time.
            if (place := self._owned.pop(owner, None)) is not None:
                await self._remove(place)

    async def _remove(self, place: "Place") -> None:
        # With a hanging disk the removal continues in the background.
        with anyio.move_on_after(OPERATION_SECONDS, shield=True):
            await asyncio.get_running_loop().run_in_executor(self._threads, place.remove)


def _usable(grant: FileGrant, folder: Path) -> Path:
    workspace = (folder / grant.workspace).resolve()
    needed = os.R_OK | os.X_OK | (os.W_OK if grant.mode == "write" else 0)
    if not workspace.is_dir():
        raise WorkspaceError(f"the workspace {grant.workspace!r} does not exist or is not a folder")
    if not os.access(workspace, needed):
        raise WorkspaceError(
            f"the portal has no permission to {grant.mode} in the workspace {grant.workspace!r}"
        )
    return workspace


class Place:
    """One folder and its quota. The folder is created on first use. All methods block."""

    def __init__(
        self, folder: Path, grant: FileGrant, where: Callable[[str], str], *, is_below: bool = False
    ) -> None:
        """`is_below` says that it is a folder in the workspace, not the workspace itself."""
        name = partial(limit_text, grant, where=where)
        self._is_below = is_below
        self._folder = folder
        self._is_removed = False
        self._making = threading.Lock()
        self._file_bytes = grant.file_bytes
        self._file_limit = name("file_bytes")
        self._quota = Quota(grant.total_bytes, grant.total_files, name) if grant.mode == "write" else None

    def open(self, *, to_read: bool = False) -> Workspace:
        """Open it for one run. The files are counted again before the run's first change."""
        quota = None if to_read else self._quota
        if quota is not None:
            quota.is_stale = True
        with self._making:
            if self._is_removed:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            with suppress(OSError):  # opening it below fails if it does not exist
                self._folder.mkdir(mode=0o700)
            if self._is_below and self._folder.is_symlink():  # it may lead to the manifest and its secrets
                raise NotADirectoryError(errno.ENOTDIR, "it is a link")
            return Workspace(self._folder, quota, self._file_bytes, self._file_limit)

    def remove(self) -> None:
        """Remove it permanently, after a change in progress. Abandoned operations find nothing."""
        with self._making:
            self._is_removed = True
        with nullcontext() if self._quota is None else self._quota.lock:
            shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def _private_folder(workspace: Path) -> Iterator[Path]:
    """A temporary folder in the workspace for runs and sessions, removed at the end.

    Also removes the unlocked folders of portals that were killed.
    """
    for left in workspace.glob(f"{RESERVED_PREFIX}*"):
        with suppress(OSError), _locked(left):
            shutil.rmtree(left, ignore_errors=True)
    folder = workspace / f"{RESERVED_PREFIX}{secrets.token_hex(8)}"
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        message = f"cannot create folders in the workspace {workspace.name!r}: {error.strerror}"
        raise WorkspaceError(message) from None
    try:
        with _locked(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder. Raises OSError: another process has locked it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
