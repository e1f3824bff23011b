"""What went wrong with an HTTP request, in words for people."""

from http import HTTPStatus
from typing import Final

import httpx2

_UNAUTHORIZED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_NOT_HERE: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
_CREDENTIALS_HINT: Final = "; check `headers` or `oauth` in the manifest"
_SSE_HINT: Final = "; a server of the old HTTP+SSE transport needs `transport: sse` in the manifest"
_STREAMABLE_HINT: Final = "; a server of Streamable HTTP needs no `transport: sse` in the manifest"


def described_http(error: httpx2.HTTPError) -> str:
    """What went wrong, without the URL: that is the manifest's business and may carry a key."""
    if isinstance(error, httpx2.HTTPStatusError):
        return status_line(error.response)
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in type(error).__name__)
    return f"{words.strip()}: {error}" if str(error) else words.strip()


def status_line(response: httpx2.Response) -> str:
    """The status, and what in the manifest may be the cause."""
    return f"HTTP {response.status_code} {response.reason_phrase}".rstrip() + _hint(response)


def _hint(response: httpx2.Response) -> str:
    if response.status_code in _UNAUTHORIZED:
        return _CREDENTIALS_HINT
    if response.status_code in _NOT_HERE:
        path = response.request.url.path.rstrip("/")
        if response.request.method == "POST" and path.endswith("/sse"):
            return _SSE_HINT
        if response.request.method == "GET" and path.endswith("/mcp"):
            return _STREAMABLE_HINT
    return ""
