"""Keeps configured secrets out of what people and models read.

What is cut is scrubbed before: half a secret is one, too.
"""

import base64
import re
from collections.abc import Iterable, Set
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from manifests.upstream_sections import HttpUpstream, StdioUpstream
from upstreams.secret_spellings import any_of
from upstreams.wire_text import one_line

LONGEST_TOLD: Final = 2_000
"""Of an error or a reason no more characters are told."""

_SHORTEST: Final = 4  # a shorter value hides nothing and would riddle every message
_SHORTEST_LINE: Final = 8
_MOST_PASSING: Final = 100
_MASK: Final = "[hidden]"
_SCHEMES: Final = frozenset({"basic", "bearer", "digest", "token"})


class Scrubber:
    """Replaces secrets wherever they occur: of an upstream's `env` and `headers`, in its URLs, and all others it is
    told of, whole and line by line, however JSON, Python and URLs spell them."""

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
        pattern, self._longest = any_of(certain | self._settings)
        self._pattern = re.compile(pattern)
        self._content = self._pattern if self._settings <= certain else re.compile(any_of(certain)[0])

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
    """What is hidden of secrets: they themselves, their lines, and what they are behind the quoting of a URL; of these
    all that are long enough."""
    return {form for secret in secrets for form in _forms(secret) if len(form) >= _SHORTEST}


def _forms(secret: str) -> set[str]:
    lines = (line for line in secret.splitlines() if len(line) >= _SHORTEST_LINE)
    return {secret, unquote(secret), *lines}


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
