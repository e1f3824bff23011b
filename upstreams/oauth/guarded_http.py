"""Requests to servers that an upstream names: none in the clear or to places nearer than its own, no redirect followed,
no answer read without end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import SplitResult, urlsplit

import anyio
import httpcore2
import httpx2

from manifests.constraints import is_safe_for_tokens
from manifests.hosts import Resolver, is_address
from upstreams.http import CODING, headers_without_body, trusted_authorities, unpacked
from upstreams.oauth.errors import OAuthRefusedError, OAuthUnreachableError
from upstreams.oauth.guarded_network import GuardedNetwork, ask_system

MAX_ANSWER_BYTES: Final = 1024 * 1024
REQUEST_SECONDS: Final = 10.0


class GuardedHttp:
    """What OAuth is spoken with, on behalf of one upstream.

    URLs come from metadata, so from strangers: only https:// is asked, and http:// on this machine if the upstream
    itself is there. `network` sees to it where they lie. Redirects are answers like any other.
    """

    def __init__(self, client: httpx2.AsyncClient, upstream_url: str, network: GuardedNetwork) -> None:
        self._client = client
        self._network = network
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
                if is_address(host):  # which a proxy would be asked for without a look
                    await self._network.addresses(host, request.url.port or 443)
                response = await self._client.send(request, stream=True)
                try:
                    body = await _read_capped(response, host)
                finally:
                    await response.aclose()
        except TimeoutError:
            raise OAuthUnreachableError(f"{host} gave no answer within {REQUEST_SECONDS:g} s") from None
        except (httpx2.RequestError, OSError) as error:
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
        if not _has_possible_port(parts):
            raise OAuthRefusedError("the upstream leads to a URL with an impossible port")
        return host[:100]


def _has_possible_port(parts: SplitResult) -> bool:
    """HTTPX takes larger ones, and connecting to them fails with what nobody expects."""
    try:
        _ = parts.port
    except ValueError:
        return False
    return True


class _GuardedTransport(httpx2.AsyncHTTPTransport):
    def __init__(self, network: GuardedNetwork) -> None:
        # Not the constructor of HTTPX, which cannot be given a network.
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=trusted_authorities(), http2=False, network_backend=network
        )


@asynccontextmanager
async def open_guarded_http(
    upstream_url: str, issuer: str | None = None, resolve: Resolver = ask_system
) -> AsyncIterator[GuardedHttp]:
    """A client of its own: no header, cookie or connection is shared with what speaks to the upstream.

    `issuer` is the authorization server that the manifest names. What is raised within because a stranger's URL makes
    no sense becomes an OAuthRefusedError.
    """
    network = GuardedNetwork((upstream_url, *([issuer] if issuer else [])), resolve)
    client = httpx2.AsyncClient(
        headers=CODING, timeout=REQUEST_SECONDS, follow_redirects=False, verify=trusted_authorities()
    )
    # Not as an argument: given a transport HTTPX asks no proxy of the environment any more.
    client._transport = _GuardedTransport(network)
    async with client:
        try:
            yield GuardedHttp(client, upstream_url, network)
        except (httpx2.InvalidURL, ValueError):
            raise OAuthRefusedError("the upstream leads to a URL that makes no sense") from None


async def _read_capped(response: httpx2.Response, host: str) -> bytes:
    body = bytearray()
    async for chunk in unpacked(response):
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise OAuthUnreachableError(f"the answer of {host} is longer than {MAX_ANSWER_BYTES} bytes")
    return bytes(body)
