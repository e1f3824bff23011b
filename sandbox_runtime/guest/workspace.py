"""The folder that a manifest grants: which names lie in it, what the host says of them, and what is open in it."""

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
from sandbox_runtime.guest.errors import ToolError

MOUNT = "/workspace"
"""Where scripts see the folder. It is also their working directory."""

Facts: TypeAlias = tuple[bool, int, int, str]
"""Of a file or folder: is it a folder, its bytes, its time of change in nanoseconds, its version."""

_DEVICE = 1
_MAX_NOTICES = 10
_LOOKS = frozenset({"stat", "read", "list", "create", "rename", "remove", "rmdir"})
"""Operations that depend on what a file or folder holds."""


class Workspace:
    """What the patched functions of `io` and `os` ask. The host decides; here only words are found for it.

    Paths are followed by their words alone: there are no links.
    """

    def __init__(self, calls: Calls) -> None:
        self.is_writable = False
        self.file_bytes = 0
        self.file_limit = ""
        """The same in words: its name, its value, and where it is set."""
        self.folder = MOUNT
        """The working directory."""
        self._calls = calls
        self._last = 1000  # no real descriptor has such a number
        self._opened: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._held: dict[int, Any] = {}
        self._writers: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    # Names.

    def locate(self, path: Any) -> str | None:
        """The path within the workspace, "" for the workspace itself; None for anything elsewhere.

        Raises:
            TypeError, ValueError: No path is like this; as Python's own functions say it.
        """
        if isinstance(path, int) or path is None:
            return None
        name = os.fsdecode(path)
        if not name:
            return None  # Python's own function says that there is none
        if "\0" in name:
            raise ValueError("embedded null byte")
        whole = posixpath.normpath("/" + posixpath.join(self.folder, name).lstrip("/"))
        if whole != MOUNT and not whole.startswith(MOUNT + "/"):
            return None
        place = whole[len(MOUNT) + 1 :]
        place.encode()  # bytes that are no UTF-8 name nothing, here as in the host
        return place

    def enter(self, place: str) -> None:
        """Make a folder the working directory."""
        self.folder = posixpath.join(MOUNT, place).rstrip("/")

    # What the host does.

    def ask(self, operation: str, shown: Any, place: str, **more: Any) -> Any:
        """Have the host do something; `shown` is the path as the script writes it.

        Raises:
            OSError: It was not done.
        """
        if operation in _LOOKS:
            self._save(place, is_folder=operation in ("list", "rmdir"))
        return self.give(operation, shown, place, **more)

    def give(self, operation: str, shown: Any, place: str, **more: Any) -> Any:
        """The same without saving first what is open."""
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
        mode = stat.S_IFDIR | 0o755 if is_folder else stat.S_IFREG | 0o644
        if not self.is_writable:
            mode &= ~0o222
        number = zlib.crc32(place.encode()) | 1 << 32
        seconds = changed_ns // 10**9
        fields = {f"st_{letter}time": changed_ns / 10**9 for letter in "amc"}
        fields |= {f"st_{letter}time_ns": changed_ns for letter in "amc"}
        return os.stat_result((mode, number, _DEVICE, 1, 0, 0, size, seconds, seconds, seconds), fields)

    # What is open.

    def add(self, file: Any) -> int:
        """Know an open file or database, which has a `place` and can be flushed. Returns its number."""
        self._last += 1
        self._opened[self._last] = file
        return self._last

    def add_writer(self, file: Any) -> None:
        """Flush it at the end of the run: a script may forget to close it."""
        self._last += 1
        self._writers[self._last] = file

    def file(self, descriptor: Any) -> Any:
        """The open file of a number, or None."""
        return self._opened.get(descriptor) if isinstance(descriptor, int) else None

    def hold(self, descriptor: int) -> int:
        """Keep a file open of which the script has nothing but the number."""
        self._held[descriptor] = self._opened[descriptor]
        return descriptor

    def release(self, descriptor: int) -> Any:
        """The file of a number, which is now the asker's to close."""
        file = self._opened[descriptor]
        self._held.pop(descriptor, None)
        return file

    def forget(self, descriptor: int) -> None:
        self._held.pop(descriptor, None)
        self._opened.pop(descriptor, None)

    def move(self, place: str, target: str | None) -> None:
        """A file or folder has another name now, or none any more; open files go along."""
        for file in self._opened.values():
            if file.place is not None and (file.place == place or file.place.startswith(place + "/")):
                file.place = None if target is None else target + file.place[len(place) :]

    def save_all(self) -> list[str]:
        """Give the host what is still kept here. Notices say what it did not take."""
        notices = []
        for _, file in sorted(self._writers.items()):
            try:
                if not file.closed:
                    file.flush()
            except Exception as error:  # noqa: BLE001  # whatever kept it: the script has ended, and is to be told
                notices.append(f"{str(file.name)!r} was not closed, and cannot be saved: {error}")
        return notices[:_MAX_NOTICES]

    def _save(self, place: str, *, is_folder: bool) -> None:
        """Save what was written to this file, or to those in this folder, before somebody looks at it.

        What the host does not take now is not the looker's error: its writer is told at the next flush or close.
        """
        for file in [*self._opened.values()]:
            if file.place is not None and place == (
                posixpath.dirname(file.place) if is_folder else file.place
            ):
                with contextlib.suppress(OSError, ToolError, sqlite3.Error):
                    file.flush()
