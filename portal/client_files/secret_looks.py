"""What looks like a secret, by itself or by the name that it goes under."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from manifests.credential_names import is_credential_name
from portal.client_files.addresses import has_password, login_parts
from portal.client_files.mixed_text import PLACE
from portal.client_files.secret_names import is_secret_name
from portal.client_files.variables import Secret, variable_name

_COUNT: Final = re.compile(r"\d{1,7}[\]}]*")
"""`tokens` with such a value are those of a text, perhaps where JSON ends: `CONTEXT_TOKENS=8000`."""
_TRIVIAL: Final = frozenset(("", "true", "false", "yes", "no", "on", "off", "none", "null", "0", "1"))
_KIND_OF_LOGIN: Final = re.compile(
    r"oauth2?|oidc|saml|sso|iam|basic|bearer|digest|jwt|token|api[-_]?key|browser|interactive|device(?:[-_]?code)?"
    r"|azcli|cli|env|default|msi|managed-identity|kerberos|ntlm|ldap",
    re.IGNORECASE,
)
"""Which `--auth` may say, and no password is."""
_ROW_KEY: Final = re.compile(r"(?i)(?:sort|partition|primary|foreign)[_-]?key")
_GIT_KEY: Final = re.compile(r"GIT_CONFIG_KEY_\d{1,5}")
"""The name of one of Git's settings."""
_COLUMN: Final = re.compile(r"[A-Za-z_][A-Za-z_.-]{0,40}")
_NUMBER: Final = re.compile(r"-?\d{1,20}")
_PASSWORD: Final = re.compile(r"(?i)pass|pwd|pw$|pin$|phrase|otp")
"""Which nobody keeps in a file that such a name tells."""
_FILE: Final = re.compile(
    r"(?:(?:~|\.{1,2}|[A-Za-z]:|\$(?:HOME|PWD|\{HOME\}|\{PWD\})|%USERPROFILE%)[/\\]"
    r"|/(?:home|Users|root|var|etc|opt|srv|tmp|usr|mnt|media|run|data|app|Volumes)/)"
    r"[\w .@()/\\-]*|[/\\]?(?:[\w.-]+[/\\])*[\w.-]+\.(?:json|pem|key|crt|cer|p8|p12|pfx|env|txt|ya?ml|toml|ini)"
    r"|(?:/[a-z][a-z_-]{0,30})+/?|/"
)
"""A path, though it is base64 that one secret of 64 begins with `/`, too."""

_KNOWN: Final = re.compile(
    r"(sk|pk|rk|fc|ntn|figd|figu|tvly|ctx7sk)[-_](?=\S*\d)[\w-]{12,}|gh[opusr]_\w{16,}|github_pat_\w{16,}"
    r"|glpat-[\w-]{12,}|xox[a-z]-[\w-]{8,}|xapp-[\w-]{8,}|(AKIA|ASIA)[A-Z0-9]{12,}|AIza[\w-]{20,}|ya29\.[\w.-]{10,}"
    r"|hf_\w{16,}|npm_\w{16,}|pypi-[\w-]{16,}|dop_v1_\w{16,}|shp[a-z]{2}_\w{16,}|SG\.[\w.-]{16,}"
    r"|lin_(api|oauth)_\w{12,}|eyJ[\w-]{8,}\.[\w-]{4,}(\.[\w-]*)?|ATATT[\w=-]{12,}|PMAK-[\w-]{12,}|whsec_\w{12,}"
)
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
_DIGEST: Final = re.compile(r"(?:@sha256:|@|#)[0-9a-f]{40,64}$")
_PATH: Final = re.compile(r"(?:-{1,2}[A-Za-z][\w.-]{0,60}=)?(?:(?:~|\.{1,2})?[/\\]|[A-Za-z]:\\)")
"""Perhaps an option's."""
_HEX: Final = re.compile(r"[0-9a-fA-F]{32,}")
_RUN: Final = re.compile(r"[A-Za-z0-9]{20,}")
_BASE64: Final = re.compile(r"[A-Za-z0-9+][A-Za-z0-9+/]{22,}={0,2}")
_SAFE_RUN: Final = re.compile(r"[\w-]{24,}", re.ASCII)
"""Of URL-safe base64, or of words that somebody joined, of which few letters are in long pieces without words."""
_BREAK: Final = re.compile(r"[-_]+")
_UNIT: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_LEAST_PIECE: Final = 6
_LETTERS_OF_A_UNIT: Final = 2.8
"""Of random letters fewer look like one word. With these, 2 % of 24 random bytes are overlooked, 0.4 % of 32."""
_LEAST_BITS: Final = 3.0
"""Shannon's entropy of one character: English words have less, random ones more."""

