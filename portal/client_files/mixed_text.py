"""A text with references in it as one that rules for plain texts can look at, and what they find put back into it."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from portal.client_files.variables import Input, Reference, Secret, Template

PLACE: Final = "\0"
"""Stands for each reference; no text of a client's file holds it."""

_TELLS_NOTHING: Final = re.compile(r"(?i)\W*(?:bearer|basic|token|apikey|api-key|key)?\W*")

Pieces = Iterable[str | Secret]


def hidden(template: Template, hide: Callable[[str], Pieces]) -> Template:
    """The template with what `hide` finds in its text, which has PLACE for each reference, as secrets.

    A secret around a reference becomes the secrets before and behind it. The same text, if there are none.
    """
    references = iter([piece for piece in template if not isinstance(piece, str)])
    text = "".join(piece if isinstance(piece, str) else PLACE for piece in template)
    found = tuple(each for piece in hide(text) for each in _put_back(piece, references))
    return found if any(isinstance(piece, Secret) for piece in found) else _joined(template)


def _joined(template: Template) -> Template:
    """The same text in as few pieces as there can be, so that what says the same is equal."""
    joined: list[str | Reference | Secret | Input] = []
    for piece in template:
        if isinstance(piece, str) and joined and isinstance(before := joined[-1], str):
            joined[-1] = before + piece
        else:
            joined.append(piece)
    return tuple(joined)


def _put_back(
    piece: str | Secret, references: Iterator[Reference | Secret | Input]
) -> Iterator[str | Reference | Secret | Input]:
    if isinstance(piece, Secret) and PLACE not in piece.value:
        yield piece
        return
    parts = re.split(f"({PLACE})", piece.value if isinstance(piece, Secret) else piece)
    for part in parts:
        if part == PLACE:
            yield next(references)
        elif isinstance(piece, Secret) and not _TELLS_NOTHING.fullmatch(part):
            yield Secret(part, piece.name, piece.is_own)
        else:
            yield part
