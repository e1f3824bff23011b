"""Requests to servers that an upstream names: none in the clear or to an address nearer than the upstream's own, no
redirect followed, no answer read without end.
"""

import enum
import socket
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from typing import Final
from urllib.parse import urlsplit

import anyio
import httpcore2
import httpx2

from manifests.constraints import is_safe_for_tokens
from manifests.hosts import DEFAULT_PORTS, Address, Reach, Resolver, addresses_in, is_address, reach_of
from upstreams.http import trusted_authorities
from upstreams.oauth.errors import OAuthRefusedError, OAuthUnreachableError

MAX_ANSWER_BYTES: Final = 1024 * 1024
REQUEST_SECONDS: Final = 10.0
ADDRESS_SECONDS: Final = 2.0
"""After which the host's next address is tried."""

_MAX_ADDRESSES: Final = 4
_MADE_UP: Final = IPv4Network("198.18.0.0/15")
_NAT64: Final = IPv6Network("64:ff9b::/96")
"""Of public IPv4 addresses and no others (RFC 6052)."""
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
    client._transport = _GuardedTransport(network)
    async with client:
        try:
            yield GuardedHttp(client, upstream_url, network)
        except (httpx2.InvalidURL, ValueError):
            raise OAuthRefusedError("the upstream leads to a URL that makes no sense") from None


class GuardedHttp:
    """The HTTP client of OAuth for one upstream.

    URLs come from metadata, so from strangers: only https:// is asked, and http:// on this machine if the upstream
    itself is there. Redirects are answers like any other.
    """

    def __init__(self, client: httpx2.AsyncClient, upstream_url: str, network: "GuardedNetwork") -> None:
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
        body = bytearray()
        try:
            with anyio.fail_after(REQUEST_SECONDS):
                if is_address(host):  # which a proxy would be asked for without a look
                    await self._network.addresses(host, request.url.port or 443)
                response = await self._client.send(request, stream=True)
                try:
                    async for chunk in response.aiter_raw():
                        body += chunk
                        if len(body) > MAX_ANSWER_BYTES:
                            told = f"the answer of {host} is longer than {MAX_ANSWER_BYTES} bytes"
                            raise OAuthUnreachableError(told)
                finally:
                    await response.aclose()
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
        """
        parts = urlsplit(url)
        host = parts.hostname or ""
        is_safe = is_safe_for_tokens(url) and (parts.scheme == "https" or self._may_be_local)
        if not is_safe or not host or parts.username is not None:
            raise OAuthRefusedError("the upstream leads to a URL that is not https:// and will not be asked")
        try:
            _ = parts.port
        except ValueError:
            raise OAuthRefusedError("the upstream leads to a URL with an impossible port") from None
        return host[:100]


class _GuardedTransport(httpx2.AsyncHTTPTransport):
    def __init__(self, network: "GuardedNetwork") -> None:
        # Not the constructor of HTTPX, which cannot be given a network.
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=trusted_authorities(), http2=False, network_backend=network
        )


class Nearness(enum.IntEnum):
    """How near to the portal an address lies."""

    PUBLIC = 0
    MADE_UP = 1
    """What some VPNs answer for every name, to look it up later: public, as far as can be told."""
    PRIVATE = 2
    LOOPBACK = 3
    SPECIAL = 4
    """Link-local, where clouds tell a machine its secrets, among them."""


def nearness_of(address: Address) -> Nearness:
    if address in _MADE_UP:
        return Nearness.MADE_UP
    within = IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else address
    match reach_of(within):
        case Reach.PUBLIC:
            return Nearness.PUBLIC
        case Reach.PRIVATE if within is address:
            return Nearness.LOOPBACK if address.is_loopback else Nearness.PRIVATE
        case _:
            return Nearness.SPECIAL


class GuardedNetwork(httpcore2.AnyIOBackend):
    """Makes the connections on behalf of one upstream.

    Its own host and those that the manifest names may be anywhere. Any other host may be no nearer than these: a
    public upstream leads to public addresses only, one on a private network to private ones, too, and one on this
    machine to this machine, too.

    Whoever answers for a name decides which address it stands for. So each is looked up once: an upstream that passes
    itself off as near is not reached any more, and then names nobody.
    """

    def __init__(self, own_urls: Iterable[str], resolve: Resolver = ask_system) -> None:
        super().__init__()
        urls = map(httpx2.URL, own_urls)
        self._own = {url.raw_host.decode("ascii"): url.port or DEFAULT_PORTS[url.scheme] for url in urls}
        self._resolve = resolve
        self._found: dict[str, Sequence[Address]] = {}

    async def addresses(self, host: str, port: int) -> Sequence[Address]:
        """Those that may be connected to.

        Raises:
            OAuthRefusedError: There are others only.
            OSError: There are none.
        """
        found = await self._looked_up(host, port)
        if host in self._own or all(nearness_of(each) is Nearness.PUBLIC for each in found):
            return found
        nearest = max([await self._own_nearness(own, self._own[own]) for own in self._own], default=0)
        allowed = [each for each in found if nearness_of(each) <= nearest]
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

    async def _own_nearness(self, host: str, port: int) -> Nearness:
        """Of the farthest of its addresses: a host that is in two places is not to be had as the nearer one."""
        try:
            nearest = min(map(nearness_of, await self._looked_up(host, port)))
        except OSError:
            return Nearness.PUBLIC
        return Nearness.PUBLIC if nearest is Nearness.SPECIAL else nearest

    async def _looked_up(self, host: str, port: int) -> Sequence[Address]:
        if host not in self._found:
            found = tuple(dict.fromkeys(await self._resolve(host, port)))
            if not found:
                raise OSError("no addresses")
            self._found[host] = found
        return self._found[host]