_FILLED_IN: Final = re.compile(r"\$(?:\w+|\{\w+\})|%\w+%")
_WORD: Final = re.compile(r"[^\s\"'<>{}\[\](),;\0]+")
_SPOKEN: Final = re.compile(r"(?i)\b(bearer|basic)\s+[^\s\"']{6,}|-----BEGIN ")
_SAYS: Final = re.compile(r"[:=]")
_QUOTE: Final = r"(?:\\{0,7}[\"'])"
"""Within quotes it has backslashes before it, each time twice as many and one."""
_SAID_NAME: Final = re.compile(r"\s{0,9}(?:\]\s{0,9})?(?:[\"']\\{0,7})?([A-Za-z_-]{1,60})")
"""A name as it stands before a colon, read backwards: a search forwards would try every letter."""
_SAID_VALUE: Final = re.compile(
    rf"\s{{0,9}}{_QUOTE}?(?:(?:[Bb]earer|[Bb]asic)\s{{1,9}})?([^\s\"',;&]{{1,60}})"
)
_SAID_PAIR: Final = re.compile(
    rf"\(\s{{0,9}}{_QUOTE}([A-Za-z_]\w{{0,59}}){_QUOTE}\s{{0,9}},\s{{0,9}}{_QUOTE}([^\s\"',;&]{{1,60}})",
    re.ASCII,
)
"""What code is called with: `setenv("API_KEY", "x")`."""
_FLAG: Final = re.compile(
    rf"(?<![\w-])-{{1,2}}([A-Za-z](?:[\w.:-]{{0,58}}\w)?){_QUOTE}?[\s,]{{1,9}}{_QUOTE}?(?!-)([^\s\"',;&]{{1,60}})",
    re.ASCII,
)
"""An option with its value within one text: `npx server --token x`, `["--token", "x"]`."""


def looks_secret(word: str) -> bool:
    """Whether a word without blanks looks like a token, a key or a password that a machine made."""
    return any(map(_looks_secret, word.split(PLACE)))


def _looks_secret(word: str) -> bool:
    if _KNOWN.match(word) or _UUID.fullmatch(word) or _HEX.fullmatch(word):
        return True
    if _PATH.match(word):
        return False
    word = _DIGEST.sub("", word)  # which commit or image it is, is no secret
    if _BASE64.fullmatch(word) and _is_random(word):
        return word.count("/") <= len(word) // 16
    return any(map(_is_random, _RUN.findall(word))) or any(map(_is_safe_base64, _SAFE_RUN.findall(word)))


def _is_safe_base64(run: str) -> bool:
    pieces = _BREAK.split(run)
    odd = [
        p for p in pieces if len(p) >= _LEAST_PIECE and len(p) < _LETTERS_OF_A_UNIT * len(_UNIT.findall(p))
    ]
    bare = "".join(pieces)
    is_mixed = bare.lower() != bare != bare.upper() and len(bare) >= 20
    return is_mixed and 2 * sum(map(len, odd)) >= len(bare) and _is_random(bare)


def holds_secret(text: str) -> bool:
    """Whether anywhere in a text is what looks like a secret, a login or the value of what is called a secret:
    `{"Authorization": "Bearer x"}`, `npx server --token x`.
    """
    return says_secret(text) or any(map(looks_secret, _WORD.findall(text)))


def says_secret(text: str) -> bool:
    """Whether there is no doubt, as there is of what only looks like one."""
    if _SPOKEN.search(text) or has_password(text) or any(map(_KNOWN.match, _WORD.findall(text))):
        return True
    said = [(name, value.rstrip("\\")) for name, value in _said(text)]
    return any(is_named(name, value) or login_parts(value, name) for name, value in said)


def nameless(text: str, name: str) -> Secret:
    """A secret under a name that does not say so. Its variable's does, if there is no doubt, so that the portal takes
    the value out of results, and the file gives the variable no name itself. An id may only look like a secret.
    """
    own = variable_name(name)
    if own == name or is_credential_name(own) or not says_secret(text):
        return Secret(text, own, is_own=own == name)
    return Secret(text, f"{own}_SECRET")


def _said(text: str) -> Iterator[tuple[str, str]]:
    """The names in a text that have a value behind a colon or an equals sign, or as an option, and those values."""
    yield from _FLAG.findall(text)
    yield from _SAID_PAIR.findall(text)
    for sign in _SAYS.finditer(text):
        before = text[max(0, sign.start() - 80) : sign.start()][::-1]
        name, value = _SAID_NAME.match(before), _SAID_VALUE.match(text, sign.end())
        if name and value:
            yield name[1][::-1], value[1]


def is_named(name: str, value: str) -> bool:
    """Whether what goes under the name is a secret by the name, whatever it looks like."""
    is_count = bool(_COUNT.fullmatch(value.strip()))
    return (
        is_worth(value) and is_secret_name(name, is_count=is_count) and not _is_setting(name, value.strip())
    )


def _is_setting(name: str, value: str) -> bool:
    """Whether it is none though the name says so: a kind of login, a column, what random numbers begin with, a file."""
    if name.lower().endswith("auth") and _KIND_OF_LOGIN.fullmatch(value):
        return True
    if _GIT_KEY.fullmatch(name) or (_ROW_KEY.search(name) and _COLUMN.fullmatch(value)):
        return True
    if name.lower().endswith("seed") and _NUMBER.fullmatch(value):
        return True
    return (
        not _PASSWORD.search(name) and bool(_FILE.fullmatch(value)) and not looks_secret(value.strip("/\\~."))
    )


def is_worth(value: str) -> bool:
    """Whether a value under a secret's name can be one; `${NAME}`, which the server fills in itself, is none."""
    value = value.replace(PLACE, "")
    return value.strip().lower() not in _TRIVIAL and not _FILLED_IN.fullmatch(value)


def _is_random(run: str) -> bool:
    """Letters and digits mixed as words are not."""
    counts = Counter(run)
    bits = -sum(n / len(run) * math.log2(n / len(run)) for n in counts.values())
    kinds = (any(map(str.isdigit, run)), any(map(str.islower, run)), any(map(str.isupper, run)))
    return bits >= _LEAST_BITS and kinds[0] and sum(kinds) >= 2
