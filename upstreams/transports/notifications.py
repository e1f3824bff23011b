"""Notifications of an upstream, and the owners of requests that it may still be working on."""

from collections.abc import Callable, Set
from functools import partial
from typing import Any, Final

import anyio
from mcp.client import ClientSession
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ToolsListChanged
from mcp_types import RequestId

from upstreams.errors import UpstreamError, UpstreamRefusedError, UpstreamUnavailableError
from upstreams.transports.messages import failure_of

ABANDONED_SECONDS: Final = 300.0
"""How long an abandoned request without an answer counts as in flight. A cancelled request is never answered."""

TOOLS: Final = ("notifications/tools/list_changed",)
OFFERINGS: Final = ("notifications/resources/list_changed", "notifications/prompts/list_changed")
_RELISTEN_SECONDS: Final = 1.0
_LONGEST_RELISTEN_SECONDS: Final = 60.0


class AbandonedRequests:
    """Requests of one connection whose caller is gone, while the upstream may still be working on them.

    An upstream may ignore a cancellation. Its questions then still belong to the cancelled request, and must not be
    attributed to another caller.
    """

    def __init__(self) -> None:
        self._abandoned: dict[RequestId, tuple[str | None, float]] = {}
        """Owner and expiry by id, oldest first."""

    def add(self, request_id: RequestId, owner: str | None) -> None:
        """Note a request of `owner` (None: of no particular caller) that was not answered."""
        self._forget_old()
        self._abandoned[request_id] = owner, anyio.current_time() + ABANDONED_SECONDS

    def answered(self, request_id: RequestId | None) -> bool:
        """Record an answer. Returns whether it is the first to an abandoned request."""
        return request_id is not None and self._abandoned.pop(request_id, None) is not None

    def owners(self) -> Set[str | None]:
        self._forget_old()
        return {owner for owner, _ in self._abandoned.values()}

    def _forget_old(self) -> None:
        now = anyio.current_time()
        while self._abandoned and next(iter(self._abandoned.values()))[1] <= now:
            del self._abandoned[next(iter(self._abandoned))]


class Notifications:
    """The notifications of one connection: changes of its tools, resources and prompts.

    Log messages are dropped: MCP 2026-07-28 deprecates them (SEP-2577), and they do not name their call.
    """

    def __init__(self) -> None:
        self._changed = {TOOLS: anyio.Event(), OFFERINGS: anyio.Event()}

    def handle(self, method: str) -> None:
        for kind in (TOOLS, OFFERINGS):
            if method in kind:
                self._changed[kind].set()

    async def change(self, kind: tuple[str, ...]) -> None:
        """Wait for the next change of TOOLS or of OFFERINGS. Changes between two waits count as one."""
        await self._changed[kind].wait()
        self._changed[kind] = anyio.Event()

    async def listen(self, session: ClientSession, give_up: Callable[[str], None]) -> None:
        """Keep a subscription open, as MCP 2026-07-28 needs it; older servers notify without it.

        It also detects the end of a stateless HTTP upstream before the next call: then it calls `give_up`.
        """
        can = session.server_capabilities
        offered = {kind: getattr(can, kind, None) for kind in ("tools", "resources", "prompts")}
        wanted: dict[str, Any] = {
            f"{kind}_list_changed": True for kind, its in offered.items() if its and its.list_changed
        }
        if not wanted:
            return
        opening = partial(listen, session, **wanted)
        delay, has_worked = _RELISTEN_SECONDS, False
        while True:
            try:
                async with opening() as subscription:
                    has_worked = True
                    # A subscription replays nothing, so earlier changes require a new listing.
                    for changed in self._changed.values():
                        changed.set()
                    async for event in subscription:
                        delay = _RELISTEN_SECONDS
                        self._changed[TOOLS if isinstance(event, ToolsListChanged) else OFFERINGS].set()
            except (ListenNotSupportedError, MCPError, SubscriptionLost, TimeoutError) as error:
                failure = failure_of(error.error) if isinstance(error, MCPError) else None
                if isinstance(failure, UpstreamUnavailableError):
                    give_up(str(failure))
                    return
                if _is_final(error, failure, has_worked):
                    return
            await anyio.sleep(delay)
            delay = min(delay * 2, _LONGEST_RELISTEN_SECONDS)


def _is_final(error: Exception, failure: UpstreamError | None, has_worked: bool) -> bool:
    """Whether a server that gave no subscription gives none later either. What refuses one that worked may pass."""
    if isinstance(error, MCPError):
        # A gateway's refusal may pass; the server's own answer is final.
        return failure is None or (type(failure) is UpstreamRefusedError and not has_worked)
    return isinstance(error, ListenNotSupportedError) or (isinstance(error, TimeoutError) and not has_worked)
