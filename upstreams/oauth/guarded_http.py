"""Requests to servers that an upstream names: none in the clear, no redirect followed, no answer read without end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

import anyio
import httpx2

from manifests.constraints import is_safe_for_tokens
from upstreams.http_body import CODING, headers_without_body, unpacked
from upstreams.oauth.errors import OAuthRefusedError, OAuthUnreachableError
from upstreams.trusted_authorities import trusted_authorities

MAX_ANSWER_BYTES: Final = 1024 * 1024
REQUEST_SECONDS: Final = 10.0


class GuardedHttp:
    """What OAuth is spoken with, on behalf of one upstream.

    URLs come from metadata, so from strangers: only https:// is asked, and http:// on this machine if the upstream
    itself is there. Redirects are answers like any other.
    """

    def __init__(self, client: httpx2.AsyncClient, upstream_url: str) -> None:
        self._client = client
        self._may_be_local = urlsplit(upstream_url).scheme == "http"

    async def ask(self, request: httpx2.Request) -> httpx2.Response:
        """The answer, read whole.

        Raises:
            OAuthRefusedError: The URL may not be asked.
            OAuthUnreachableError: No answer within `REQUEST_SECONDS`, or one over `MAX_ANSWER_BYTES`.
        """
        host = self.checked(str(request.url))
        try:
            with anyio.fail_after(REQUEST_SECONDS):
                response = await self._client.send(request, stream=True)
                try:
                    body = await _read_capped(response, host)
                finally:
                    await response.aclose()
        except TimeoutError:
            raise OAuthUnreachableError(f"{host} gave no answer within {REQUEST_SECONDS:g} s") from None
        except httpx2.RequestError as error:
            raise OAuthUnreachableError(f"{host} cannot be reached ({type(error).__name__})") from None
        headers = headers_without_body(response)
        return httpx2.Response(response.status_code, headers=headers, content=body, request=request)

    def checked(self, url: str) -> str:
        """The host of a URL that may be asked, or shown to a browser.

        Raises:
            OAuthRefusedError: It may not.
        """
        parts = urlsplit(url)
        host = parts.hostname or ""
        is_safe = is_safe_for_tokens(url) and (parts.scheme == "https" or self._may_be_local)
        if not is_safe or not host or parts.username is not None:
            raise OAuthRefusedError("the upstream leads to a URL that is not https:// and will not be asked")
        return host[:100]


@asynccontextmanager
async def open_guarded_http(upstream_url: str) -> AsyncIterator[GuardedHttp]:
    """A client of its own: no header, cookie or connection is shared with what speaks to the upstream.

    What is raised within because a stranger's URL makes no sense becomes an OAuthRefusedError.
    """
    async with httpx2.AsyncClient(
        headers=CODING, timeout=REQUEST_SECONDS, follow_redirects=False, verify=trusted_authorities()
    ) as client:
        try:
            yield GuardedHttp(client, upstream_url)
        except (httpx2.InvalidURL, ValueError):
            raise OAuthRefusedError("the upstream leads to a URL that makes no sense") from None


async def _read_capped(response: httpx2.Response, host: str) -> bytes:
    body = bytearray()
    async for chunk in unpacked(response):
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise OAuthUnreachableError(f"the answer of {host} is longer than {MAX_ANSWER_BYTES} bytes")
    return bytes(body)
