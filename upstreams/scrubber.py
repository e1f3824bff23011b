"""Keeps configured secrets out of what people and models read.

What is cut is scrubbed before: half a secret is one, too.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Set
from typing import Final
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

from manifests.upstream_sections import HttpUpstream, StdioUpstream
from upstreams.wire_text import one_line

LONGEST_TOLD: Final = 2_000
"""Of an error or a reason no more characters are told."""

_SHORTEST: Final = 4  # a shorter value hides nothing and would riddle every message
_SHORTEST_LINE: Final = 8
_MOST_PASSING: Final = 100
_MASK: Final = "[hidden]"
_OF_GO: Final = str.maketrans({"&": "\\u0026", "<": "\\u003c", ">": "\\u003e"})
_ESCAPED_BY_DOTNET: Final = frozenset("&'+<>`")
_SCHEMES: Final = frozenset({"basic", "bearer", "digest", "token"})


class Scrubber:
    """Replaces secrets wherever they occur: of an upstream's `env` and `headers`, in its URLs, and all others it is
    told of, as they are, line by line, and as they stand in JSON, in Python and in URLs."""

    def __init__(
        self, secrets: Iterable[str], settings: Iterable[str] = (), more_forms: Set[str] = frozenset()
    ) -> None:
        """`settings` may be secrets, and may be words like `production`: see `content`."""
        self._secrets = forms_of(secrets) | more_forms
        self._settings = forms_of(settings)
        self._passing: dict[str, None] = {}
        self._compile()

    @classmethod
    def for_upstream(
        cls, spec: StdioUpstream | HttpUpstream, more_forms: Set[str] = frozenset()
    ) -> "Scrubber":
        """`more_forms` are those of other secrets, made once for all upstreams."""
        settings = spec.env.values() if isinstance(spec, StdioUpstream) else ()
        return cls(_configured(spec), settings, more_forms)

    def hide_for_now(self, secrets: Iterable[str]) -> None:
        """Hide these, too, until a hundred others came after them: tokens that are renewed again and again."""
        for form in sorted(forms_of(secrets)):
            self._passing.pop(form, None)
            self._passing[form] = None
        for form in list(self._passing)[:-_MOST_PASSING]:
            del self._passing[form]
        self._compile()

    def _compile(self) -> None:
        certain = {*self._secrets, *self._passing}
        self._pattern = _pattern(certain | self._settings)
        self._content = self._pattern if self._settings <= certain else _pattern(certain)
        self._longest = max(map(len, certain | self._settings), default=0)

    def __call__(self, text: str) -> str:
        return self._pattern.sub(_MASK, text)

    def content(self, text: str) -> str:
        """The same for text that is worked with: what an `env` says as it stands in the manifest is not hidden."""
        return self._content.sub(_MASK, text)

    def start(self, text: str, limit: int = LONGEST_TOLD) -> str:
        """What is told of a text that may be long: no more than its first `limit` characters."""
        if len(text) <= limit:
            return self(text)
        end = limit
        for secret in self._pattern.finditer(text, 0, limit + self._longest):
            if secret.start() < limit:
                end = max(end, secret.end())
        return self(text[:end]) + ("…" if end < len(text) else "")

    def excerpt(self, text: bytes, limit: int = 120) -> str:
        """The same of what a stranger sent: in one line, printable."""
        # A character takes up to four bytes.
        head = text.lstrip()[: 4 * (limit + self._longest)]
        return one_line(self.start(head.decode("utf-8", "replace").strip(), limit))


def _pattern(secrets: Iterable[str]) -> re.Pattern[str]:
    # The longest first: one secret may contain another. Without any it is the pattern that never matches.
    # Always in one order: upstreams with the same secrets then share what `re` compiled.
    longest_first = sorted(secrets, key=lambda secret: (-len(secret), secret))
    return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")


def _configured(spec: StdioUpstream | HttpUpstream) -> list[str]:
    if isinstance(spec, StdioUpstream):
        return [part for arg in spec.args for part in _secrets_of_url(arg)]
    # "Bearer abc": an upstream may echo the token without its scheme.
    words = [word for value in spec.headers.values() for word in value.split()]
    return [
        *spec.headers.values(),
        *(word for word in words if word.lower() not in _SCHEMES),
        *([spec.oauth.client_secret] if spec.oauth and spec.oauth.client_secret else []),
        *_secrets_of_url(spec.url),
    ]


def forms_of(secrets: Iterable[str]) -> set[str]:
    """How secrets may stand in a text, of those that are long enough to be hidden."""
    return {form for secret in secrets for form in _forms(secret) if len(form) >= _SHORTEST}


def _forms(secret: str) -> Iterator[str]:
    lines = [line for line in secret.splitlines() if len(line) >= _SHORTEST_LINE]
    for part in {secret, unquote(secret), *lines}:
        yield part
        yield quote(part)
        yield quote(part, safe="")
        yield quote_plus(part)
        yield json.dumps(part)[1:-1]
        in_json = json.dumps(part, ensure_ascii=False)[1:-1]
        yield in_json
        yield in_json.translate(_OF_GO)
        yield _as_dotnet_writes(in_json)
        yield repr(part)[1:-1]


def _as_dotnet_writes(in_json: str) -> str:
    """What System.Text.Json makes of the same text."""
    escaped = in_json.replace('\\"', "\\u0022")
    return "".join(
        _escape(each) if each in _ESCAPED_BY_DOTNET or not each.isascii() else each for each in escaped
    )


def _escape(character: str) -> str:
    written = character.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{written[place : place + 4]}" for place in range(0, len(written), 4))


def _secrets_of_url(url: str) -> list[str]:
    if "://" not in url:
        return []
    try:
        parts = urlsplit(url)
    except ValueError:  # an argument that only looks like a URL
        return []
    user, password = parts.username or "", parts.password or ""
    values = [value for _, value in parse_qsl(parts.query)]
    if user or password:
        sent = f"{unquote(user)}:{unquote(password)}"
        values.append(base64.b64encode(sent.encode("utf-8", "surrogatepass")).decode())
    # Beside a password it only says whose that is.
    return [*values, password or user]
