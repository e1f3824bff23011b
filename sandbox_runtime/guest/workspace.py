"""The folder that a manifest grants: which names lie in it, and what the host says of them."""

import contextlib
import errno
import json
import os
import posixpath
import sqlite3
import stat
import weakref
import zlib
from typing import Any, TypeAlias

from sandbox_runtime.guest.calls import Calls
from sandbox_runtime.guest.tool_error import ToolError
from sandbox_runtime.guest.workspace_path import MOUNT, ROOT, Way, fault, way_of

Facts: TypeAlias = tuple[bool, int, int, str]
"""Of a file or folder: is it a folder, its bytes, its time of change in nanoseconds, its version."""

_FOLDER_MODE = stat.S_IFDIR | 0o755
_FILE_MODE = stat.S_IFREG | 0o644
_DEVICE = 1
_LOOKS = frozenset({"stat", "read", "list", "create", "rename", "remove", "rmdir"})
"""Operations that depend on what a file or folder holds."""


class WorkspaceFiles:
    """The open files, by numbers that no real descriptor has."""

    def __init__(self) -> None:
        self._files: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._held: dict[int, Any] = {}
        self._databases: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._last = 1000

    def add(self, file: Any) -> int:
        self._last += 1
        self._files[self._last] = file
        return self._last

    def add_database(self, database: Any) -> None:
        """An open one is kept here like a file, and has no number that a script could use."""
        self._last += 1
        self._databases[self._last] = database

    def save(self, place: str, *, is_folder: bool) -> None:
        """Give the host what was written to this file, or to those in this folder, before somebody looks at it.

        What it does not take now is not the looker's error: whoever wrote it is told when it is flushed or closed.
        """
        for file in [*self._files.values(), *self._databases.values()]:
            if file.place is None or place != (posixpath.dirname(file.place) if is_folder else file.place):
                continue
            with contextlib.suppress(OSError, ToolError, sqlite3.Error):
                file.flush()

    def hold(self, descriptor: int) -> int:
        """Keep a file open of which the script has nothing but the number."""
        self._held[descriptor] = self._files[descriptor]
        return descriptor

    def release(self, descriptor: int) -> Any:
        """The file of a number, which is now the asker's to close."""
        file = self._files[descriptor]
        self._held.pop(descriptor, None)
        return file

    def forget(self, descriptor: int) -> None:
        self._held.pop(descriptor, None)
        self._files.pop(descriptor, None)

    def get(self, descriptor: Any) -> Any:
        return self._files.get(descriptor) if isinstance(descriptor, int) else None

    def move(self, place: str, target: str | None) -> None:
        """A file or folder has another name now, or none any more; open files go along."""
        for file in [*self._files.values(), *self._databases.values()]:
            if file.place is not None and (file.place == place or file.place.startswith(place + "/")):
                file.place = None if target is None else target + file.place[len(place) :]


class Workspace:
    """What the patched functions of `io` and `os` ask. The host decides; here only words are found for it."""

    def __init__(self, calls: Calls) -> None:
        self.is_writable = False
        self.file_bytes = 0
        self.file_limit = ""
        """The same in words: its name, its value, and where it is set."""
        self.folder = MOUNT
        """The working directory."""
        self.files = WorkspaceFiles()
        self._calls = calls

    def locate(self, path: Any) -> str | None:
        """The path within the workspace, "" for the workspace itself, ROOT for that; None for anything elsewhere.

        Raises:
            TypeError, ValueError: No path is like this; as Python's own functions say it.
        """
        if isinstance(path, int) or path is None:
            return None
        name = os.fspath(path)
        if not name:
            return None  # Python's own function says that there is none
        if ("\0" if isinstance(name, str) else b"\0") in name:
            raise ValueError("embedded null byte")
        place = self._way(name).place
        if place is not None:
            place.encode()  # bytes that are no UTF-8 name nothing, here as in the host
        return place

    def enter(self, place: str) -> None:
        """Make a folder the working directory."""
        self.folder = place if place == ROOT else posixpath.join(MOUNT, place).rstrip("/")

    def ask(self, operation: str, shown: Any, place: str, **more: Any) -> Any:
        """Have the host do something; `shown` is the path as the script writes it.

        Raises:
            OSError: It was not done.
        """
        self.check("new" if more.get("must_be_new") else operation, shown)
        if place == ROOT:
            return _of_root(operation, self._send("stat", shown, ""))
        if operation in _LOOKS:
            self.files.save(place, is_folder=operation in ("list", "rmdir"))
        return self._send(operation, shown, place, **more)

    def give(self, operation: str, shown: Any, place: str, **more: Any) -> Any:
        """Have the host keep something of an open file, whatever its path leads to by now.

        Raises:
            OSError: It was not done.
        """
        return self._send(operation, shown, place, **more)

    def check(self, operation: str, shown: Any) -> None:
        """Raises OSError where the way to a name lets no system do this, see `workspace_path.fault`."""

        def is_folder(place: str) -> bool:
            return place in ("", ROOT) or self._send("stat", shown, place)[0] is True

        if number := fault(operation, self._way(os.fspath(shown)), is_folder):
            raise OSError(number, os.strerror(number), shown)

    def check_target(self, shown: Any, target: Any) -> None:
        """Raises OSError where the ways from one name to another let no system rename."""
        self.check("rename", shown)
        self.check("target", target)
        if os.fsdecode(target).endswith("/"):
            self.check("rename", posixpath.join(os.fsdecode(shown), ""))

    def _way(self, name: Any) -> Way:
        return way_of(self.folder, os.fsdecode(name))

    def _send(self, operation: str, shown: Any, place: str, **more: Any) -> Any:
        try:
            return self._calls.ask(f"portal.files.{operation}", json.dumps({"path": place, **more}))
        except ToolError as error:
            number = getattr(errno, error.code, None)
            if number is None:
                raise
            raise OSError(number, str(error) or os.strerror(number), shown) from None

    def facts(self, shown: Any, place: str) -> Facts:
        facts: Facts = tuple(self.ask("stat", shown, place))
        return facts

    def status(self, place: str, facts: Facts) -> os.stat_result:
        """What `os.stat` says; nothing here has an owner, or other times than that of its last change."""
        is_folder, size, changed_ns, _ = facts
        mode = _FOLDER_MODE if is_folder else _FILE_MODE
        if not self.is_writable or place == ROOT:
            mode &= ~0o222
        number = zlib.crc32(place.encode()) | 1 << 32
        seconds = changed_ns // 10**9
        fields = {f"st_{letter}time": changed_ns / 10**9 for letter in "amc"}
        fields |= {f"st_{letter}time_ns": changed_ns for letter in "amc"}
        return os.stat_result((mode, number, _DEVICE, 1, 0, 0, size, seconds, seconds, seconds), fields)


def _of_root(operation: str, mounted: Any) -> Any:
    """What is told of the folder that holds the workspace alone; nothing else can be done there."""
    return [[MOUNT[1:], mounted]] if operation == "list" else mounted
