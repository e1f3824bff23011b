"""The portal's cache and state folders, safe reading and writing of files, the files of a manifest, and portal.lock:
the accepted definitions of tools and instructions of upstreams.
"""

import fcntl
import hashlib
import json
import os
import shlex
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final
from uuid import uuid4

from manifests.errors import ManifestError, Problem
from manifests.json_value import Json

_NAME = "mcp-code-portal"


def cache_folder(environ: Mapping[str, str]) -> Path:
    """The folder for data that can be recreated: in $XDG_CACHE_HOME, or the system's default."""
    return _folder(environ, "XDG_CACHE_HOME", ".cache", "Library/Caches")


def state_folder(environ: Mapping[str, str]) -> Path:
    """The folder for data that cannot be recreated: in $XDG_STATE_HOME, or the system's default."""
    return _folder(environ, "XDG_STATE_HOME", ".local/state", "Library/Application Support")


def _folder(environ: Mapping[str, str], variable: str, usual: str, on_mac: str) -> Path:
    """Ignores a relative path in the variable, as the XDG Base Directory Specification requires."""
    try:
        home = Path(environ.get("HOME") or "~").expanduser()
    except RuntimeError:  # in a container the user may have no home; then nothing is stored
        home = Path("/")
    if sys.platform == "darwin":
        return home / on_mac / _NAME
    chosen = environ.get(variable, "")
    return (Path(chosen) if os.path.isabs(chosen) else home / usual) / _NAME


def check_state(*names: str) -> None:
    """Raises ManifestError: this user may not read the state folder, or one of these in it, as after `sudo serve`."""
    root = state_folder(os.environ)
    for each in (root, *(root / name for name in names)):
        try:
            os.close(os.open(f"{each}/.", os.O_RDONLY))  # fails over the folders above, too
        except PermissionError:
            hint = f'Make it yours: sudo chown -R "$(id -u)" {shlex.quote(str(root))}. Or set XDG_STATE_HOME'
            raise ManifestError([Problem("this user may not read it", hint=hint)], str(each)) from None
        except OSError:
            continue  # it does not exist yet


def is_private(folder: Path) -> bool:
    """Whether only this user can write to the folder."""
    with suppress(OSError):
        status = folder.stat()
        return status.st_uid == os.geteuid() and not status.st_mode & 0o022
    return False


PRIVATE: Final = 0o600
ORDINARY: Final = 0o666
"""The mode of an ordinary file, before the umask."""

UNFINISHED: Final = ".new-"
"""Prefix of temporary files. A process that was killed may leave one behind."""


def read_capped(path: Path, max_bytes: int) -> tuple[bytes, int]:
    """The content of a file, and its mode.

    Raises:
        ManifestError: It cannot be read, is not a regular file, or is larger than `max_bytes`.
        FileNotFoundError: It does not exist.
    """
    try:
        # O_NONBLOCK: opening a pipe would otherwise wait for a writer.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            mode, is_larger = status.st_mode, status.st_size > max_bytes
            content = file.read(max_bytes + 1) if stat.S_ISREG(mode) and not is_larger else None
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(error.errno, error.strerror) from error
    except OSError as error:
        raise ManifestError([Problem(unreadable(error, path))], path.name or str(path)) from None
    if content is None or len(content) > max_bytes:
        message = f"is larger than {max_bytes} bytes" if stat.S_ISREG(mode) else "is not a regular file"
        raise ManifestError([Problem(message)], path.name)
    return content, mode


def has_locked(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Try to lock the file, without waiting. Returns whether it is locked; the lock ends with its descriptor."""
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        return True
    return False


@contextmanager
def locked(path: Path, kind: int = fcntl.LOCK_EX, *, is_waiting: bool = False) -> Iterator[bool]:
    """Lock a file, which is created if it is missing. Yields whether it is locked: with `is_waiting` it always is.

    Raises OSError: it cannot be created.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    try:
        if is_waiting:
            fcntl.flock(descriptor, kind)
        yield is_waiting or has_locked(descriptor, kind)
    finally:
        os.close(descriptor)


def unreadable(error: OSError, path: Path) -> str:
    """The message for a file that cannot be read. It has the absolute path: the client may use another folder."""
    return f"cannot be read: {error.strerror or 'unknown reason'}: {path.absolute()}"


def utf8(content: bytes, file: str) -> str:
    """Decode a file's content. Raises ManifestError if it is not UTF-8."""
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
    keeps_mode: bool = False,
    is_lasting: bool = True,
) -> None:
    """Replace the file atomically. A new one gets `mode`; with `keeps_mode` the former one's stays.

    With `is_lasting` it waits for the disk; pass False for data that can be recreated.

    Raises OSError: it cannot be written; the old file is unchanged.
    """
    new = path.with_name(f"{UNFINISHED}{uuid4().hex}")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            if keeps_mode and path.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
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
class ManifestFiles:
    """The files of a manifest, read once, so that accepting, showing and parsing them work on the same bytes.

    `contents` are by path, relative to the manifest's folder, without missing files.

    If one could not be read, `problem` gives the reason, and so does its content.
    """

    path: Path
    contents: Mapping[str, bytes] = field(repr=False)
    problem: ManifestError | None = None
    hashes: Mapping[str, str] = field(init=False)
    """The sha256 of each file, computed by the thread that reads them: a component may be large."""

    def __post_init__(self) -> None:
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in self.contents.items()}
        object.__setattr__(self, "hashes", hashes)


