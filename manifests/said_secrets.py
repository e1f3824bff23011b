"""Secrets within a longer text, by what that says of them: passwords in URLs, and what goes by a secret's name."""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from manifests.credential_names import is_secret_name

_LOGINS: Final = (
    re.compile(r"://(?P<user>[^\s/?#:\"'<>]{0,500}):(?P<password>[^\s/?#\"'<>]{1,500})@"),
    # Where nothing stands around it, no quotation mark can be one of that.
    re.compile(
        r"\A(?:-{0,2}[\w.-]{1,100}=)?[A-Za-z][\w+.-]{0,50}://(?P<user>[^/?#:]{0,500}):(?P<password>[^/?#]{1,500})@"
    ),
)
_NO_PASSWORD: Final = frozenset({"x-oauth-basic", "x-token-auth"})
"""What hosts of Git want beside a token."""
_WORD: Final = re.compile("[a-z]{1,15}")

FOLDER: Final = re.compile(
    r"(?:~|\.{1,2})/|/(?:home|Users|root|var|etc|opt|srv|tmp|usr|mnt|media|run|data|app|Volumes|private|builds"
    r"|workspaces?|projects?|work|code|src|repos?|github)/|[A-Za-z]:[/\\]"
)
"""How one begins that is none by chance: one of 64 secrets in base64 begins with `/`, too."""

NAME_SAID: Final = r"(?P<name>[A-Za-z_][\w.-]{0,99})[\"'\\]{0,3}\s{0,9}[:=]"
"""A name that something is said of, as in `--token=`, `{"Authorization":` and `?api_key=`."""

_NAME: Final = re.compile(
    rf"(?<![\w.]){NAME_SAID}\s{{0,9}}[\"'\\]{{0,3}}"
    r"(?:(?:basic|bearer|token)\s{1,9})?",
    re.IGNORECASE,
)
_VALUE: Final = re.compile(r"[^\s\"'\\&;,}]{8,4096}")
_ASSIGNED: Final = re.compile(r"\A-{0,2}(?P<name>[A-Za-z_][\w.-]{0,99})=(?P<value>.{8,4096})\Z", re.DOTALL)
"""Where it is all of an argument, nothing ends a value."""
_OF_PASSWORD: Final = re.compile(r"(?:PASSWORD|PASSWD|PASS|PWD|PASSPHRASE|PASSCODE)$", re.IGNORECASE)
_NO_VALUES: Final = frozenset({"required", "optional", "disabled", "prompted"})
"""What is said of passwords themselves."""
_OF_TOKEN: Final = re.compile(
    r"(?:TOKEN|SECRET|JWT|PAT|AUTHORI[SZ]ATION|(?:ACCOUNT|ACCESS|API|SECRET|PRIVATE|SIGNING|ENCRYPTION)[_-]?KEY)$",
    re.IGNORECASE,
)
_WORDS: Final = re.compile(r"[a-z]{1,15}(?:[-_.:/][a-z]{0,15})*")
_RANDOM: Final = re.compile(r"(?<![A-Za-z0-9])(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{8,}")
_ELSEWHERE: Final = re.compile(
    r"-----(?:BEGIN|END)"
    r"|[A-Z]+\d{0,2}(?:_(?:[A-Z]+\d{0,2}|\d{1,4}))+"  # the name of a variable
    rf"|(?:{FOLDER.pattern})\S*|[\\/](?:[\w-]+/)*[\w.-]*\.[A-Za-z]\w{{0,9}}"  # a path
    r"|[\w-]+(?:\.[\w-]+)*\.(?:json|pem|key|crt|p12|pfx|txt|ya?ml)"  # a file
)
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN (?P<kind>[A-Z0-9 ]{0,30}PRIVATE KEY)-----(?:[^-]|-(?!----)){1,20000}-----END (?P=kind)-----"
)

_MOST: Final = 1_000
"""Of each kind no more are looked at in one text: a stranger may have written it, and everybody waits."""


def passwords_in(text: str) -> Iterator[str]:
    """Of the URLs in it, but for words as in `postgresql://postgres:postgres@localhost`."""
    for user, password in _logins(text):
        if password not in _NO_PASSWORD and not (user == password and _WORD.fullmatch(password)):
            yield password


def secrets_within(text: str) -> Iterator[str]:
    """What the text itself says is secret in it, and is no word that is told anywhere."""
    for user, password in _logins(text):
        if user != password:
            yield f"{user}:{password}"
        if password in _NO_PASSWORD:
            yield user
        elif text.count(password) == 1 and not _WORD.fullmatch(password):
            yield password
    for name, value in islice(_said(text), _MOST):
        if _is_secret(name, value) and not _WORD.fullmatch(value):
            yield value
    for key in _PRIVATE_KEY.finditer(text):
        yield key[0]
        yield key[0].replace("\\n", "\n")


def words_said(text: str) -> Iterator[str]:
    """Words that it says are passwords: `Username=postgres;Password=postgres`. They are told anywhere."""
    for name, value in islice(_said(text), _MOST):
        if _WORD.fullmatch(value) and _is_secret(name, value):
            yield value


def _is_secret(name: str, value: str) -> bool:
    """Whether what goes by the name of a secret looks like one: columns, rows and settings have keys, too."""
    if _ELSEWHERE.fullmatch(value):
        return False
    if _OF_PASSWORD.search(name):
        return value.lower() not in _NO_VALUES
    if _OF_TOKEN.search(name):
        return not _WORDS.fullmatch(value)
    return bool(_RANDOM.search(value))


def _said(text: str) -> Iterator[tuple[str, str]]:
    """What goes by the name of a secret. What it says may say more: `Cookie: session=x`."""
    for said in _NAME.finditer(text):
        if is_secret_name(said["name"]) and (value := _VALUE.match(text, said.end())):
            yield said["name"], value[0]
    if (all_of_it := _ASSIGNED.match(text)) and is_secret_name(all_of_it["name"]):
        yield all_of_it["name"], all_of_it["value"]


def _logins(text: str) -> Iterator[tuple[str, str]]:
    for pattern in _LOGINS:
        for login in islice(pattern.finditer(text), _MOST):
            yield login["user"], login["password"]
