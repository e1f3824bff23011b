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
    """How they may stand in JSON.

    Only such as can stand nowhere but in strings, and are too long to do so by chance.
    """
    forms: list[bytes] = []
    given = set(credentials)
    without_scheme = {found[1] for found in map(_SCHEME.fullmatch, given) if found}
    # The longest first: one may contain another.
    for credential in sorted(given | without_scheme, key=len, reverse=True):
        if len(credential) < _LEAST_CHARACTERS or not _LETTER.search(credential):
            continue
        written = json.dumps(credential)[1:-1]
        plain = json.dumps(credential, ensure_ascii=False)[1:-1]
        forms += {
            form.encode("utf-8", "surrogatepass") for form in (plain, written, written.replace("/", "\\/"))
        }
    return forms


def without(text: bytes, forms: Iterable[bytes]) -> bytes:
    """The text with each of the forms hidden."""
    for form in forms:
        if form in text:
            text = text.replace(form, _MASK)
    return text
