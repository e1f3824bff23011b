"""Masks secrets in all text that leaves the portal: by their exact values and their usual encodings.

Nothing is guessed: a text that only looks like a secret is not masked. The encodings are JSON, URLs and base64.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final
from urllib.parse import quote, quote_plus, unquote, urlsplit

from manifests.json_value import Json
from manifests.portal_manifest import HttpUpstream, StdioUpstream

MASK: Final = "[hidden]"
LEAST_CHARACTERS: Final = 6
"""Shorter values are not masked: they occur in ordinary text, and real secrets are longer."""

MAX_SHOWN_CHARACTERS: Final = 2_000
"""Characters of an error or a reason that are shown."""

_LEAST_LINE: Final = 16
_LEAST_BASE64: Final = 8
_MOST_ADDED: Final = 100
_SCHEME: Final = re.compile(r"(?:basic|bearer|token)\s+(\S+)", re.IGNORECASE)
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
"""Characters that JSON and URLs do not escape."""


def secrets_of(spec: StdioUpstream | HttpUpstream) -> Iterator[str]:
    """The credentials in an upstream's section, which are secrets even if written literally."""
    if isinstance(spec, StdioUpstream):
        return
    for name, value in spec.headers.items():
        if name.lower() in ("authorization", "proxy-authorization"):
            yield value
            yield from _basic_login(value)
    if login := basic_login(spec.url):
        yield login
        yield _password(spec.url)
    if spec.oauth and spec.oauth.client_secret:
        yield spec.oauth.client_secret


def basic_login(url: str) -> str:
    """The `Authorization` value for the user and password of a URL; "" without them."""
    parts = urlsplit(url)
    if not (parts.username or parts.password):
        return ""
    login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return base64.b64encode(login.encode("utf-8", "surrogatepass")).decode()


def _basic_login(header: str) -> Iterator[str]:
    """The password in an `Authorization: Basic` header."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() == "basic":
        with suppress(binascii.Error, UnicodeDecodeError):
            yield base64.b64decode(encoded, validate=True).decode().partition(":")[2]


class Redaction:
    """Masks secrets in all their encodings, in linear time."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self.secrets = frozenset(secrets)
        self._added: list[str] = []
        self._compile()

    def add(self, secrets: Iterable[str]) -> None:
        """Also mask these renewed tokens. Only the last hundred added are masked."""
        renewed = sorted({*secrets})
        former = [each for each in self._added if each not in renewed]
        self._added = [*former, *renewed][-_MOST_ADDED:]
        self._compile()

    def replace(self, secrets: Iterable[str]) -> None:
        """Mask these secrets; the former ones count as added."""
        former, self.secrets = self.secrets, frozenset(secrets)
        self.add(former - self.secrets)

    def __call__(self, text: str) -> str:
        return self._pattern.sub(MASK, text) if any(needle in text for needle in self._needles) else text

    def start(self, text: str, limit: int = MAX_SHOWN_CHARACTERS) -> str:
        """The first `limit` characters of a text, masked before it is cut: half a secret is a secret, too."""
        end = limit + self.longest
        if len(text) > end:  # it may end with half a secret, which masking others moves into view
            secrets = self._pattern.finditer(text, 0, end)
            end = max([limit, *(each.end() for each in secrets if each.start() < limit)])
        masked = self(text[:end])
        return masked if len(masked) <= limit and len(text) <= end else f"{masked[:limit]}…"

    def excerpt(self, text: bytes, limit: int = 120) -> str:
        """The beginning of untrusted text: masked, printable, on one line."""
        # A character takes up to four bytes.
        head = text.lstrip()[: 4 * (limit + self.longest)]
        masked = self.start(head.decode("utf-8", "replace").strip(), limit)
        return "".join(character if character.isprintable() else " " for character in masked)

    def in_json(self, text: bytes) -> bytes:
        """Mask the strings of a JSON text, including keys; mask other text as a whole. Unparsed if it has no secret."""
        if not any(needle in text for needle in self._needle_bytes):
            return text
        try:
            value = json.loads(text)
            masked = self._masked(value)
            return text if masked == value else json.dumps(masked).encode()
        except (ValueError, RecursionError):
            return self(text.decode("utf-8", "replace")).encode()

    def in_value(self, value: Json) -> Json:
        """Mask the strings of a JSON value, including keys; a value that is nested too deeply is masked as a whole."""
        try:
            return self._masked(value)
        except RecursionError:
            return MASK

    def _masked(self, value: Json) -> Json:
        if isinstance(value, str):
            return self(value)
        if isinstance(value, list):
            return [self._masked(item) for item in value]
        if isinstance(value, dict):
            return {self(key): self._masked(item) for key, item in value.items()}
        return value

    def _compile(self) -> None:
        secrets = {part for secret in self.secrets.union(self._added) for part in _parts(secret)}
        forms = {form for secret in secrets for form in _forms(secret)}
        # The longest first: one may contain another.
        either = "|".join(map(re.escape, sorted(forms, key=lambda form: (-len(form), form))))
        self._pattern = re.compile(either or r"(?!)")
        self.longest = max(map(len, forms), default=0)
        # The longest run in each form that JSON never escapes. A short run would occur in every text.
        self._needles = frozenset(max(_PLAIN.findall(form), key=len, default="") for form in forms)
        self._needle_bytes = tuple(needle.encode("utf-8", "surrogatepass") for needle in self._needles)


def _parts(secret: str) -> Iterator[str]:
    """The secret, the secrets within it (a token, a password), and its lines, as stderr shows them."""
    scheme = _SCHEME.fullmatch(secret.strip())
    found = {scheme[1]} if scheme else {secret, secret.strip()}
    found.add(_password(secret))
    found.update(map(unquote, list(found)))
    lines = secret.splitlines()
    if len(lines) > 1:
        found.update(line for line in lines if len(line) >= _LEAST_LINE and not line.startswith("-----"))
    return (part for part in found if len(part) >= LEAST_CHARACTERS)


def _password(secret: str) -> str:
    """The password of a URL; "" for other text."""
    try:
        return urlsplit(secret).password or "" if "://" in secret else ""
    except ValueError:
        return ""


def _forms(secret: str) -> Iterator[str]:
    yield secret
    for is_ascii in (True, False):
        in_json = json.dumps(secret, ensure_ascii=is_ascii)[1:-1]
        yield in_json
        yield in_json.replace("/", "\\/")  # as PHP writes it
    for quoted in (
        quote(secret, safe="", errors="replace"),
        quote(secret, errors="replace"),
        quote_plus(secret, errors="replace"),
    ):
        yield quoted
        yield re.sub("%..", lambda found: found[0].lower(), quoted)
    yield from _in_base64(secret.encode("utf-8", "surrogatepass"))


def _in_base64(secret: bytes) -> Iterator[str]:
    """The three forms that the secret can have inside the base64 of a longer text, by its offset."""
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + secret).decode().rstrip("=")
        # The first and last characters also encode neighbouring bytes.
        start = (0, 2, 3)[before]
        end = len(encoded) - (1 if (before + len(secret)) % 3 else 0)
        if end - start >= _LEAST_BASE64:
            yield encoded[start:end]
            yield encoded[start:end].translate(_URL_SAFE)


_URL_SAFE: Final = str.maketrans("+/", "-_")
