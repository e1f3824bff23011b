"""Connects to servers that an upstream names, which must lie no nearer to the portal than the upstream itself."""

import enum
import socket
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from typing import Final

import anyio
import httpcore2
import httpx2

from manifests.hosts import DEFAULT_PORTS, Address, Reach, Resolver, addresses_in, reach_of
from upstreams.oauth.connection_race import first_connected, in_turns
from upstreams.oauth.errors import OAuthRefusedError

MAX_ADDRESSES: Final = 5
"""Of a host so many are tried."""

_MADE_UP: Final = IPv4Network("198.18.0.0/15")
_NAT64: Final = IPv6Network("64:ff9b::/96")
"""Of public IPv4 addresses and no others (RFC 6052)."""


class Nearness(enum.IntEnum):
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
        case _ if within is not address:
            return Nearness.SPECIAL
        case Reach.PRIVATE:
            return Nearness.LOOPBACK if address.is_loopback else Nearness.PRIVATE
        case _:
            return Nearness.SPECIAL


async def ask_system(host: str, port: int) -> Sequence[Address]:
    try:
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError("not a name") from error
    return addresses_in(found)


class GuardedNetwork(httpcore2.AnyIOBackend):
    """What connections are made with on behalf of one upstream.

    Its own host and those that the manifest names may be anywhere; others at public addresses, and where these are as
    well: one at an address that a VPN made up may name others at such, one on a private network those on private
    networks, too, one on this machine those on this machine, too.

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
        connect = super().connect_tcp
        return await first_connected(
            in_turns(addresses)[:MAX_ADDRESSES],
            lambda address: connect(str(address), port, timeout, local_address, socket_options),
        )

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
