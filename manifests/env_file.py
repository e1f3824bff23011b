"""`portal.env` beside portal.yaml: values of the variables that the manifest refers to and the environment lacks.

One `NAME=value` a line; blank lines and lines that begin with `#` say nothing. A value is the rest of its line, or
stands in double quotes with the escapes of JSON, or in single quotes as it is.
"""

import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from manifests.errors import ManifestError, Problem

MAX_BYTES: Final = 1024 * 1024
MAX_PROBLEMS: Final = 100

_LINE: Final = re.compile(r"(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(?P<value>.*)")
_BARE: Final = re.compile(r"[A-Za-z0-9_./:@%+=,~^-]+")
_FIT: Final = re.compile(r"[^\0\ud800-\udfff]*")
_HEADING: Final = (
    "# Secrets that portal.yaml refers to as ${NAME}. The environment's own values count more than these."
)


def env_path(manifest: Path) -> Path:
    """`portal.env` for `portal.yaml`."""
    return manifest.parent / f"{manifest.stem or 'portal'}.env"


def read_env(path: Path) -> dict[str, str]:
    """The variables of the file; none if there is no such file.

    Raises:
        ManifestError: It cannot be read or used, or others than its owner can read it; it carries every problem found.
    """
    try:
        # Whoever opened a pipe in its place would wait for a writer that never comes.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(MAX_BYTES + 1) if stat.S_ISREG(mode) else None
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ManifestError(
            [Problem(f"cannot be read: {error.strerror or 'unknown reason'}")], path.name
        ) from None
    if content is None or len(content) > MAX_BYTES:
        told = "is no file" if content is None else f"larger than {MAX_BYTES} bytes"
        raise ManifestError([Problem(told)], path.name)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        hint = f"It holds secrets: chmod 600 {path.name}"
        raise ManifestError([Problem("is not its owner's alone", hint=hint)], path.name)
    return _parsed(content, path.name)


def env_text(values: Mapping[str, str], before: str = "") -> str:
    """The file that says these, behind what it says `before`; a new one begins with a heading."""
    start = before or _HEADING
    gap = "" if start.endswith("\n") else "\n"
    return f"{start}{gap}" + "".join(f"{name}={_quoted(value)}\n" for name, value in values.items())


def _parsed(content: bytes, file: str) -> dict[str, str]:
    problems: list[Problem] = []
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise ManifestError([Problem("not UTF-8", number, 1)], file) from None
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        value = _unquoted(found["value"]) if found else None
        if not found or value is None:
            # Without the line itself: it may well be a secret.
            problems.append(Problem("is not NAME=value", number, 1, 'Quote a value that needs it: NAME="…".'))
        elif found["name"] in lines:
            told = f"{found['name']} is here twice, first on line {lines[found['name']]}"
            problems.append(Problem(told, number, 1, "Keep one of them."))
        else:
            values[found["name"]], lines[found["name"]] = value, number
        if len(problems) == MAX_PROBLEMS:
            break
    if problems:
        raise ManifestError(problems, file)
    return values


def _unquoted(text: str) -> str | None:
    """The value that a text stands for; None if its quotes do not match or it holds what no variable can."""
    value: object = text
    if text.startswith('"'):
        try:
            value = json.loads(text)
        except ValueError:
            return None
    elif text.startswith("'"):
        value = text[1:-1] if len(text) > 1 and text.endswith("'") and "'" not in text[1:-1] else None
    return value if isinstance(value, str) and _FIT.fullmatch(value) else None


def _quoted(value: str) -> str:
    return value if _BARE.fullmatch(value) else json.dumps(value, ensure_ascii=False)
