"""`open` for files of the workspace."""

import io
import os
import weakref
from typing import Any

from sandbox_runtime.guest.workspace_file import WorkspaceFile

_FLAGS = {
    "r": os.O_RDONLY,
    "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
}


class SavingWriter(io.BufferedWriter):
    """A flush reaches the host."""

    def flush(self) -> None:
        super().flush()
        self.raw.flush()


class SavingRandom(io.BufferedRandom):
    """A flush reaches the host."""

    def flush(self) -> None:
        super().flush()
        self.raw.flush()


class OpenFiles:
    """Files that are open for writing, in the order of their opening; a script may forget to close one."""

    def __init__(self) -> None:
        self._files: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._opened = 0

    def add(self, file: Any) -> None:
        self._opened += 1
        self._files[self._opened] = file

    def save(self) -> list[str]:
        """Give the host what is still kept here, and say what it did not take."""
        notices = []
        for _, file in sorted(self._files.items()):
            try:
                if not file.closed:
                    file.flush()
            except Exception as error:  # noqa: BLE001  # whatever kept it: the script has ended, and is to be told
                notices.append(f"{str(file.name)!r} was not closed, and cannot be saved: {error}")
        return notices[:10]


def flags_of(mode: str) -> int:
    """What `os.open` would be given for a mode of `open`.

    Raises:
        ValueError: As `open` says it.
    """
    letters = set(mode)
    if letters - set("rwxabt+") or len(mode) > len(letters):
        raise ValueError(f"invalid mode: {mode!r}")
    if {"t", "b"} <= letters:
        raise ValueError("can't have text and binary mode at once")
    if len(letters & set("rwxa")) != 1:
        raise ValueError("must have exactly one of create/read/write/append mode")
    flags = _FLAGS[(letters & set("rwxa")).pop()]
    return flags & ~(os.O_WRONLY | os.O_RDONLY) | os.O_RDWR if "+" in letters else flags


def wrapped(
    raw: WorkspaceFile,
    mode: str,
    buffering: int,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
) -> Any:
    """The file object that `open` returns for a raw file."""
    is_binary = "b" in mode
    if is_binary and (encoding, errors, newline) != (None, None, None):
        raise ValueError("binary mode doesn't take an encoding, errors or newline argument")
    if buffering == 0:
        if not is_binary:
            raise ValueError("can't have unbuffered text I/O")
        return raw
    size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
    buffer: Any
    if "+" in mode:
        buffer = SavingRandom(raw, size)
    elif raw.writable():
        buffer = SavingWriter(raw, size)
    else:
        buffer = io.BufferedReader(raw, size)
    if is_binary:
        return buffer
    text = io.TextIOWrapper(buffer, encoding, errors, newline, line_buffering=buffering == 1)
    text.mode = mode  # type: ignore[misc]  # open itself does so
    return text
