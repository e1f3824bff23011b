"""A TCP proxy that does to connections what networks do."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal, TypeAlias

Mode: TypeAlias = Literal["pass", "hole", "cut", "drip"]
"""`hole`: takes what it is sent and delivers nothing, either way, as a network does that lost its route; `cut`: resets
after the first bytes of an answer; `drip`: hands answers on byte by byte."""

_CHUNK = 65_536


class Proxy:
    """Between the portal and a server on `target`; `mode` counts for what passes from now on."""

    def __init__(self, target: int) -> None:
        self.mode: Mode = "pass"
        self.port = 0
        self._target = target
        self._over = asyncio.Event()
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator["Proxy"]:
        """On leaving, it refuses connections and cuts those that are open."""
        server = await asyncio.start_server(self._carry, "127.0.0.1", port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self._over.set()
            for writer in list(self._open):
                _reset(writer)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            self._open |= {writer, far_writer}
            await asyncio.gather(
                self._pump(reader, far_writer, is_answer=False),
                self._pump(far_reader, writer, is_answer=True),
            )

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(_CHUNK):
                if self.mode == "hole":
                    await self._over.wait()
                elif is_answer and self.mode == "cut":
                    writer.write(data[:10])
                    await writer.drain()
                    _reset(writer)
                elif is_answer and self.mode == "drip":
                    for byte in data:
                        writer.write(bytes([byte]))
                        await writer.drain()
                else:
                    writer.write(data)
                    await writer.drain()
            writer.close()
        self._open.discard(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    with suppress(OSError):  # it is closed already
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
