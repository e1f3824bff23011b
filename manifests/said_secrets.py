"""Secrets within a longer text, by what that says of them: passwords in URLs, and what goes by a credential's name."""

import re
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import unquote

_LOGIN: Final = re.compile(r"://(?P<user>[^\s/?#:@\"'<>]{0,500}):(?P<password>[^\s/?#\"'<>]{1,500})@")
_NO_PASSWORD: Final = frozenset({"x-oauth-basic", "x-token-auth"})
"""What hosts of Git want beside a token."""
_TOKEN: Final = re.compile(r"(?=\D*\d)\S{16,}")
_SAID: Final = re.compile(
    r"(?P<name>[A-Za-z_][\w.-]{0,99})[\"'\\]{0,3}\s{0,9}[:=]\s{0,9}[\"'\\]{0,3}"
    r"(?:(?:basic|bearer|token)\s{1,9})?(?P<value>[^\s\"'\\&;,}]{8,})",
    re.IGNORECASE,
)


def passwords_in(text: str) -> Iterator[str]:
    """Of the URLs in it: `user:password`, and what of that is secret by itself."""
    for login in _LOGIN.finditer(text):
        user, password = login["user"], login["password"]
        yield f"{user}:{password}"
        if password in _NO_PASSWORD or _TOKEN.fullmatch(user):
            yield user
        # `postgresql://postgres:postgres@localhost` has a word for it that is told anywhere.
        if password not in _NO_PASSWORD and text.count(password) == 1:
            yield password


def values_said(text: str, is_credential: Callable[[str], bool]) -> Iterator[str]:
    """What goes under the name of a credential: `{"Authorization": "Bearer x"}`, `session=x; theme=dark`."""
    for said in _SAID.finditer(text):
        if is_credential(unquote(said["name"])):
            yield said["value"]
