"""Ports of loopback that a test can close and open as it likes."""

import errno
import socket

_HELD: list[socket.socket] = []


def closed_port() -> int:
    """A port without a listener, on 127.0.0.1 and on ::1. No other process gets it while this one lives.

    Whoever is told the number can listen on it: servers set SO_REUSEADDR, and the sockets here do not listen.
    """
    while True:
        first = _bound(socket.AF_INET, "127.0.0.1", 0)
        port = int(first.getsockname()[1])
        try:
            _HELD.extend([first, _bound(socket.AF_INET6, "::1", port)])
        except OSError as error:
            if error.errno == errno.EADDRINUSE:  # somebody else has the other half
                first.close()
                continue
            _HELD.append(first)  # there is no IPv6
        return port


def _bound(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    held = socket.socket(family)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind((host, port))
    except OSError:
        held.close()
        raise
    return held