def differing(one: Mapping[str, str], other: Mapping[str, str]) -> tuple[str, ...]:
    """The files that differ, or are missing in one."""
    return tuple(sorted(name for name in {*one, *other} if one.get(name) != other.get(name)))


@dataclass(frozen=True)
class Pin:
    """The accepted definition of a tool, or of an upstream's instructions.

    `tool` is the tool's own name. For instructions it is None, and `description` is their text. `definition` has the
    tool's other fields as the upstream sent them: title, inputSchema, outputSchema, annotations and inputExamples.
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
        """The hash of the whole pin; None if it nests too deeply to be serialized."""
        whole = {"upstream": self.upstream, "tool": self.tool, "description": self.description}
        try:
            return hashlib.sha256(_canonical({**whole, "definition": self.definition}).encode()).hexdigest()
        except (RecursionError, TypeError, ValueError):
            return None

    @property
    def line(self) -> str | None:
        """The pin's line in the lockfile; None if it cannot be serialized.

        ASCII, so that a diff hides nothing. The same pin always has the same line.
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
MAX_BYTES: Final = 16 * 1024 * 1024

_VERSION: Final = b"# mcp-code-portal lock 1:"
_KEYS: Final = ["upstream", "tool", "sha256", "description", "definition"]
_AGAIN: Final = (
    "Restore the line and run `mcp-code-portal lock --diff`, or delete the file and run `lock` again."
)


@dataclass(frozen=True)
class Lock:
    """The accepted pins by upstream and tool (None: its instructions), and their line numbers."""

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
    """Read the lock; None if the file does not exist.

    Raises ManifestError: it cannot be read or used; it carries every problem found.
    """
    content = lock_content(path)
    return None if content is None else parsed_lock(content, path.name)


def lock_content(path: Path) -> bytes | None:
    """The content of the file; None if it does not exist. Raises ManifestError if it cannot be read."""
    try:
        return read_capped(path, MAX_BYTES)[0]
    except FileNotFoundError:
        if path.is_symlink():  # a broken link: the operator expects a lock here
            raise ManifestError([Problem("is a link to a missing file")], path.name) from None
        return None


def lock_text(pins: Iterable[Pin]) -> str:
    """The lockfile with these pins. Pins that cannot be serialized are left out; their tools stay quarantined."""
    ordered = sorted(pins, key=lambda pin: (pin.upstream, pin.tool is not None, pin.tool or ""))
    lines = [HEADER, *(pin.line for pin in ordered if pin.line is not None)]
    return "\n".join(lines) + "\n"


def write_lock(path: Path, pins: Iterable[Pin]) -> None:
    """Replace the lock atomically. Raises OSError if it cannot be written; the old one is unchanged."""
    write_whole(path, lock_text(pins).encode("ascii"), mode=ORDINARY)


def parsed_lock(content: bytes, file: str) -> Lock:
    """The lock in the content of a file. Raises ManifestError, with the first ten problems."""
    header, *texts = (line.removesuffix(b"\r") for line in content.removesuffix(b"\n").split(b"\n"))
    if not header.startswith(_VERSION):
        hint = "Use the portal version that wrote it, or delete the file and run `mcp-code-portal lock`."
        raise ManifestError([Problem("is not a lockfile of version 1", 1, 1, hint)], file)
    problems: list[Problem] = []
    pins: dict[tuple[str, str | None], Pin] = {}
    lines: dict[tuple[str, str | None], int] = {}
    for number, text in enumerate(texts, 2):
        if len(problems) == 10:  # more would only repeat that this is not a lockfile
            break
        pin = _pin(text)
        if pin is None:
            message = "the line is not from `mcp-code-portal lock`, was edited, or is a merge conflict"
            problems.append(Problem(message, number, 1, _AGAIN))
            continue
        key = pin.upstream, pin.tool
        if key in pins:
            message = f"{pin.name[:300]!a} repeats line {lines[key]}"
            problems.append(Problem(message, number, 1, "Keep the line that you want to accept."))
        pins[key], lines[key] = pin, number
    if problems:
        raise ManifestError(problems, file)
    return Lock(file, pins, lines)


def _pin(text: bytes) -> Pin | None:
    """Parse a line; None if it is not exactly what `lock` writes."""
    try:
        data = json.loads(text.decode("ascii"))
    except (ValueError, RecursionError):
        return None
    kinds = (str, str | None, str, str, dict)
    if not isinstance(data, dict) or list(data) != _KEYS or not all(map(isinstance, data.values(), kinds)):
        return None
    pin = Pin(data["upstream"], data["tool"], data["description"], data["definition"])
    return pin if (pin.line or "").encode() == text else None
