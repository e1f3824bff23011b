"""The parts of addresses in which passwords stand: of URLs, and of what some drivers of databases take instead."""

import re
from typing import Final

from portal.client_files.mixed_text import PLACE

_REST_OF_URL: Final = r"(?P<host>[^/?#]*)(?P<path>[^?#]*)(?P<query>\?[^#]*)?(?P<fragment>#.*)?"
_URL: Final = re.compile(
    rf"(?P<scheme>(?:[A-Za-z][A-Za-z0-9+.-]*|\0)://|\0(?=[/?#:]))(?:(?P<user>[^/?#]*)@)?{_REST_OF_URL}",
    re.DOTALL,
)
_URL_WITH_PASSWORD: Final = re.compile(
    rf"(?P<scheme>(?:[A-Za-z][A-Za-z0-9+.-]*|\0)://)(?P<user>[^/?#:]*:.*)@{_REST_OF_URL}", re.DOTALL
)
"""Drivers of databases take passwords as they are, with any of `/?#@` in them."""
_WEB: Final = re.compile(r"(?i)(?:[a-z][a-z0-9+.-]*\+)?(?:https?|wss?|ssh)://")

_DRIVER_USER: Final = re.compile(r"[^\s:/@]*:")
_DRIVER_NETWORK: Final = re.compile(r"@[a-z][a-z0-9]{0,20}\(")
"""What Go's drivers have behind the password: `root:password@tcp(db.example:3306)/shop`."""
_ORACLE: Final = re.compile(r"(?:[\w-]{1,60}=)?(?i:jdbc:oracle:[a-z0-9]{1,9}:)[^\s/:@]{1,128}/(?=[^\s@])")
_ORACLE_ALONE: Final = re.compile(r"[^\s/:@\0]{1,128}/(?=[^\s@])")
_ORACLE_HOST: Final = re.compile(
    r"@(?://)?[\w.-]{1,253}:(?!(?:443|[358]000|80\d\d|8443|8888|80)\D)\d{2,5}[:/]\w"
)
"""What Oracle's have behind theirs: `scott/tiger@db.example:1521/XE`; an image or a package has no port there, and
`owner/repo@host:8080/x` the web's.
"""
_NO_PASSWORD: Final = r"\s|\0+@|(?:\d{1,5}|\0|\$\w+|\$\{\w+\})(?![^/?#,;:\s\"'`\\)\]}>|])"
"""Behind the colon of a port, or where the password is known already."""
_QUOTED_LOGIN: Final = re.compile(
    rf"://(?=(?!\[)[^\s/?#@:]{{0,200}}:(?!{_NO_PASSWORD})(?P<password>[^@\n]{{1,200}})@)"
)
"""A login with a password in which there is what elsewhere ends an address."""
_NO_WEB_PASSWORD: Final = re.compile(r"[\s/?#]")
_OF_ADDRESSES: Final = re.compile(r"(?i)(?:proxy|dsn|ur[il])\Z")
_LOGIN_ALONE: Final = re.compile(
    r"(?P<user>[^\s:/@]{1,128}:)(?P<password>[^\s/]{1,200})(?P<rest>@[\w.-]{1,253}(?::\d{1,5}(?![^/?])|/).*)",
    re.DOTALL,
)
"""As proxies and some drivers are told without a scheme: `me:password@proxy.example:3128`."""
_SCHEME_BEFORE: Final = re.compile(r"[A-Za-z0-9+.-]{1,30}\Z")
_WORD_OF_ADDRESS: Final = re.compile(r"[^\s\"'<>\0]+")
_FAR: Final = 200
"""Characters before the network in which a user and a password are looked for."""


def url_parts(text: str) -> re.Match[str] | None:
    """`scheme`, `user` (with the password), `host`, `path`, `query` and `fragment` of a text that is a URL."""
    return (None if _WEB.match(text) else _URL_WITH_PASSWORD.fullmatch(text)) or _URL.fullmatch(text)


def driver_parts(text: str, *, is_connection: bool = False) -> tuple[str, str, str] | None:
    """What stands before the password, the password and the rest, of a text that is such an address with one.

    `is_connection` says that it goes under a name that promises one.
    """
    return _go_parts(text) or _oracle_parts(text, is_connection=is_connection)


def login_parts(text: str, name: str) -> tuple[str, str, str] | None:
    """The same of an address without a scheme, if it goes under the name of one."""
    found = _LOGIN_ALONE.fullmatch(text) if _OF_ADDRESSES.search(name) else None
    return (found["user"], found["password"], found["rest"]) if found else None


def _go_parts(text: str) -> tuple[str, str, str] | None:
    user = _DRIVER_USER.match(text)
    # The last one, looked for forwards: one expression for all of it would try each with each.
    *_, network = (None, *_DRIVER_NETWORK.finditer(text, user.end() + 1 if user else 0))
    if not user or not network or re.search(r"\s", text[network.end() :]):
        return None
    return user[0], text[user.end() : network.start()], text[network.start() :]


def _oracle_parts(text: str, *, is_connection: bool) -> tuple[str, str, str] | None:
    user = _ORACLE.match(text)
    is_certain = bool(user) or is_connection
    user = user or _ORACLE_ALONE.match(text)
    at = text.rfind("@")
    if not user or at <= user.end() or re.search(r"\s", text) or text.startswith("//", user.end() - 1):
        return None
    if not is_certain and not _ORACLE_HOST.match(text, at):
        return None
    return user[0], text[user.end() : at], text[at:]


def has_password(text: str) -> bool:
    """Whether an address with a password stands anywhere in a text: `npx server postgres://me:x@db.example`."""
    words = _WORD_OF_ADDRESS.findall(text)
    if any(map(_is_login, _QUOTED_LOGIN.finditer(text))):
        return True
    return any(_has_login(word) or _oracle_parts(word, is_connection=False) for word in words) or any(
        ":" in re.split(r"\s", text[max(0, found.start() - _FAR) : found.start()].replace(PLACE, ""))[-1][:-1]
        for found in _DRIVER_NETWORK.finditer(text)
    )


def _is_login(found: re.Match[str]) -> bool:
    is_web = _WEB.search(found.string[max(0, found.start() - 30) : found.end()])
    return not (is_web and _NO_WEB_PASSWORD.search(found["password"]))


def _has_login(word: str) -> bool:
    before, mark, after = word.partition("://")
    scheme = _SCHEME_BEFORE.search(before[-30:])
    parts = url_parts(scheme[0].lstrip("0123456789+.-") + mark + after) if scheme and mark else None
    return bool(parts and (parts["user"] or "").partition(":")[2])
