"""Keeps configured secrets out of what people and models read.

What is cut is scrubbed before: half a secret is one, too.
"""

import base64
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from manifests.upstream_sections import HttpUpstream, StdioUpstream
from upstreams.passages import Place
from upstreams.secret_spellings import Spelling, Spellings, spellings_of
from upstreams.wire_text import one_line

LONGEST_TOLD: Final = 2_000
"""Of an error or a reason no more characters are told."""

_SHORTEST: Final = 4  # a shorter value hides nothing and would riddle every message
_SHORTEST_LINE: Final = 8
_MOST_PASSING: Final = 100
_MOST_WORK: Final = 10_000
"""Some milliseconds, for which all others wait. A text with which it takes longer is hidden as a whole: where hundreds
of secrets are made of the same few words, and the text is, too.
"""
_MOST_WORK_OF_CONTENT: Final = 4
"""Of each character; in a thread, so that others wait for nothing."""
_MASK: Final = "[hidden]"
_SCHEMES: Final = frozenset({"basic", "bearer", "digest", "token"})

Forms: TypeAlias = Mapping[str, Spelling]
"""What is hidden, and all its spellings."""

_NONE: Final[Forms] = MappingProxyType({})


class Scrubber:
    """Replaces secrets wherever they occur: of an upstream's `env` and `headers`, in its URLs, and all others it is
    told of, whole and line by line, however JSON, Python and URLs spell them."""

    def __init__(
        self, secrets: Iterable[str], settings: Iterable[str] = (), more_forms: Forms = _NONE
    ) -> None:
        """`settings` may be secrets, and may be words like `production`: see `content`."""
        self._secrets = {**forms_of(secrets), **more_forms}
        self._settings = forms_of(settings)
        self._passing: dict[str, Spelling] = {}
        self._gather()

    @classmethod
    def for_upstream(cls, spec: StdioUpstream | HttpUpstream, more_forms: Forms = _NONE) -> "Scrubber":
        """`more_forms` are those of other secrets, made once for all upstreams."""
        settings = spec.env.values() if isinstance(spec, StdioUpstream) else ()
        return cls(_configured(spec), settings, more_forms)

    def hide_for_now(self, secrets: Iterable[str]) -> None:
        """Hide these, too, until a hundred others came after them: tokens that are renewed again and again."""
        for form, spelling in sorted(forms_of(secrets).items()):
            self._passing.pop(form, None)
            self._passing[form] = spelling
        for form in list(self._passing)[:-_MOST_PASSING]:
            del self._passing[form]
        self._gather()

    def _gather(self) -> None:
        certain = {**self._secrets, **self._passing}
        self._certain = Spellings(certain.values())
        self._all = Spellings({**certain, **self._settings}.values())

    def __call__(self, text: str) -> str:
        return _without(text, self._all.places(text, most_work=_MOST_WORK))

    def content(self, text: str) -> str:
        """The same for text that is worked with: what an `env` says as it stands in the manifest is not hidden."""
        return _without(
            text, self._certain.places(text, most_work=_MOST_WORK + _MOST_WORK_OF_CONTENT * len(text))
        )

    def start(self, text: str, limit: int = LONGEST_TOLD) -> str:
        """What is told of a text that may be long: no more than its first `limit` characters."""
        places = self._all.places(text, limit, _MOST_WORK)
        end = max([limit, *(stop for _, stop in places)])
        return _without(text[:end], places) + ("…" if end < len(text) else "")

    def excerpt(self, text: bytes, limit: int = 120) -> str:
        """The same of what a stranger sent: in one line, printable."""
        # A character takes up to four bytes.
        head = text.lstrip()[: 4 * (limit + self._all.longest)]
        return one_line(self.start(head.decode("utf-8", "replace").strip(), limit))


def _without(text: str, places: Iterable[Place]) -> str:
    kept, kept_to = [], 0
    for start, stop in places:
        kept += [text[kept_to:start], _MASK]
        kept_to = stop
    return "".join([*kept, text[kept_to:]])


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


def forms_of(secrets: Iterable[str]) -> dict[str, Spelling]:
    """What is hidden of secrets: they themselves, their lines, and what they are behind the quoting of a URL; of these
    all that are long enough."""
    forms = {form for secret in secrets for form in _forms(secret)}
    return spellings_of(form for form in forms if len(form) >= _SHORTEST)


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
