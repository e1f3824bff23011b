"""Where the HTTP server listens, as an operator writes it."""

import ipaddress


def parse_address(text: str) -> tuple[str, int]:
    """`127.0.0.1:8080`, `[::1]:8080`, `:8080` or `8080` (both loopback) as host and port.

    Raises:
        ValueError: It is none of these.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"{text!r} is no HOST:PORT, such as 127.0.0.1:8080")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
