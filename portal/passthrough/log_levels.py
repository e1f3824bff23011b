"""From which level on a client wants to hear what upstreams log."""

from collections import OrderedDict
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp_types import LOG_LEVEL_META_KEY, LoggingLevel
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from portal.caller import caller_of
from upstreams.notifications import LEVELS

DEFAULT: Final[LoggingLevel] = "info"
"""For clients of the older revisions that have not said."""

MAX_SESSIONS: Final = 10_000
"""Whose levels are kept; of more the oldest are forgotten, and hear the default again."""


class LogLevels:
    """The levels that sessions of the older revisions have set. Since 2026-07-28 each request says, or hears nothing.

    Source: MCP 2026-07-28, server/utilities/logging; 2025-11-25, server/utilities/logging#setting-log-level.
    """

    def __init__(self) -> None:
        self._levels: OrderedDict[str, LoggingLevel] = OrderedDict()

    def set(self, context: ServerRequestContext[Any, Any], level: LoggingLevel) -> None:
        owner = caller_of(context).owner
        if not owner:  # nobody who could come back
            return
        self._levels[owner] = level
        self._levels.move_to_end(owner)
        if len(self._levels) > MAX_SESSIONS:
            self._levels.popitem(last=False)

    def of(self, context: ServerRequestContext[Any, Any]) -> LoggingLevel | None:
        """The level of one request; None if its client is not to be sent any."""
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return self._levels.get(caller_of(context).owner, DEFAULT)
        asked = (context.meta or {}).get(LOG_LEVEL_META_KEY)
        return next((level for level in LEVELS if level == asked), None)
