"""Masks secrets in all text that leaves the portal: by their exact values and their usual encodings.

Nothing is guessed: a text that only looks like a secret is not masked. The encodings are JSON, URLs and base64.
"""

import base64
import binascii
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Final
from urllib.parse import quote, quote_plus, unquote, urlsplit

from pydantic_core import PydanticSerializationError, from_json, to_json

from manifests.json_value import Json
from manifests.portal_manifest import HttpUpstream, StdioUpstream

MASK: Final = "[hidden]"
LEAST_CHARACTERS: Final = 6
"""Shorter values are not masked: they occur in ordinary text, and real secrets are longer."""

_OWN_WORDS: Final = (
    "jsonrpc method params message result content structuredContent contents resource resources prompts arguments "
    "properties required additionalProperties description annotations definitions string number integer boolean object "
    "status stdout stderr notices run_id session waiting emitted sources kernel function state not_started answered_by "
    "unknown failed refused running cancelled expired traceback python javascript question upstream arguments_sha256"
)
"""Words of protocols, schemas and answers. A setting such as `stdout` may be a secret by its reference: if these were
masked, nothing could be read."""

MAX_SHOWN_CHARACTERS: Final = 2_000
"""Characters of an error or a reason that are shown."""

_LEAST_LINE: Final = 16
_LEAST_BASE64: Final = 8
_RENEWALS: Final = 3
"""Sets of secrets that are masked for each owner: the current one, and those before, which slow answers contain."""
_SCHEME: Final = re.compile(r"(?:basic|bearer|token)\s+(\S+)", re.IGNORECASE)
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
"""Characters that JSON and URLs do not escape."""
_ESCAPED_IN_JSON: Final = (("<>&", "x"), ("<>&='", "x"), ("\"&'+<>`", "X"))
"""Characters that Go, Gson and .NET escape in JSON for the sake of HTML, and the kind of their hexadecimal digits."""
_NUMBERS: Final = re.compile(r"[-+.,\deE]+")
"""Text that JSON can also have outside of strings, where it is not masked."""


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
    """Masks secrets in all their encodings, with searches for fixed text only.

    It uses no regular expression of the secrets: compiling long ones takes seconds, and `re` keeps them.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self.secrets = frozenset(secrets)
        self._renewed: dict[str, deque[frozenset[str]]] = {}
        """By owner: the secrets of its last renewals, the current ones last."""
        self._forms_of: dict[str, frozenset[str]] = {}
        self._prepare()

    def add(self, owner: str, secrets: Iterable[str]) -> None:
        """Also mask the current secrets of an owner, an upstream by its name, and those of its last two renewals."""
        if self._renew(owner, frozenset(secrets)):
            self._prepare()

    def replace(self, secrets: Iterable[str]) -> None:
        """Mask these secrets; the former ones are masked as long as those that an upstream renewed."""
        former, self.secrets = self.secrets, frozenset(secrets)
        self._renew("", former - self.secrets)
        self._prepare()

    def __call__(self, text: str) -> str:
        for form in self._forms:
            if form in text:
                text = text.replace(form, MASK)
        return text

    def start(self, text: str, limit: int = MAX_SHOWN_CHARACTERS) -> str:
        """The first `limit` characters of a text, masked before it is cut: half a secret is a secret, too."""
        end = limit + self.longest
        if len(text) > end:  # it may end with half a secret, which masking others moves into view
            begun = ((text.rfind(form, 0, limit + len(form) - 1), len(form)) for form in self._forms)
            end = max([limit, *(at + length for at, length in begun if at >= 0)])
        masked = self(text[:end])
        return masked if len(masked) <= limit and len(text) <= end else f"{masked[:limit]}…"

    def excerpt(self, text: bytes, limit: int = 120) -> str:
        """The beginning of untrusted text: masked, printable, on one line."""
        # A character takes up to four bytes.
        head = text.lstrip()[: 4 * (limit + self.longest)]
        masked = self.start(head.decode("utf-8", "replace").strip(), limit)
        return "".join(character if character.isprintable() else " " for character in masked)

    def in_json_text(self, text: str) -> str:
        """Mask JSON, or lines that contain it. It stays JSON: a secret that is a number is masked in strings only."""
        return _masked(text, self._forms)

    def in_json(self, text: bytes) -> bytes:
        """Mask the strings of a JSON text, including keys; mask other text as a whole."""
        if not self._may_be_in(text):
            return text
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return self(text.decode("utf-8", "replace")).encode()
        masked = self.in_value(value)
        return text if masked is value else json.dumps(masked).encode()

    def in_parsed(self, value: Json, text: bytes) -> Json:
        """`in_value` of a value that was parsed from `text`. It is not read if the text has no secret."""
        return self.in_value(value) if self._may_be_in(text) else value

    def in_value(self, value: Json) -> Json:
        """Mask the strings of a JSON value, including keys; a value that is nested too deeply is masked as a whole.

        They are masked in the encoded text: a walk of 16 MiB of short strings would block the event loop for seconds.
        """
        decoded: Callable[[str], Json] = from_json
        try:
            try:
                text = to_json(value, inf_nan_mode="constants").decode()
            except PydanticSerializationError:  # a lone surrogate, or deep nesting
                text, decoded = json.dumps(value, ensure_ascii=False), json.loads
            masked = _masked(text, self._json_forms)
            return value if masked == text else decoded(masked)
        except (ValueError, RecursionError):
            return MASK

    def _may_be_in(self, text: bytes) -> bool:
        return any(needle in text for needle in self._needles)

    def _renew(self, owner: str, secrets: frozenset[str]) -> bool:
        """Make these the current secrets of an owner. Returns whether they were not yet."""
        sets = self._renewed.setdefault(owner, deque(maxlen=_RENEWALS))
        if not secrets or (sets and secrets == sets[-1]):
            return False
        sets.append(secrets)
        return True

    def _prepare(self) -> None:
        secrets = self.secrets.union(*chain.from_iterable(self._renewed.values()))
        known = self._forms_of
        self._forms_of = {each: known[each] if each in known else _all_forms(each) for each in secrets}
        # The longest first: one may contain another.
        self._forms = _longest_first(chain.from_iterable(self._forms_of.values()))
        self._json_forms = _longest_first(json.dumps(form, ensure_ascii=False)[1:-1] for form in self._forms)
        self.longest = max(map(len, self._forms), default=0)
        # The longest run in each form that JSON never escapes. A short run would occur in every text.
        needles = {max(_PLAIN.findall(form), key=len, default="") for form in self._forms}
        self._needles = tuple(needle.encode() for needle in needles)


def _longest_first(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({*texts}, key=lambda text: (-len(text), text)))


def _masked(text: str, forms: Iterable[str]) -> str:
    for form in forms:
        if form in text:
            is_number = _NUMBERS.fullmatch(form) is not None
            text = _number_in_strings(text, form) if is_number else text.replace(form, MASK)
    return text


def _number_in_strings(text: str, number: str) -> str:
    """JSON text with a secret masked in its strings, but not in its numbers."""
    if '"' not in text:
        return text
    # JSON has no control characters, so these two can stand for the quotes that end no string.
    parts = text.replace("\\\\", "\0").replace('\\"', "\1").split('"')
    parts[1::2] = '"'.join(parts[1::2]).replace(number, MASK).split('"')
    return '"'.join(parts).replace("\1", '\\"').replace("\0", "\\\\")


def _all_forms(secret: str) -> frozenset[str]:
    return frozenset(form for part in _parts(secret) for form in _forms(part))


def _parts(secret: str) -> Iterator[str]:
    """The secret, the secrets within it (a token, a password), and its lines, as stderr shows them."""
    scheme = _SCHEME.fullmatch(secret.strip())
    found = {scheme[1]} if scheme else {secret, secret.strip()}
    found.add(_password(secret))
    found.update(map(unquote, list(found)))
    lines = secret.splitlines()
    if len(lines) > 1:
        found.update(line for line in lines if len(line) >= _LEAST_LINE and not line.startswith("-----"))
    return (part for part in found if len(part) >= LEAST_CHARACTERS and part not in _OWN_WORDS.split())


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
    for escaped, digits in _ESCAPED_IN_JSON:
        yield "".join(
            f"\\u{ord(each):04{digits}}" if each in escaped else json.dumps(each, ensure_ascii=False)[1:-1]
            for each in secret
        )
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
