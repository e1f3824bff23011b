"""Requests to servers that an upstream names: none in the clear or to an address that is not public, no redirect
followed, no answer read without end. Errors hold no token, code or secret, and of a stranger's text a word.

    OAuthError
    ├── OAuthRefusedError        an authorization server said no, or cannot be trusted: asking again will not help
    └── OAuthUnreachableError    it could not be asked, or made no sense: later it may
"""

import socket
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Final
from urllib.parse import urlsplit

import anyio
import httpcore2
import httpx2

from manifests.constraints import is_safe_for_tokens
from manifests.hosts import Address, Reach, Resolver, addresses_in, is_address, reach_of
from upstreams.http import trusted_authorities


class OAuthError(Exception):
    """There is no token to be had."""


class OAuthRefusedError(OAuthError):
    """The answer was no; `code` is OAuth's own word for it, if it gave one."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class OAuthUnreachableError(OAuthError):
    """There was no answer that could be used."""


MAX_ANSWER_BYTES: Final = 1024 * 1024
REQUEST_SECONDS: Final = 10.0
ADDRESS_SECONDS: Final = 2.0
"""After which the host's next address is tried."""

_MAX_ADDRESSES: Final = 4
_MADE_UP: Final = IPv4Network("198.18.0.0/15")
"""What some VPNs answer for every name, to look it up later: public, as far as can be told."""
_HEADERS: Final = ("content-type", "www-authenticate")


async def ask_system(host: str, port: int) -> Sequence[Address]:
    """A host's addresses, by the resolver of the system."""
    try:
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError("not a name") from error
    return addresses_in(found)


@asynccontextmanager
async def open_guarded_http(
    upstream_url: str, issuer: str | None = None, resolve: Resolver = ask_system
) -> AsyncIterator["GuardedHttp"]:
    """A client of its own: no header, cookie or connection is shared with what speaks to the upstream.

    `issuer` is the authorization server that the manifest names. A URL that makes no sense becomes an
    OAuthRefusedError.
    """
    network = GuardedNetwork((upstream_url, *([issuer] if issuer else [])), resolve)
    client = httpx2.AsyncClient(
        headers={"accept-encoding": "identity"},
        timeout=REQUEST_SECONDS,
        follow_redirects=False,
        verify=trusted_authorities(),
    )
    # Not as an argument: given a transport HTTPX asks no proxy of the environment any more.
    client._transport = transport = httpx2.AsyncHTTPTransport(verify=trusted_authorities())
    # HTTPX cannot be given a network.
    transport._pool = httpcore2.AsyncConnectionPool(
        ssl_context=trusted_authorities(), http2=False, network_backend=network
    )
    async with client:
        try:
            yield GuardedHttp(client, network, urlsplit(upstream_url).scheme == "http")
        except (httpx2.InvalidURL, ValueError):
            raise OAuthRefusedError("the upstream leads to a URL that makes no sense") from None


@dataclass(frozen=True)
class GuardedHttp:
    """The HTTP client of OAuth for one upstream.

    URLs come from metadata, so from strangers: only https:// is asked, and http:// on this machine if the upstream
    itself is there. Redirects are answers like any other.
    """

    client: httpx2.AsyncClient
    network: "GuardedNetwork"
    may_be_local: bool

    async def ask(self, request: httpx2.Request) -> httpx2.Response:
        """The answer, read whole.

        Raises:
            OAuthRefusedError: The URL may not be asked.
            OAuthUnreachableError: No answer within `REQUEST_SECONDS`, or one over `MAX_ANSWER_BYTES`.
        """
        host = self.checked(str(request.url))
        body = bytearray()
        try:
            with anyio.fail_after(REQUEST_SECONDS):
                if is_address(host):  # which a proxy would be asked for without a look
                    await self.network.addresses(host, request.url.port or 443)
                response = await self.client.send(request, stream=True)
                async with aclosing(response):
                    async for chunk in response.aiter_raw():
                        body += chunk
                        if len(body) > MAX_ANSWER_BYTES:
                            told = f"the answer of {host} is longer than {MAX_ANSWER_BYTES} bytes"
                            raise OAuthUnreachableError(told)
        except TimeoutError:
            raise OAuthUnreachableError(f"{host} gave no answer within {REQUEST_SECONDS:g} s") from None
        except (httpx2.RequestError, OSError) as error:
            raise OAuthUnreachableError(f"{host} cannot be reached ({type(error).__name__})") from None
        headers = [pair for pair in response.headers.multi_items() if pair[0].lower() in _HEADERS]
        return httpx2.Response(response.status_code, headers=headers, content=bytes(body), request=request)

    def checked(self, url: str) -> str:
        """The host of a URL that may be asked, or shown to a browser.

        Raises:
            OAuthRefusedError: It may not.
            ValueError: It is no URL, or its port is impossible.
        """
        parts = urlsplit(url)
        is_safe = is_safe_for_tokens(url) and (parts.scheme == "https" or self.may_be_local)
        if not is_safe or not parts.hostname or parts.username is not None or parts.port == 0:
            raise OAuthRefusedError("the upstream leads to a URL that is not https:// and will not be asked")
        return parts.hostname[:100]


class GuardedNetwork(httpcore2.AnyIOBackend):
    """Makes the connections on behalf of one upstream.

    Its own host and that of the manifest's `issuer` may be anywhere. Any other host may be at private addresses only
    if one of these is. Whoever answers for a name decides which address it stands for. So each is looked up once: an
    upstream that passes itself off as private is not reached any more, and then names nobody.
    """

    def __init__(self, own_urls: Iterable[str], resolve: Resolver = ask_system) -> None:
        super().__init__()
        self._own = {httpx2.URL(url).raw_host.decode("ascii") for url in own_urls}
        self._resolve = resolve
        self._found: dict[str, Sequence[Address]] = {}

    async def addresses(self, host: str, port: int) -> Sequence[Address]:
        """Those that may be connected to.

        Raises:
            OAuthRefusedError: There are others only.
            OSError: There are none.
        """
        found = await self._looked_up(host, port)
        if host in self._own:
            return found
        is_near = any([await self._is_near(own) for own in self._own])
        reaches = {Reach.PUBLIC, Reach.PRIVATE} if is_near else {Reach.PUBLIC}
        allowed = [each for each in found if reach_of(each) in reaches or each in _MADE_UP]
        if not allowed:
            raise OAuthRefusedError(
                f"the upstream leads to {host[:100]}, which is at an address that is not public and will not be asked; "
                "if that is the authorization server, name it as `oauth.issuer` in the manifest"
            )
        return allowed

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            addresses = await self.addresses(host, port)
        except OSError:
            raise httpcore2.ConnectError("not a name") from None
        # The first of each family comes first, so that a dead family does not use up all attempts.
        ordered = sorted(
            addresses, key=lambda each: [a for a in addresses if a.version == each.version].index(each)
        )
        failure: Exception | None = None
        for address in ordered[:_MAX_ADDRESSES]:
            try:
                return await super().connect_tcp(
                    str(address), port, ADDRESS_SECONDS, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure or httpcore2.ConnectError("no address")

    async def _is_near(self, host: str) -> bool:
        try:
            return all(reach_of(each) is Reach.PRIVATE for each in await self._looked_up(host, 443))
        except OSError:
            return False

    async def _looked_up(self, host: str, port: int) -> Sequence[Address]:
        if host not in self._found:
            self._found[host] = tuple(dict.fromkeys(await self._resolve(host, port)))
        return self._found[host]
