"""The files of one run: each operation counted, in a thread, within a deadline."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import anyio

from manifests.grants import FileGrant
from sandbox_runtime.bounds import limit_text
from sandbox_runtime.calls import CallError
from sandbox_runtime.grants.file_error import FileError, from_os
from sandbox_runtime.grants.file_operations import Told, changes, operate
from sandbox_runtime.grants.threads import Threads
from sandbox_runtime.grants.workspace import Workspace
from sandbox_runtime.guest_json import encode

FileState: TypeAlias = Literal["done", "failed", "refused", "unknown"]

OPERATION_SECONDS = 20.0
"""What a slow disk may take for one operation. After that the script goes on, and the operation may still happen."""


@dataclass(frozen=True, slots=True)
class FileTally:
    """Operations of one kind that ended alike."""

    is_writing: bool
    state: FileState
    count: int
    ms: float


@dataclass(frozen=True, slots=True)
class FileAnswer:
    """What the guest is told, JSON without its brackets, in pieces: `1, value` or `0, code, message, hint`.

    The told code is errno's name, where Python is to raise an OSError. `code` is set where the operation was not even
    tried, and is a reason that may end the run.
    """

    text: Told
    code: str = ""


class FileService:
    """Answers the file operations of one run, one after the other."""

    def __init__(
        self,
        grant: FileGrant,
        open_workspace: Callable[[], Workspace],
        where: Callable[[str], str],
        threads: Threads,
    ) -> None:
        """`open_workspace` is called in a thread, before the first operation; `where` says where a limit is set."""
        self.grant = grant
        self._open_workspace = open_workspace
        self._where = where
        self._threads = threads
        self._workspace: Workspace | None = None
        self._operations = 0
        self._counts: Counter[tuple[bool, FileState]] = Counter()
        self._seconds: dict[tuple[bool, FileState], float] = {}

    async def __call__(self, operation: str, arguments: memoryview) -> FileAnswer:
        """Do one operation, if it may be done. Never raises for what the guest asked or the system said."""
        self._operations += 1
        is_writing = changes(operation)
        if self._operations > self.grant.operations:
            self._counts[is_writing, "refused"] += 1
            return _refused(self._used_up())
        key: tuple[bool, FileState] = (is_writing, "unknown" if is_writing else "failed")
        began = time.monotonic()
        try:
            with anyio.fail_after(OPERATION_SECONDS):
                value = await self._threads.run(partial(self._operate, operation, arguments))
            key = (is_writing, "done")
        except FileError as error:
            key = (is_writing, "failed")
            return FileAnswer(_told(error.name, error.message))
        except TimeoutError:
            return FileAnswer(_told("ETIMEDOUT", "the disk did not answer; a change may still happen"))
        finally:
            self._counts[key] += 1
            self._seconds[key] = self._seconds.get(key, 0.0) + time.monotonic() - began
        return FileAnswer([b"1,", *value])

    def limit(self, key: str) -> str:
        """For example "the limit operations of 10,000 (portal.yaml:14:5)"."""
        return limit_text(self.grant, key, self._where)

    def tallies(self) -> list[FileTally]:
        """What happened so far."""
        return [
            FileTally(is_writing, state, count, round(self._seconds.get((is_writing, state), 0.0) * 1000, 1))
            for (is_writing, state), count in self._counts.items()
        ]

    def _operate(self, operation: str, arguments: memoryview) -> Told:
        if self._workspace is None:
            try:
                self._workspace = self._open_workspace()
            except OSError as error:
                raise from_os(error) from None
        return operate(self._workspace, operation, arguments)

    def _used_up(self) -> CallError:
        told = f"{self.limit('operations')} is used up"
        return CallError("file_operations_limit", told, "Read and write whole files.")


def _refused(error: CallError) -> FileAnswer:
    return FileAnswer(_told(error.code, error.message, error.hint), error.code)


def _told(code: str, message: str, hint: str = "") -> Told:
    return [encode([0, code, message, hint])[1:-1]]


NOT_GRANTED = _refused(
    CallError(
        "not_granted",
        "scripts are granted no files",
        "An operator can grant a folder with capabilities.files.",
    )
)
"""The answer where there is no service at all."""

OUTCOME_UNKNOWN = FileAnswer(_told("EIO", "the run was interrupted, and whether this was done is not known"))
"""The answer to a change that was under way when its run was interrupted."""
