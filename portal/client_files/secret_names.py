"""Which names say that what goes under them is a secret."""

import re
from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NAMING: Final = _words(
    """
    pwd pass key keys auth authorization bearer cookie cookies session jwt pat otp pin psk cred dsn sas signature sig
    private
    """
)
_NAMING_STEMS: Final = _words("token secret password passwd passphrase passcode apikey credential")
_NAMING_ENDS: Final = ("creds", *_NAMING_STEMS, *(f"{stem}s" for stem in _NAMING_STEMS))
_NAMING_LAST: Final = _words("pw")
"""At the end of a name only: `DB_PW`, but not `PW_BROWSER`."""
_COUNTING: Final = _words("max maximum min minimum num number per total")
"""Beside one of these, `tokens` are those of a text: `MAX_OUTPUT_TOKENS`."""
_PLACES: Final = _words("dir directory file folder path")
"""Where a secret is, is none."""
_HARMLESS_ENDS: Final = _words(
    """
    algorithm audience count email enabled endpoint expiry format header host id issuer length level limit method mode
    name port provider region scope scopes size timeout ttl type uri url user username version
    """
)
_MEASURES: Final = _words("count expiry length limit size timeout ttl")
"""Harmless even of a session or a cookie, which their names and formats may not be."""
_WORDS_OF_A_NAME: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def is_secret_name(name: str, *, is_count: bool = False) -> bool:
    """Whether what goes under the name is a secret: `API_KEY`, `x-auth-token`, `githubToken`; not `KEY_FILE`.

    `is_count` says that what goes under it may be a number of tokens.
    """
    words = [word.lower() for word in _WORDS_OF_A_NAME.findall(name)]
    if not words or words[-1] in _PLACES:
        return False
    is_of_session = bool({"session", "cookie", "cookies"} & set(words))
    if words[-1] in (_MEASURES if is_of_session else _HARMLESS_ENDS):
        return False
    if words[-1] in _NAMING_LAST:
        return True
    if is_count or _COUNTING & set(words):
        words = [word for word in words if not word.endswith("tokens")]
    return any(word in _NAMING or word.endswith(_NAMING_ENDS) for word in words)
