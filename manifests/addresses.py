"""Which addresses lie where. A grant names hosts; what a name stands for is decided by whoever answers for it."""

import enum
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address

Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[Address]]]
"""The addresses of a host. Raises OSError where there are none."""


def addresses_in(found: Iterable[tuple[Any, ...]]) -> list[Address]:
    """Those that `getaddrinfo` found. A zone, as link-local addresses have, is no part of where they lie."""
    return [ip_address(str(place[0]).partition("%")[0]) for *_, place in found]


class Reach(enum.Enum):
    """What a grant has to say before a script may reach an address."""

    PUBLIC = "that the host is allowed"
    PRIVATE = "that the host may be private"
    BY_ADDRESS = "the very address"
    NEVER = "nothing that a grant can say"


def reach_of(address: Address) -> Reach:
    """Source: IANA's registries of special-purpose addresses, RFC 6890 and its updates, as of 2026."""
    if _lies_in(address, _METADATA):
        return Reach.BY_ADDRESS
    if _lies_in(address, _PRIVATE):
        return Reach.PRIVATE
    if _lies_in(address, _LINK_LOCAL):
        return Reach.BY_ADDRESS
    if _lies_in(address, _SPECIAL) or (address.version == 6 and address not in _GLOBAL_IPV6):
        return Reach.NEVER
    return Reach.PUBLIC


def _lies_in(address: Address, networks: tuple[IPv4Network | IPv6Network, ...]) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def _networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(map(ip_network, text.split()))


# Where clouds tell a machine its secrets. One of them is an ordinary public address.
_METADATA = _networks(
    "169.254.169.254 168.63.129.16 100.100.100.200 192.0.0.192 fd00:ec2::/32 fd20:ce::254 fd00:42::42"
)
_PRIVATE = _networks("10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 172.16.0.0/12 192.168.0.0/16 ::1 fc00::/7")
_LINK_LOCAL = _networks("169.254.0.0/16 fe80::/10")
_GLOBAL_IPV6 = IPv6Network("2000::/3")
# Unspecified, reserved, multicast, documentation, benchmarks; and addresses that carry another address within:
# Teredo and others in 2001::/23, 6to4 in 2002::/16 and its relays. IPv4 in IPv6 and NAT64 lie outside of 2000::/3.
_SPECIAL = _networks(
    """
    0.0.0.0/8 192.0.0.0/24 192.0.2.0/24 192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.175.48.0/24 198.18.0.0/15
    198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4
    2001::/23 2001:db8::/32 2002::/16 2620:4f:8000::/48 3fff::/20
    """
)
