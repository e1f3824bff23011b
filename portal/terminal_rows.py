"""The rows that lines take on a terminal: whoever guesses how wide it is could begin one with words of their choice."""

import os
import re
import unicodedata
from collections.abc import Iterator
from typing import IO, Final

from rich.cells import cell_len

from portal.library.plain_text import MARK

_COLOUR_OR_CHARACTER: Final = re.compile(r"\x1b\[[0-9;]*m|.")


def columns_of(stream: IO[str]) -> int | None:
    """How wide the terminal is, None if it does not say. COLUMNS may be that of another."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


def marked_rows(text: str, columns: int) -> str:
    """The text with each line in as many rows as it takes, all but the first of which are marked. It has our colours
    in it and nothing else that steers a terminal.
    """
    return "\n".join(row for line in text.split("\n") for row in _rows(line, columns))


def cells(character: str) -> int:
    """How wide a character is at most: not every terminal joins and colours emoji, or puts signs above each other."""
    if character.isascii():
        return 1
    if character == "\ufe0f" or unicodedata.category(character) == "Mc":
        return 1  # what stands before it is one wider
    # Of those that Python does not know only what may be an emoji, or Chinese, is not spelt out.
    is_emoji = character >= "\U0001f000" and unicodedata.category(character) in ("So", "Sk", "Cn")
    return 2 if is_emoji else cell_len(character)


def folds(text: str, width: int) -> Iterator[int]:
    """Where a text is to be divided so that no part is wider."""
    filled = 0
    for index, character in enumerate(text):
        filled += cells(character)
        if filled > width:
            yield index
            filled = cells(character)


def _rows(line: str, columns: int) -> Iterator[str]:
    row, filled = "", 0
    for found in _COLOUR_OR_CHARACTER.finditer(line):
        width = cells(found[0]) if len(found[0]) == 1 else 0
        if filled + width > columns:
            yield row
            row, filled = MARK, len(MARK)
        row, filled = row + found[0], filled + width
    yield row
