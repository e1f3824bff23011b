"""An HTTP client that notices when the other side of a silent connection is gone."""

import socket
from contextlib import suppress
from typing import Any, Final

import httpx2

SILENT_SECONDS: Final = 30
PROBE_SECONDS: Final = 10
PROBES: Final = 3
"""A connection over which nothing came for 30 s is asked for a sign of life, and after three questions without answer
it is over. Without that a stream of events on a route that vanished would be waited for without end."""


class KeptAliveClient(httpx2.AsyncClient):
    """Turns on TCP's keepalive for every connection that a response came over, also to a proxy.

    httpx2 takes socket options for a transport only: given one of ours it asks no proxy, and to its own proxies it
    does not pass them on.
    """

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        response = await super().send(request, **options)
        stream = response.extensions.get("network_stream")
        with suppress(OSError):  # it is closed already
            _keep_alive(stream.get_extra_info("socket") if stream else None)
        return response


def _keep_alive(connection: socket.socket | None) -> None:
    if connection is None or connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE):
        return
    for level, name, value in keepalive_options():
        connection.setsockopt(level, name, value)


def keepalive_options() -> list[tuple[int, int, int]]:
    """As far as the system has them."""
    values = {
        "TCP_KEEPIDLE": SILENT_SECONDS,
        "TCP_KEEPALIVE": SILENT_SECONDS,  # the same on macOS
        "TCP_KEEPINTVL": PROBE_SECONDS,
        "TCP_KEEPCNT": PROBES,
        # What was sent and is never acknowledged is given up after the same time: probes say nothing of it.
        "TCP_USER_TIMEOUT": (SILENT_SECONDS + PROBE_SECONDS * PROBES) * 1_000,
    }
    named = [
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in values.items()
        if hasattr(socket, name)
    ]
    return [*named, (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
