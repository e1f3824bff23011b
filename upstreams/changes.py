"""How the portal learns that an upstream's tools changed, in both eras."""

from collections.abc import Mapping
from functools import partial
from typing import Final

import anyio
from mcp.client import ClientSession, IncomingMessage
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ToolsListChanged
from mcp_types import (
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ToolListChangedNotification,
)

from manifests.json_value import Json
from upstreams.diagnostics import Diagnostics
from upstreams.errors import UpstreamUnavailableError
from upstreams.given_up import GivenUp
from upstreams.log_messages import LogHearers, read_log_message
from upstreams.wire import Wire

_LOG_MESSAGE: Final = "notifications/message"
_LIST_CHANGED: Final = "notifications/tools/list_changed"
_OFFERINGS_CHANGED: Final = ("notifications/resources/list_changed", "notifications/prompts/list_changed")
_RELISTEN_SECONDS: Final = 1.0
_LONGEST_RELISTEN_SECONDS: Final = 60.0


class Changes:
    """What the upstream says without being asked; the SDK session's message handler."""

    def __init__(self, diagnostics: Diagnostics, given_up: GivenUp) -> None:
        self.log_hearers = LogHearers(given_up)
        self._diagnostics = diagnostics
        self._changed = anyio.Event()
        self._offerings_changed = anyio.Event()

    async def __call__(self, message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._changed.set()
        elif isinstance(message, ResourceListChangedNotification | PromptListChangedNotification):
            self._offerings_changed.set()
        elif isinstance(message, Exception):
            problem = (str(message).splitlines() or [""])[0]
            self._diagnostics.note(f"sent something unreadable: {type(message).__name__}: {problem}")

    def heed(self, method: str, params: Mapping[str, Json]) -> bool:
        """Take log messages, while it is known which calls were under way when they came."""
        if method != _LOG_MESSAGE:
            return False
        self.log_hearers.tell(read_log_message(params))
        return True

    def note_excess(self, method: str | None) -> None:
        """A notification came that was one too many, or None: many answers to nothing did.

        That tools changed is heard all the same.
        """
        if method is None:
            self._diagnostics.note("sends answers that nobody waits for")
            return
        self._diagnostics.note("sends so many notifications that some are dropped")
        if method == _LOG_MESSAGE:
            self.log_hearers.tell(None)
        if method == _LIST_CHANGED:
            self._changed.set()
        if method in _OFFERINGS_CHANGED:
            self._offerings_changed.set()

    async def wait(self) -> None:
        """Return at the next change; those that came while nobody waited count as one."""
        await self._changed.wait()
        self._changed = anyio.Event()

    async def wait_for_offerings(self) -> None:
        """The same for its resources and prompts."""
        await self._offerings_changed.wait()
        self._offerings_changed = anyio.Event()

    async def listen(self, session: ClientSession, wire: Wire) -> None:
        """Keep a subscription open where the era has one; older servers notify by themselves.

        It is also how a stateless HTTP upstream's end is noticed before the next call.
        """
        can = session.server_capabilities
        tools = bool(can and can.tools and can.tools.list_changed)
        resources = bool(can and can.resources and can.resources.list_changed)
        prompts = bool(can and can.prompts and can.prompts.list_changed)
        if not (tools or resources or prompts):
            return
        opening = partial(
            listen,
            session,
            tools_list_changed=tools,
            resources_list_changed=resources,
            prompts_list_changed=prompts,
        )
        delay = _RELISTEN_SECONDS
        while True:
            try:
                async with opening() as subscription:
                    # Nothing is replayed: what changed before this moment is only seen by listing again.
                    self._changed.set()
                    self._offerings_changed.set()
                    async for event in subscription:
                        delay = _RELISTEN_SECONDS
                        is_of_tools = isinstance(event, ToolsListChanged)
                        (self._changed if is_of_tools else self._offerings_changed).set()
            except (ListenNotSupportedError, TimeoutError):
                return
            except MCPError as error:
                failure = wire.failures.claim(error)
                if isinstance(failure, UpstreamUnavailableError):
                    wire.give_up(str(failure))
                return
            except SubscriptionLost:
                pass
            await anyio.sleep(delay)
            delay = min(delay * 2, _LONGEST_RELISTEN_SECONDS)
