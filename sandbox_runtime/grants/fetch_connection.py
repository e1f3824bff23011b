"""Connections of `portal.fetch`: what arrives is parsed in small helpings, with a turn for everybody else between."""

import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any

import anyio.lowlevel
import httpcore2
import httpx2

from sandbox_runtime.grants.fetch_error import FetchError

MAX_HEAD_LINES = 500
"""Of an answer's head with the interim answers (1xx) before it; and of the trailers behind its body."""

MAX_HEAD_BYTES = 1 << 17

_HELPING_LINES = 200
"""Parsing takes time by the line, not by the byte: a header 5 us, a piece of a body in chunks 20 us."""


class FetchTransport(httpx2.AsyncHTTPTransport):
    """One request's. It knows no proxy, no credentials and nothing else of the portal's environment."""

    def __init__(self, trusted: ssl.SSLContext) -> None:
        # Not the constructor of HTTPX, which cannot be given a network.
        self._helpings = _Helpings()
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=trusted, http2=False, network_backend=_Network(self._helpings)
        )

    async def body(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        """The pieces of an answer's body. Raises FetchError where its trailers are too long."""
        assert isinstance(response.stream, AsyncIterable)
        async for piece in response.stream:
            self._helpings.began_anew()
            yield piece


class _Helpings:
    """Counts what was parsed and was no piece of a body."""

    def __init__(self) -> None:
        self._lines = 0
        self._bytes = 0

    def began_anew(self) -> None:
        self._lines = self._bytes = 0

    def check(self) -> None:
        if self._lines > MAX_HEAD_LINES or self._bytes > MAX_HEAD_BYTES:
            raise FetchError("fetch_failed", "the answer's headers are too long", state="unknown")

    def cut(self, data: bytes) -> int:
        """How much of what arrived is parsed next; it is counted before it is known to be of a body."""
        end = _end_of_lines(data)
        self._lines += data.count(b"\n", 0, end)
        self._bytes += end
        return end


def _end_of_lines(data: bytes) -> int:
    if data.count(b"\n") <= _HELPING_LINES:
        return len(data)
    end = 0
    for _ in range(_HELPING_LINES):
        end = data.index(b"\n", end) + 1
    return end


class _Stream(httpcore2.AsyncNetworkStream):
    """A connection that is read in helpings."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream, helpings: _Helpings) -> None:
        self._stream = stream
        self._helpings = helpings
        self._rest = b""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._helpings.check()
        data = self._rest or await self._stream.read(max_bytes, timeout)
        await anyio.lowlevel.checkpoint()  # what is there already leaves nobody else a turn
        end = self._helpings.cut(data)
        self._rest = data[end:]
        return data[:end]

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        stream = await self._stream.start_tls(ssl_context, server_hostname, timeout)
        return _Stream(stream, self._helpings)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Network(httpcore2.AnyIOBackend):
    def __init__(self, helpings: _Helpings) -> None:
        self._helpings = helpings

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        stream = await super().connect_tcp(host, port, timeout, local_address, socket_options)
        return _Stream(stream, self._helpings)
