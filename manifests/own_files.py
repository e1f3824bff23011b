"""Where the portal keeps what it makes for itself, how it reads and writes files, and portal.lock: what each
tool, and the instructions of each upstream, were when the operator accepted them.
"""

import hashlib
import json
import os
import stat
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final
from uuid import uuid4

from manifests.errors import ManifestError, Problem
from manifests.json_value import Json

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


@dataclass(frozen=True)
class Pin:
    """`tool` is the tool's own name, None for the upstream's instructions, whose text is the `description` then.

    `definition` is the rest of what a tool says of itself, as it was sent: title, inputSchema, outputSchema,
    annotations and inputExamples.
    """

    upstream: str
    tool: str | None
    description: str
    definition: Mapping[str, Json] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """`files.read_file`, or `files` for the instructions."""
        return self.upstream if self.tool is None else f"{self.upstream}.{self.tool}"

    @cached_property
    def digest(self) -> str | None:
        """The hash of everything in it; None if it cannot be written, because it nests too deep."""
        whole = {"upstream": self.upstream, "tool": self.tool, "description": self.description}
        try:
            return hashlib.sha256(_canonical({**whole, "definition": self.definition}).encode()).hexdigest()
        except (RecursionError, TypeError, ValueError):
            return None

    @property
    def line(self) -> str | None:
        """How it stands in the lockfile; None if it cannot be written.

        ASCII, so that nothing in it is hidden from whoever reads a difference, and always the same for the same pin.
        """
        if self.digest is None:
            return None
        head = {
            "upstream": self.upstream,
            "tool": self.tool,
            "sha256": self.digest,
            "description": self.description,
        }
        return f'{json.dumps(head)[:-1]}, "definition": {_canonical(self.definition)}}}'

    def is_same(self, other: "Pin") -> bool:
        return self.digest is not None and self.digest == other.digest


def _canonical(value: Json) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


HEADER: Final = "# mcp-code-portal lock 1: tools as they were accepted. Written by `mcp-code-portal lock`."
MAX_BYTES: Final = 256 * 1024 * 1024

_VERSION: Final = b"# mcp-code-portal lock 1:"
_KEYS: Final = ["upstream", "tool", "sha256", "description", "definition"]
_AGAIN: Final = (
    "Run `mcp-code-portal lock --diff` once the line is as it was, or delete the file and lock anew."
)


@dataclass(frozen=True)
class Lock:
    """The accepted pins by upstream and tool (None: its instructions), and the lines on which they stand."""

    file: str
    pins: Mapping[tuple[str, str | None], Pin]
    lines: Mapping[tuple[str, str | None], int]

    def where(self, upstream: str, tool: str | None) -> str:
        line = self.lines.get((upstream, tool))
        return self.file if line is None else f"{self.file}:{line}"


def lock_path(manifest: Path) -> Path:
    """`portal.lock` for `portal.yaml`."""
    return manifest.with_name(f"{manifest.stem}.lock")


def read_lock(path: Path) -> Lock | None:
    """The lock; None if there is no such file.

    Raises:
        ManifestError: It cannot be read or used; it carries every problem found.
    """
    try:
        content, _ = read_capped(path, MAX_BYTES)
    except FileNotFoundError:
        if path.is_symlink():  # somebody meant a lock to be there
            raise ManifestError([Problem("is a link to a file that is not there")], path.name) from None
        return None
    return _parsed(content, path.name)


def lock_text(pins: Iterable[Pin]) -> str:
    """The lockfile of these pins; those that cannot be written are left out, and so stay quarantined."""
    ordered = sorted(pins, key=lambda pin: (pin.upstream, pin.tool is not None, pin.tool or ""))
    lines = [HEADER, *(pin.line for pin in ordered if pin.line is not None)]
    return "\n".join(lines) + "\n"


def write_lock(path: Path, pins: Iterable[Pin]) -> None:
    """Put the lock in place at once, so that no reader finds half of it.

    Raises:
        OSError: It cannot be written; the former one is still there.
    """
    write_whole(path, lock_text(pins).encode("ascii"), mode=ORDINARY)


def _parsed(content: bytes, file: str) -> Lock:
    header, *texts = (line.removesuffix(b"\r") for line in content.removesuffix(b"\n").split(b"\n"))
    if not header.startswith(_VERSION):
        hint = "Use the portal that wrote it, or delete the file and run `mcp-code-portal lock`."
        raise ManifestError([Problem("is no lockfile of version 1", 1, 1, hint)], file)
    problems: list[Problem] = []
    pins: dict[tuple[str, str | None], Pin] = {}
    lines: dict[tuple[str, str | None], int] = {}
    for number, text in enumerate(texts, 2):
        pin = _pin(text)
        if pin is None:
            told = "is no line that `mcp-code-portal lock` wrote, or it was changed, or a merge left a conflict here"
            problems.append(Problem(told, number, 1, _AGAIN))
            continue
        key = pin.upstream, pin.tool
        if key in pins:
            told = f"{pin.name[:300]!a} stands here a second time, after line {lines[key]}"
            problems.append(Problem(told, number, 1, "Keep the line that you mean to accept."))
        pins[key], lines[key] = pin, number
    if problems:
        raise ManifestError(problems, file)
    return Lock(file, pins, lines)


def _pin(text: bytes) -> Pin | None:
    """The pin that a line says; None if it is not as it was written."""
    try:
        data = json.loads(text.decode("ascii"))
    except (ValueError, RecursionError):
        return None
    kinds = (str, str | None, str, str, dict)
    if not isinstance(data, dict) or list(data) != _KEYS or not all(map(isinstance, data.values(), kinds)):
        return None
    pin = Pin(data["upstream"], data["tool"], data["description"], data["definition"])
    return pin if (pin.line or "").encode() == text else None
