"""Requests past the SDK's dispatcher end with their connection."""

import asyncio
import gc
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from upstreams.straight_requests import StraightRequests

pytestmark = pytest.mark.anyio


async def test_request_whose_connection_ends_while_it_is_sent_leaves_nothing_unheard() -> None:
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    usual = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: complaints.append(context))

    async def send_line(line: bytes) -> None:
        requests.close()
        raise anyio.BrokenResourceError

    requests = StraightRequests(send_line)
    with pytest.raises(MCPError):
        await requests.ask(1, "tools/call", {})
    gc.collect()
    loop.set_exception_handler(usual)
    assert not complaints
