"""Takes credentials out of whatever an upstream sends, where a script or a stub would have them otherwise.

Some tools show the request, or the environment, that they are in.
"""

import json
import re
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

Mask: TypeAlias = Callable[[bytes], bytes]
"""JSON text in, the same without credentials out."""

_LEAST_CHARACTERS: Final = 16
_LETTER: Final = re.compile("[A-DF-Za-df-z]")  # none of which is in a number
_MASK: Final = b"[hidden]"
_SCHEME: Final = re.compile(r"(?:basic|bearer|token)\s+(\S+)", re.IGNORECASE)


def masked(text: bytes, credentials: Iterable[str]) -> bytes:
    """JSON that an upstream sent, without these."""
    return without(text, written_forms(credentials))


def written_forms(credentials: Iterable[str]) -> list[bytes]:
    """How they may stand in JSON, also in one that is a text within: what shows its environment often shows it as that.

    Only such as can stand nowhere but in strings, and are too long to do so by chance. The longest first: one may
    contain another.
    """
    given = set(credentials)
    given |= {found[1] for found in map(_SCHEME.fullmatch, given) if found}
    telling = {each for each in given if len(each) >= _LEAST_CHARACTERS and _LETTER.search(each)}
    forms = {twice for each in telling for once in _written(each) for twice in (once, *_written(once))}
    return sorted((form.encode("utf-8", "surrogatepass") for form in forms), key=len, reverse=True)


def _written(text: str) -> set[str]:
    written, plain = json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]
    return {plain, written, written.replace("/", "\\/")}


def without(text: bytes, forms: Iterable[bytes]) -> bytes:
    """The text with each of the forms hidden."""
    for form in forms:
        if form in text:
            text = text.replace(form, _MASK)
    return text
