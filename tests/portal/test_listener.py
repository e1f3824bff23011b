"""The socket that HTTP clients connect to."""

import asyncio
import socket

import pytest

from portal.app import serving


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
async def test_no_part_of_an_answer_waits_for_another(host: str) -> None:
    """With Nagle's algorithm the second part waits for the client's acknowledgement of the first, which takes 40 ms."""
    listener = serving._listener(host, 0)
    accepted: asyncio.Queue[int] = asyncio.Queue()

    async def look(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        await accepted.put(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with await asyncio.start_server(look, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname()[:2])
        assert await accepted.get() != 0
        writer.close()
