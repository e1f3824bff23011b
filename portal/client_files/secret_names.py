"""Which names say that what goes under them is a secret."""

import re
from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NAMING: Final = _words(
    """
    pwd pass key keys auth authorization bearer cookie cookies session jwt pat otp pin psk cred dsn sas signature sig
    private mnemonic mnemonics
    """
)
_NAMING_STEMS: Final = _words(
    """
    token secret password passwd passphrase passcode apikey credential accesskey accountkey authkey encryptionkey
    licensekey masterkey passkey privatekey secretkey sharedkey signingkey
    """
)
_NAMING_ENDS: Final = ("creds", *_NAMING_STEMS, *(f"{stem}s" for stem in _NAMING_STEMS))
_NAMING_LAST: Final = re.compile(
    r"pw|seed|.*(?<!^old)pwd|.*(?<!^ask)(?<!^by)(?<!^com)(?<!^encom)(?<!^over)(?<!^under)(?<!^sur)(?<!^tres)pass"
)
"""At the end of a name only: `DB_PW`, but not `PW_BROWSER`; `DBPASS`, but not `BYPASS`."""
_OF_PHRASES: Final = _words("seed recovery backup wallet secret key")
"""With one of these before it, a phrase is one that opens a wallet."""
_COUNTING: Final = _words("max maximum min minimum num number per total")
"""Beside one of these, `tokens` are those of a text: `MAX_OUTPUT_TOKENS`."""
_PLACES: Final = _words("dir directory file folder path address sock socket command helper")
"""Where a secret is, or what gives it, is none: `GIT_ASKPASS`, too."""
_HARMLESS_ENDS: Final = _words(
    """
    algorithm audience config count domain email enabled endpoint expiry format header host id issuer length level limit
    mechanism method mode name port provider region scope scopes size source timeout ttl type uri url user username
    version
    """
)
_MEASURES: Final = _words("count domain expiry length limit size timeout ttl")
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
    if _NAMING_LAST.fullmatch(words[-1]) or (words[-1] == "phrase" and _OF_PHRASES & set(words)):
        return True
    if is_count or _COUNTING & set(words):
        words = [word for word in words if not word.endswith("tokens")]
    return any(word in _NAMING or word.endswith(_NAMING_ENDS) for word in words)
