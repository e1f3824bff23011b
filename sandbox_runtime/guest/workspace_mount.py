"""Makes the workspace the script's files, if its run is granted one; without a grant nothing of Python is touched."""

import functools
import io
import os
import sqlite3
import sys
import tempfile
from typing import Any

from sandbox_runtime.guest import databases, workspace_imports
from sandbox_runtime.guest.calls import Calls
from sandbox_runtime.guest.tool_error import ToolError
from sandbox_runtime.guest.workspace import Workspace
from sandbox_runtime.guest.workspace_file import WorkspaceFile
from sandbox_runtime.guest.workspace_functions import WorkspaceFunctions
from sandbox_runtime.guest.workspace_open import OpenFiles, flags_of, wrapped
from sandbox_runtime.guest.workspace_path import MOUNT

_NAMES_OF_OPEN = (
    ("builtins", "open"),
    ("io", "open"),
    ("_io", "open"),
    ("tokenize", "_builtin_open"),
    ("tarfile", "bltn_open"),
)


_MAX_NOTICES = 10


class WorkspaceMount:
    """The workspace of an instance, mounted by its first run that is granted files, and for good."""

    def __init__(self, calls: Calls) -> None:
        self.is_mounted = False
        self._workspace = Workspace(calls)
        self._open_files = OpenFiles()
        self._unsaved: list[str] = []

    def mount(self, *, is_writable: bool, file_bytes: int, file_limit: str) -> None:
        self._workspace.is_writable = is_writable
        self._workspace.file_bytes = file_bytes
        self._workspace.file_limit = file_limit
        if self.is_mounted:
            return
        self.is_mounted = True
        opening = _Open(self._workspace, self._open_files)
        io.FileIO = sys.modules["_io"].FileIO = _file_io_of(opening)  # type: ignore[misc,attr-defined]
        for module, name in _NAMES_OF_OPEN:
            if module in sys.modules:
                setattr(sys.modules[module], name, opening)
        WorkspaceFunctions(self._workspace).install()
        # It took the original when it was imported.
        tempfile._TemporaryFileCloser.cleanup.__defaults__ = (False, os.unlink)  # type: ignore[attr-defined]
        databases.install(self._workspace, self._open_files)
        workspace_imports.install(opening)
        sys.unraisablehook = self._noting(sys.unraisablehook)
        if is_writable:
            tempfile.tempdir = MOUNT
            os.environ.setdefault("TMPDIR", MOUNT)

    def save(self) -> list[str]:
        """Give the host what open files still keep here; notices say what it did not take."""
        unsaved, self._unsaved = self._unsaved, []
        return [*unsaved[:_MAX_NOTICES], *self._open_files.save()] if self.is_mounted else []

    def _noting(self, original: Any) -> Any:
        """`open("f", "w").write(text)` saves when the file is let go of, where no error can be raised."""

        def hook(unraisable: Any) -> None:
            error = unraisable.exc_value
            if isinstance(error, (OSError, ToolError, sqlite3.Error)):
                self._unsaved.append(f"a file that was not closed is not saved: {error}")
            else:
                original(unraisable)

        return hook


class _Open:
    """`open`, for the workspace and all else. No function: one becomes a method of a class that holds it."""

    def __init__(self, workspace: Workspace, open_files: OpenFiles) -> None:
        self._workspace = workspace
        self._open_files = open_files
        self._original = io.open
        functools.update_wrapper(self, io.open)

    def __call__(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        if not self.has(file):
            return self._original(file, mode, buffering, encoding, errors, newline, closefd, opener)
        raw = self.raw(file, flags_of(mode), closefd, opener)
        if not isinstance(raw, WorkspaceFile):
            return self._original(raw, mode, buffering, encoding, errors, newline)
        opened = wrapped(raw, mode, buffering, encoding, errors, newline)
        if raw.writable():
            self._open_files.add(opened)
        return opened

    def has(self, file: Any) -> bool:
        """Whether it is a path in the workspace, or the number of an open file of it."""
        return self._workspace.locate(file) is not None or self._workspace.files.get(file) is not None

    def raw(self, file: Any, flags: int, closefd: bool, opener: Any) -> WorkspaceFile | int:
        """The file itself, or the number of one elsewhere that an opener came back with."""
        place = self._workspace.locate(file)
        if place is None:
            return self._of_number(file)
        if not closefd:
            raise ValueError("Cannot use closefd=False with file name")
        if opener is None:
            return WorkspaceFile(self._workspace, file, place, flags)
        number = opener(file, flags)
        if not isinstance(number, int):
            raise TypeError("expected integer from opener")
        if number < 0:
            raise ValueError(f"opener returned {number}")
        return number if self._workspace.files.get(number) is None else self._of_number(number, file)

    def _of_number(self, number: int, name: Any = None) -> WorkspaceFile:
        raw: WorkspaceFile = self._workspace.files.release(number)
        raw.name = number if name is None else name
        return raw


def _file_io_of(opening: _Open) -> Any:
    original: Any = io.FileIO

    class FileIO(original):  # type: ignore[misc]
        """Files of the workspace are of another class."""

        def __new__(
            cls, file: Any, mode: str = "r", closefd: bool = True, opener: Any = None, **more: Any
        ) -> Any:
            if not opening.has(file):
                return original.__new__(cls, file, mode, closefd, opener)
            letters = mode.replace("b", "")
            return opening(file, letters + "b", 0, None, None, None, closefd, opener)

    return FileIO
