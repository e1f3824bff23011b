"""Secrets within a longer text, by what that says of them: passwords in URLs, and what goes by a password's name."""

import re
from collections.abc import Iterator
from typing import Final

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

_SAID: Final = re.compile(
    r"(?:PASSWORD|PASSWD|PWD|PASSPHRASE|(?:ACCOUNT|ACCESS|API|SECRET)[_-]?KEY|(?:CLIENT|APP|API)[_-]?SECRET|TOKEN"
    r"|AUTHORI[SZ]ATION)[\"'\\]{0,3}\s{0,9}[:=]\s{0,9}[\"'\\]{0,3}"
    r"(?:(?:basic|bearer|token)\s{1,9})?(?P<value>[^\s\"'\\&;,}]{8,})",
    re.IGNORECASE,
)
"""By names that mean nothing else: `key`, `auth` and `session` are said of columns and settings, too."""
_ORDINARY: Final = re.compile(
    r"[A-Za-z]*(?:[-_.:][A-Za-z]*)*"  # words, and `-----BEGIN`
    r"|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+"  # the name of a variable
    r"|(?:~|\.{1,2}|[A-Za-z]:)?[/\\][\w.-]*(?:[/\\][\w.-]*)*"  # a path
)


def passwords_in(text: str) -> Iterator[str]:
    """Of the URLs in it."""
    return (password for _, password in _logins(text) if password not in _NO_PASSWORD)


def secrets_within(text: str) -> Iterator[str]:
    """What the text itself says is secret in it, and is no word that is told anywhere."""
    for user, password in _logins(text):
        if user != password:  # not `postgresql://postgres:postgres@localhost`
            yield f"{user}:{password}"
        if password in _NO_PASSWORD:
            yield user
        elif text.count(password) == 1 and not _WORD.fullmatch(password):
            yield password
    for said in _SAID.finditer(text):
        if not _ORDINARY.fullmatch(said["value"]):
            yield said["value"]


def _logins(text: str) -> Iterator[tuple[str, str]]:
    for pattern in _LOGINS:
        for login in pattern.finditer(text):
            yield login["user"], login["password"]
