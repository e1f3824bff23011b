"""A TCP proxy on a network that may lose its route."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Proxy:
    """Before a server on `target`. While it `is_hole`, it takes what it is sent and delivers nothing, either way."""

    def __init__(self, target: int) -> None:
        self.is_hole = False
        self._target = target
        self._over = asyncio.Event()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Proxy"]:
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        try:
            yield self
        finally:
            server.close()
            self._over.set()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                if self.is_hole:
                    await self._over.wait()
                else:
                    writer.write(data)
                    await writer.drain()
            writer.close()
