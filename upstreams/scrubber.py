"""Keeps configured secrets out of what people and models read."""

from collections.abc import Iterable
from urllib.parse import parse_qsl, unquote, urlsplit

from manifests.models import HttpUpstream, StdioUpstream

_SHORTEST = 4  # a shorter value hides nothing and would riddle every message
_MASK = "[hidden]"


class Scrubber:
    """Replaces an upstream's `env` and `headers` values and the credentials in its URLs, wherever they occur."""

    def __init__(self, secrets: Iterable[str]) -> None:
        worth_hiding = {secret for secret in secrets if len(secret) >= _SHORTEST}
        # The longest first: one secret may contain another.
        self._secrets = sorted(worth_hiding, key=len, reverse=True)

    @classmethod
    def for_upstream(cls, spec: StdioUpstream | HttpUpstream) -> "Scrubber":
        if isinstance(spec, StdioUpstream):
            return cls([*spec.env.values(), *(part for arg in spec.args for part in _secrets_of_url(arg))])
        # "Bearer abc": an upstream may echo the token without its scheme.
        words = [word for value in spec.headers.values() for word in (value, *value.split())]
        return cls([*words, *_secrets_of_url(spec.url)])

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, _MASK)
        return text


def _secrets_of_url(url: str) -> list[str]:
    if "://" not in url:
        return []
    try:
        parts = urlsplit(url)
        password = parts.password or ""
    except ValueError:  # an argument that only looks like a URL
        return []
    return [*(value for _, value in parse_qsl(parts.query)), password, unquote(password)]
