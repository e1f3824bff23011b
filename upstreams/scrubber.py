"""Keeps configured secrets out of what people and models read."""

import json
from collections.abc import Iterable, Iterator
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from manifests.models import HttpUpstream, StdioUpstream

_SHORTEST = 4  # a shorter value hides nothing and would riddle every message
_MASK = "[hidden]"


class Scrubber:
    """Replaces secrets wherever they occur: of an upstream's `env` and `headers`, in its URLs, and all others it is
    told of, as they are, line by line, and as they stand in JSON and in URLs."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets: list[str] = []
        self.hide(secrets)

    @classmethod
    def for_upstream(cls, spec: StdioUpstream | HttpUpstream, more_secrets: Iterable[str] = ()) -> "Scrubber":
        scrub = cls(_configured(spec))
        scrub.hide(form for secret in more_secrets for form in _forms(secret))
        return scrub

    def hide(self, secrets: Iterable[str]) -> None:
        """Hide these, too, from now on."""
        worth_hiding = {secret for secret in secrets if len(secret) >= _SHORTEST}
        # The longest first: one secret may contain another.
        self._secrets = sorted({*self._secrets, *worth_hiding}, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, _MASK)
        return text


def _configured(spec: StdioUpstream | HttpUpstream) -> list[str]:
    if isinstance(spec, StdioUpstream):
        return [*spec.env.values(), *(part for arg in spec.args for part in _secrets_of_url(arg))]
    # "Bearer abc": an upstream may echo the token without its scheme.
    words = [word for value in spec.headers.values() for word in (value, *value.split())]
    return [*words, *_secrets_of_url(spec.url)]


def _forms(secret: str) -> Iterator[str]:
    for part in {secret, *secret.splitlines()}:
        yield part
        yield quote(part, safe="")
        yield json.dumps(part)[1:-1]
        yield json.dumps(part, ensure_ascii=False)[1:-1]


def _secrets_of_url(url: str) -> list[str]:
    if "://" not in url:
        return []
    try:
        parts = urlsplit(url)
        password = parts.password or ""
    except ValueError:  # an argument that only looks like a URL
        return []
    return [*(value for _, value in parse_qsl(parts.query)), password, unquote(password)]
