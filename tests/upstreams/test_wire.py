"""The table of requests in flight: answers that come as their callers give up."""

import asyncio
from typing import Any

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse

from upstreams.transports.messages import InboundLimits
from upstreams.transports.wire import Wire


class Lines:
    """Messages of one chunk, which are taken in one turn of the loop, as over stdio."""

    def __init__(self) -> None:
        self.messages, self.is_there = list[Any](), asyncio.Event()

    def __aiter__(self) -> "Lines":
        return self

    async def __anext__(self) -> Any:
        while not self.messages:
            self.is_there.clear()
            await self.is_there.wait()
        return self.messages.pop(0)

    async def aclose(self) -> None:
        """Do nothing."""


async def test_answers_that_come_in_the_turn_in_which_their_callers_give_up_are_no_stray_ones() -> None:
    lines, (requests, sent) = Lines(), anyio.create_memory_object_stream[Any](100)
    wire = Wire(lines, requests, InboundLimits(1_000_000))

    async def nothing(*_: Any) -> Any:
        """The upstream asks nothing."""

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wire.run, nothing, nothing)
        async with anyio.create_task_group() as calls:
            for _ in range(12):
                calls.start_soon(lambda: wire.send_raw_request("tools/call", {}, owners=["ann"]))
            await anyio.wait_all_tasks_blocked()
            asked = [sent.receive_nowait().message.id for _ in range(12)]
            lines.messages += [
                SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=each, result={})) for each in asked
            ]
            lines.is_there.set()
            calls.cancel_scope.cancel()
        await anyio.wait_all_tasks_blocked()
        assert (wire.cut_off_reason, wire.ended.is_set(), wire.abandoned.owners()) == ("", False, set())
        tasks.cancel_scope.cancel()
