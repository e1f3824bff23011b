"""Hosts as a manifest names them: `api.example.com`, `*.example.com:8443`, `10.0.0.7`, `[fd00::7]:8443`, or `*`."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Self

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
