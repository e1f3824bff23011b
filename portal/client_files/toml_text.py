"""TOML as Codex keeps it, and on which lines its tables stand."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from manifests.json_value import Json
from portal.client_files.json_text import BOM, Number

MAX_BYTES: Final = 1024 * 1024
MAX_DOTS: Final = 100
"""In one line that is not just a key and its text: the reader's time grows with their square."""

_KEY: Final = r"(?:[A-Za-z0-9_-]+|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*')"
_HEADER: Final = re.compile(rf"[ \t]*\[[ \t]*({_KEY}(?:[ \t]*\.[ \t]*{_KEY})*)[ \t]*\][ \t]*(?:#.*)?")
_TEXT: Final = re.compile(rf"[ \t]*{_KEY}[ \t]*=[ \t]*(?:\"(?:[^\"\\]|\\.)*\"|'[^']*')[ \t]*(?:#.*)?")
_PART: Final = re.compile(_KEY)


class TomlTextError(ValueError):
    """The text is not TOML, or beyond the bounds."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Table:
    """A `[table]` of the text: its keys, and its lines, counted from 0, up to where the next one begins."""

    keys: tuple[str, ...]
    first: int
    end: int


def read_toml(text: str) -> dict[str, Json]:
    """The data, with numbers as `Number`, and times as text.

    Raises:
        TomlTextError: It is not TOML, or beyond the bounds.
    """
    if len(text) > MAX_BYTES:
        raise TomlTextError(f"larger than {MAX_BYTES} characters")
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") > MAX_DOTS and not _TEXT.fullmatch(line):
            raise TomlTextError(f"a line with more than {MAX_DOTS} dots", number)
    try:
        data = tomllib.loads(text.removeprefix(BOM))
    except tomllib.TOMLDecodeError as error:
        # Without the reader's own words, which repeat what stands there: it may be a secret.
        found = re.search(r"\(at line (\d+), column \d+\)$", str(error))
        raise TomlTextError("not TOML", int(found[1]) if found else None) from None
    except (RecursionError, ValueError):
        raise TomlTextError("nested too deep, or with a number that is too long") from None
    return {key: _plain(value) for key, value in data.items()}


def tables(text: str) -> Iterator[Table]:
    """The tables of a text, as its lines look; one inside a text of several lines looks like one, too."""
    lines = text.removeprefix(BOM).splitlines()
    starts = [index for index, line in enumerate(lines) if line.lstrip().startswith("[")]
    for index, following in zip(starts, [*starts[1:], len(lines)], strict=False):
        if header := _HEADER.fullmatch(lines[index]):
            yield Table(tuple(_key(part) for part in _PART.findall(header[1])), index, following)


def _key(part: str) -> str:
    if part.startswith("'"):
        return part[1:-1]
    if not part.startswith('"'):
        return part
    try:
        return str(tomllib.loads(f"key = {part}")["key"])
    except ValueError:
        return part


def _plain(value: object) -> Json:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, str | bool):
        return value
    return Number(value)
