"""Hosts and addresses: which addresses lie where, and which hosts a pattern of a manifest means."""

import enum
import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Self, TypeAlias

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


DEFAULT_PORTS = {"http": 80, "https": 443}

_PATTERN = re.compile(
    r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<any>\*)|(?P<suffix>\*\.)?(?P<name>[^\[\]:/@*\s]+))"
    r"(?::(?P<port>[0-9]{1,5}))?"
)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# The C library reads a name that ends like this as an address: 2130706433, 0x7f.1, 127.1.
_DISGUISED = re.compile(r"[0-9]+|0x[0-9a-f]*")
_MAX_CHARS = 253


@dataclass(frozen=True, slots=True)
class HostPattern:
    """`host` is a canonical host, `*.` before one for all names that end with it, or `*`.

    Without a `port` it means the one that a URL's scheme has by default.
    """

    host: str
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a pattern.

        Raises:
            ValueError: It is none.
        """
        found = _PATTERN.fullmatch(text)
        if found is None or (found["port"] and not 0 < int(found["port"]) < 65536):
            raise ValueError("not a host, or a host and a port")
        host = found["any"] or canonical_host(found["address"] or found["name"])
        if found["suffix"]:
            if is_address(host):
                raise ValueError("an address has no names below it")
            host = f"*.{host}"
        return cls(host, int(found["port"]) if found["port"] else None)

    def matches(self, scheme: str, host: str, port: int) -> bool:
        """Whether it means this canonical host on this port. `*.example.com` does not mean `example.com` itself."""
        if port != (self.port or DEFAULT_PORTS[scheme]):
            return False
        if self.host.startswith("*."):
            return host.endswith(self.host[1:])
        return self.host in ("*", host)

    def covers(self, other: "HostPattern") -> bool:
        """Whether it means every host that the other one means."""
        if self.port != other.port:
            return False
        if self.host.startswith("*."):
            return other.host.endswith(self.host[1:])
        return self.host in ("*", other.host)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"


def canonical_host(text: str) -> str:
    """An address as Python writes it, or a name in lower case and without a dot at its end.

    Raises:
        ValueError: It is neither, or an address in disguise.
    """
    if "%" in text:
        raise ValueError("an address has no zone here")
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        name = text.lower().removesuffix(".")
    labels = name.split(".")
    if len(name) > _MAX_CHARS or not all(map(_LABEL.fullmatch, labels)) or _DISGUISED.fullmatch(labels[-1]):
        raise ValueError("neither a name nor an address as it is usually written")
    return name


def is_address(host: str) -> bool:
    """Whether a canonical host is an address."""
    return ":" in host or _DISGUISED.fullmatch(host.rpartition(".")[2]) is not None
