"""Takes credentials out of whatever an upstream sends, where a script or a stub would have them otherwise.

Some tools show the request, or the environment, that they are in.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable
from typing import Final, TypeAlias

from manifests.upstream_sections import StdioUpstream

Mask: TypeAlias = Callable[[bytes], bytes]
"""JSON text in, the same without credentials out."""

_LEAST_CHARACTERS: Final = 16
_LETTER: Final = re.compile("[A-DF-Za-df-z]")  # none of which is in a number
_MASK: Final = b"[hidden]"
_CREDENTIAL: Final = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH(?!OR)|KEYS?(?:_|$)|(?:^|_)(?:PASS|PW|PWD|PAT)(?:_|$)",
    re.IGNORECASE,
)
_PLACE: Final = re.compile(r"(?:FILE|PATH|DIR|HOST|ENDPOINT|UR[IL])$", re.IGNORECASE)
_DATABASE: Final = re.compile(
    r"DSN(?:_|$)|CONNECTION_?STRING|(?:DB|DATABASE|SQL|MONGO|REDIS)\w*UR[IL]$", re.IGNORECASE
)


def masked(text: bytes, credentials: Iterable[str]) -> bytes:
    """JSON that an upstream sent, without these."""
    return without(text, written_forms(credentials))


def written_forms(credentials: Iterable[str]) -> list[bytes]:
    """How they may stand in JSON.

    Only such as can stand nowhere but in strings, and are too long to do so by chance.
    """
    forms: list[bytes] = []
    for credential in credentials:
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


def credentials_of_child(spec: StdioUpstream, secrets: Collection[str]) -> tuple[str, ...]:
    """What references filled in, in variables that by their names are credentials: the name of a bucket is work."""
    given = [value for name, value in spec.env.items() if _is_credential(name)]
    return tuple(secret for secret in secrets if any(secret in value for value in given))


def _is_credential(variable: str) -> bool:
    if _DATABASE.search(variable):
        return True
    return bool(_CREDENTIAL.search(variable)) and not _PLACE.search(variable)
