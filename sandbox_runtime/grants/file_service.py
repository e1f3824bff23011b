"""The files of one run: each operation counted, in a thread, within a deadline."""

import binascii
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import anyio

from manifests.grants import FileGrant
from manifests.json_value import Json
from sandbox_runtime.grants.folder import FileError, FilePath, from_os, parse_path
from sandbox_runtime.grants.threads import Threads
from sandbox_runtime.grants.workspace import Workspace
from sandbox_runtime.guest_json import GuestJsonError, encode, parse, values_in
from sandbox_runtime.result import limit_text

FILE_PREFIX = "portal.files."
"""How functions of file operations begin; no namespace of a library is called `portal`."""

FileState: TypeAlias = Literal["done", "failed", "refused", "unknown"]

OPERATION_SECONDS = 20.0
"""What a slow disk may take for one operation. After that the script goes on, and the operation may still happen."""

_MAX_VALUES = 20
_READING = frozenset({"stat", "list", "read"})


@dataclass(frozen=True, slots=True)
class FileTally:
    """Operations of one kind that ended alike."""

    is_writing: bool
    state: FileState
    count: int
    ms: float


@dataclass(frozen=True, slots=True)
class FileAnswer:
    """What the guest is told, JSON without its brackets: `1, value` or `0, code, message, hint`.

    The told code is errno's name, where Python is to raise an OSError. `code` is set where the operation was not even
    tried, and is a reason that may end the run.
    """

    text: bytes
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
        self.is_in_doubt = False
        """Whether a change was under way when the run was interrupted: then none is made any more. A file that could
        not be saved is saved again when it is closed; twice would be wrong."""
        self._open_workspace = open_workspace
        self._where = where
        self._threads = threads
        self._workspace: Workspace | None = None
        self._operations = 0
        self._counts: Counter[tuple[bool, FileState]] = Counter()
        self._seconds: defaultdict[tuple[bool, FileState], float] = defaultdict(float)

    async def __call__(self, operation: str, arguments: bytes) -> FileAnswer:
        """Do one operation, if it may be done. Never raises for what the guest asked or the system said."""
        self._operations += 1
        is_writing = changes(operation)
        if is_writing and self.is_in_doubt:
            return FileAnswer(_told("EIO", "the run was interrupted, and whether this was done is not known"))
        if self._operations > self.grant.operations:
            self._counts[is_writing, "refused"] += 1
            told = f"{self.limit('operations')} is used up"
            return _refused("file_operations_limit", told, "Read and write whole files.")
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
            self._seconds[key] += time.monotonic() - began
        return FileAnswer(b"1," + encode(value))

    def limit(self, key: str) -> str:
        """For example "the limit operations of 10,000 (portal.yaml:14:5)"."""
        return limit_text(self.grant, key, self._where)

    def tallies(self) -> list[FileTally]:
        """What happened so far."""
        return [
            FileTally(*key, count, round(self._seconds[key] * 1000, 1)) for key, count in self._counts.items()
        ]

    def _operate(self, operation: str, arguments: bytes) -> Json:
        try:
            if self._workspace is None:
                self._workspace = self._open_workspace()
            return operate(self._workspace, operation, arguments)
        except OSError as error:
            raise from_os(error) from None


def changes(operation: str) -> bool:
    """Whether an operation may change the workspace."""
    return operation not in _READING


def operate(workspace: Workspace, operation: str, arguments: bytes) -> Json:
    """Do what a guest asks for; arguments are JSON, content is base64.

    Raises:
        FileError: It was not done; why.
        OSError: The system did not do it.
    """
    if values_in(arguments, _MAX_VALUES) > _MAX_VALUES:
        raise FileError("EINVAL", "no operation has so many arguments")
    try:
        given = parse(arguments)
    except GuestJsonError as error:
        raise FileError("EINVAL", str(error)) from None
    if operation not in _OPERATIONS or not isinstance(given, dict):
        raise FileError("EINVAL", "there is no such operation")
    return _OPERATIONS[operation](workspace, given)


def _read(workspace: Workspace, given: dict[str, Json]) -> Json:
    content, entry = workspace.read(_path(given))
    return [binascii.b2a_base64(content, newline=False).decode(), entry.told()]


def _create(workspace: Workspace, given: dict[str, Json]) -> Json:
    is_new, entry = workspace.create(_path(given), must_be_new=given.get("must_be_new") is True)
    return [is_new, entry.told()]


def _write(workspace: Workspace, given: dict[str, Json]) -> Json:
    expected = given.get("expected")
    if expected is not None and not isinstance(expected, str):
        raise FileError("EINVAL", "expected is a version")
    return workspace.write(_path(given), _content(given), expected).told()


def _append(workspace: Workspace, given: dict[str, Json]) -> Json:
    at = given.get("at")
    if at is not None and type(at) is not int:
        raise FileError("EINVAL", "at is a number of bytes")
    return workspace.append(_path(given), _content(given), at).told()


_OPERATIONS: dict[str, Callable[[Workspace, dict[str, Json]], Json]] = {
    "stat": lambda workspace, given: workspace.look(_path(given)).told(),
    "list": lambda workspace, given: [
        [name, entry.told()] for name, entry in workspace.listing(_path(given))
    ],
    "read": _read,
    "create": _create,
    "write": _write,
    "append": _append,
    "mkdir": lambda workspace, given: workspace.make_folder(_path(given)),
    "remove": lambda workspace, given: workspace.remove(_path(given)),
    "rmdir": lambda workspace, given: workspace.remove_folder(_path(given)),
    "rename": lambda workspace, given: workspace.rename(_path(given), _path(given, "target")),
}


def _path(given: dict[str, Json], key: str = "path") -> FilePath:
    text = given.get(key)
    if not isinstance(text, str):
        raise FileError("EINVAL", f"{key} is text")
    return parse_path(text)


def _content(given: dict[str, Json]) -> bytes:
    text = given.get("base64")
    try:
        if isinstance(text, str):
            return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:  # text that is not ASCII is one, too
        pass
    raise FileError("EINVAL", "content is base64")


def _refused(code: str, message: str, hint: str) -> FileAnswer:
    return FileAnswer(_told(code, message, hint), code)


def _told(code: str, message: str, hint: str = "") -> bytes:
    return encode([0, code, message, hint])[1:-1]


NOT_GRANTED = _refused(
    "not_granted", "scripts are granted no files", "An operator can grant a folder with capabilities.files."
)
"""The answer where there is no service at all."""
