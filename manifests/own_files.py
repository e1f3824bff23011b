"""Where the portal keeps what it makes for itself, and how it writes a file: whole, or not at all."""

import os
import stat
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from manifests.errors import ManifestError, Problem

_NAME = "mcp-code-portal"


def cache_folder(environ: Mapping[str, str]) -> Path:
    """For what can be made again: in $XDG_CACHE_HOME, or where the system has such things."""
    return _folder(environ, "XDG_CACHE_HOME", ".cache", "Library/Caches")


def state_folder(environ: Mapping[str, str]) -> Path:
    """For what was learnt and would be missed: in $XDG_STATE_HOME, or where the system has such things."""
    return _folder(environ, "XDG_STATE_HOME", ".local/state", "Library/Application Support")


def _folder(environ: Mapping[str, str], variable: str, usual: str, on_mac: str) -> Path:
    """A relative path in the variable is ignored, as the XDG Base Directory Specification says."""
    try:
        home = Path(environ.get("HOME") or "~").expanduser()
    except RuntimeError:  # in a container the user may have none; nothing is kept then
        home = Path("/")
    if sys.platform == "darwin":
        return home / on_mac / _NAME
    chosen = environ.get(variable, "")
    return (Path(chosen) if os.path.isabs(chosen) else home / usual) / _NAME


def is_private(folder: Path) -> bool:
    """Whether nobody but this user can put anything there."""
    try:
        status = folder.stat()
    except OSError:
        return False
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


PRIVATE: Final = 0o600
ORDINARY: Final = 0o666
"""For whom the user's own file mask allows."""

UNFINISHED: Final = ".new-"
"""How the name of a file begins that a process which died may have left behind."""


def read_capped(path: Path, max_bytes: int) -> tuple[bytes, int]:
    """What a file holds, and its mode.

    Raises:
        ManifestError: It cannot be read, is no file, or larger.
        FileNotFoundError: There is none.
    """
    try:
        # Whoever opened a pipe in its place would wait for a writer that never comes.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(max_bytes + 1) if stat.S_ISREG(mode) else None
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ManifestError([Problem(unreadable(error, path))], path.name) from None
    if content is None or len(content) > max_bytes:
        told = "is no file" if content is None else f"larger than {max_bytes} bytes"
        raise ManifestError([Problem(told)], path.name)
    return content, mode


def unreadable(error: OSError, path: Path) -> str:
    """With the whole path: a client that starts the portal may have another folder and other variables in mind."""
    return f"cannot be read: {error.strerror or 'unknown reason'}: {path.absolute()}"


def utf8(content: bytes, file: str) -> str:
    """Content as text.

    Raises:
        ManifestError: It is none.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        problem = Problem("not UTF-8", line, column, "Save the file as UTF-8.")
        raise ManifestError([problem], file) from None


def write_whole(
    path: Path,
    data: bytes,
    *,
    mode: int = PRIVATE,
    prepare: Callable[[int], None] | None = None,
    is_lasting: bool = True,
) -> None:
    """Replace the file at once. `prepare` gets the descriptor of the new file before that is to be seen.

    It waits until the disk has it all, unless it is not `is_lasting`, because it can be made again.

    Raises:
        OSError: It cannot be written; what was there before still is.
    """
    new = path.with_name(f"{UNFINISHED}{uuid4().hex}")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            if prepare is not None:
                prepare(file.fileno())
            file.write(data)
            if is_lasting:
                file.flush()
                os.fsync(file.fileno())
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink()
        raise
