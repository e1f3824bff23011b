"""Tells clients that the resources and prompts that the portal offers may be others than before."""

from collections import OrderedDict
from typing import Any, Final

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, PromptsListChanged, ResourcesListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from portal.caller import caller_of

MAX_SESSIONS: Final = 1_000
"""Of the older revisions that are told; of more those that listed longest ago are forgotten."""

PAUSE_SECONDS: Final = 1.0
"""However often upstreams change, clients are told no more often than that."""

SEND_SECONDS: Final = 2.0


class OfferChanges:
    """Since 2026-07-28 whoever subscribed is told (`bus`), before that whoever has listed anything."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self._sessions: OrderedDict[str, ServerSession] = OrderedDict()
        self._changed = anyio.Event()

    def attend(self, context: ServerRequestContext[Any, Any]) -> None:
        """A client has listed, so changes concern it."""
        owner = caller_of(context).owner
        if not owner or context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return
        self._sessions[owner] = context.session
        self._sessions.move_to_end(owner)
        if len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)

    def note(self) -> None:
        self._changed.set()

    async def keep(self) -> None:
        """Tell of changes until cancelled."""
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            for event in (ResourcesListChanged(), PromptsListChanged()):
                await self.bus.publish(event)
            async with anyio.create_task_group() as tasks:
                for session in [*self._sessions.values()]:
                    tasks.start_soon(self._tell, session)
            await anyio.sleep(PAUSE_SECONDS)

    async def _tell(self, session: ServerSession) -> None:
        # One that does not read must not keep it from the others.
        with anyio.move_on_after(SEND_SECONDS):
            await session.send_resource_list_changed()
            await session.send_prompt_list_changed()
