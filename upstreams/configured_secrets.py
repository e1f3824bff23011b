"""What the section of an upstream says in so many words that is not for everybody: secrets, and what may be one."""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from manifests.credential_names import is_credential_name, is_option
from manifests.said_secrets import passwords_in, secrets_within, words_said
from manifests.upstream_sections import HttpUpstream, StdioUpstream

_LEAST_OF_COOKIE: Final = 8  # shorter ones are like `dark`
_SCHEMES: Final = frozenset({"basic", "bearer", "digest", "token", "aws4-hmac-sha256"})
_PLAIN: Final = re.compile(
    r"(?:^|[_-])(?:LEVEL|MODE|ENV|ENVIRONMENT|DEBUG|VERBOSE|BATCH|SIZE|COUNT|LIMIT|MAX|MIN|TIMEOUT|SECONDS|RETRIES"
    r"|INTERVAL|PORT|LANG|LANGUAGE|LOCALE|TZ|TIMEZONE|FORMAT|TYPE|REGION|VERSION|ENABLED|DISABLED|READ_?ONLY"
    r"|TOOLSETS?|USER[_-]AGENT)$",
    re.IGNORECASE,
)
"""Names of what is a setting for sure."""
_PLAIN_VALUE: Final = re.compile(r"[A-Za-z]?[a-z]{0,14}|[A-Z]{1,15}|[-+\d.,:]{1,15}")
"""Words and numbers: where they are secrets, they are told as words of their own."""


@dataclass(frozen=True)
class ConfiguredSecrets:
    certain: frozenset[str]
    settings: frozenset[str]
    """They may be secrets, and may be words like `production`."""

    words: frozenset[str]
    """They are settings by their names, or are no more than a word or a number."""

    @classmethod
    def of(cls, spec: StdioUpstream | HttpUpstream) -> "ConfiguredSecrets":
        if isinstance(spec, StdioUpstream):
            options = [f"{option}={value}" for option, value in pairwise(spec.args) if is_option(option)]
            texts = (*spec.args, *options, *spec.env.values())
            in_urls = [_of_url(arg) for arg in spec.args]
            words = {name: value for name, value in spec.env.items() if _kind(name, value) == "words"}
            others = frozenset(value for name, value in spec.env.items() if name not in words)
            return cls(
                frozenset().union(*map(secrets_within, texts), *(each.certain for each in in_urls)),
                others.union(*map(passwords_in, spec.args), *(each.settings for each in in_urls)),
                frozenset(words.values()).union(*map(words_said, texts), *(each.words for each in in_urls)),
            )
        url = _of_url(spec.url)
        by_kind: dict[str, dict[str, str]] = {"certain": {}, "settings": {}, "words": {}}
        for name, value in spec.headers.items():
            by_kind[_kind(name, value)][name] = value
        secret = spec.oauth.client_secret if spec.oauth else None
        return cls(
            url.certain.union(secrets_of_headers(by_kind["certain"]), [secret] if secret else []),
            url.settings.union(secrets_of_headers(by_kind["settings"]), passwords_in(spec.url)),
            url.words.union(secrets_of_headers(by_kind["words"])),
        )


def secrets_of_headers(headers: Mapping[str, str]) -> Iterator[str]:
    """Each of them, its words, since an upstream may echo a token without its `Bearer`, and what it holds."""
    for name, value in headers.items():
        yield value
        yield from words_of(value)
        yield from secrets_within(value)
        if name.lower() == "cookie":
            said = (each.partition("=")[2].strip() for each in value.split(";"))
            yield from (each for each in said if len(each) >= _LEAST_OF_COOKIE)


def words_of(header: str) -> Iterator[str]:
    """All but the scheme of an `Authorization`; of Basic also what it says in base64, and the password in that."""
    words = header.split()
    yield from (word for word in words if word.lower() not in _SCHEMES)
    if len(words) == 2 and words[0].lower() == "basic":
        try:
            login = base64.b64decode(words[1], validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return
        yield from (login, login.partition(":")[2])


def basic_login(url: str) -> str:
    """What is sent in an `Authorization` for the user and the password of a URL; "" without them."""
    try:
        parts = urlsplit(url)
    except ValueError:  # it only looks like one
        return ""
    if not (parts.username or parts.password):
        return ""
    login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return base64.b64encode(login.encode("utf-8", "surrogatepass")).decode()


def _of_url(url: str) -> ConfiguredSecrets:
    try:
        parts = urlsplit(url if "://" in url else "")
    except ValueError:
        parts = urlsplit("")
    by_kind: dict[str, set[str]] = {
        "certain": {basic_login(url), *secrets_within(url)},
        "settings": set(),
        "words": set(),
    }
    for name, value in parse_qsl(parts.query):
        by_kind[_kind(name, value)].add(value)
    # Beside a password it only says whose that is.
    if parts.username and not parts.password:
        by_kind["certain"].add(parts.username)
    return ConfiguredSecrets(**{kind: frozenset(values) for kind, values in by_kind.items()})


def _kind(name: str, value: str) -> str:
    if is_credential_name(name):
        return "certain"
    return "words" if _PLAIN.search(name) or _PLAIN_VALUE.fullmatch(value) else "settings"
