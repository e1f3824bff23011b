"""What the section of an upstream says in so many words that is not for everybody: secrets, and what may be one."""

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from manifests.credentials import is_credential_name, secrets_within
from manifests.upstream_sections import HttpUpstream, StdioUpstream

_LEAST_OF_COOKIE: Final = 8  # shorter ones are like `dark`
_SCHEMES: Final = frozenset({"basic", "bearer", "digest", "token", "aws4-hmac-sha256"})


@dataclass(frozen=True)
class ConfiguredSecrets:
    certain: frozenset[str]
    settings: frozenset[str]
    """They may be secrets, and may be words like `production`."""

    @classmethod
    def of(cls, spec: StdioUpstream | HttpUpstream) -> "ConfiguredSecrets":
        if isinstance(spec, StdioUpstream):
            said = [secret for text in (*spec.args, *spec.env.values()) for secret in secrets_within(text)]
            in_urls = [_of_url(arg) for arg in spec.args]
            return cls(
                frozenset(said).union(*(each.certain for each in in_urls)),
                frozenset(spec.env.values()).union(*(each.settings for each in in_urls)),
            )
        url = _of_url(spec.url)
        credentials = {name: value for name, value in spec.headers.items() if is_credential_name(name)}
        others = {name: value for name, value in spec.headers.items() if name not in credentials}
        secret = spec.oauth.client_secret if spec.oauth else None
        return cls(
            frozenset({*secrets_of_headers(credentials), *url.certain, *([secret] if secret else [])}),
            frozenset({*secrets_of_headers(others), *url.settings}),
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
        parts = urlsplit(url)
    except ValueError:
        return ConfiguredSecrets(frozenset(), frozenset())
    if "://" not in url:
        return ConfiguredSecrets(frozenset(), frozenset())
    query = parse_qsl(parts.query)
    certain = {value for name, value in query if is_credential_name(name)}
    certain |= {basic_login(url), *secrets_within(url)}
    # Beside a password it only says whose that is.
    if parts.username and not parts.password:
        certain.add(parts.username)
    return ConfiguredSecrets(frozenset(certain), frozenset(value for _, value in query) - certain)
