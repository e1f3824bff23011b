"""What an upstream logs while calls to it are under way, and who may hear of it.

Source: MCP 2026-07-28, server/utilities/logging; 2025-11-25, server/utilities/logging.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, get_args

import anyio
from mcp_types import LoggingLevel

from manifests.json_value import Json
from upstreams.given_up import GivenUp

LEVELS: Final[tuple[LoggingLevel, ...]] = get_args(LoggingLevel)
"""From the least severe to the most."""


@dataclass(frozen=True)
class LogMessage:
    """As the upstream sent it: nothing is scrubbed or cut. `logger` is "" if it names none."""

    level: LoggingLevel
    logger: str
    data: Json


def read_log_message(params: Mapping[str, Json]) -> LogMessage:
    """However sloppy it is: one of no level that there is counts as `info`."""
    level: LoggingLevel = next((each for each in LEVELS if each == params.get("level")), "info")
    logger = params.get("logger")
    return LogMessage(level, logger if isinstance(logger, str) else "", params.get("data"))


@dataclass(frozen=True, eq=False)
class LogHearer:
    """Somebody whose calls are under way, and who hears what is logged meanwhile from `level` on.

    Hearers of one `owner` may hear of each other's calls. None stands for a message that was dropped unread.
    """

    owner: str
    level: LoggingLevel
    hear: Callable[[LogMessage | None], None]


class LogHearers:
    """Who has calls under way on one connection.

    A message does not say which call it is about. So it is told if all calls under way, and those that were given up,
    are of one owner; if they are of several, or of somebody who hears nothing, nobody is told.
    """

    def __init__(self, given_up: GivenUp) -> None:
        self._given_up = given_up
        self._calls: dict[object, LogHearer | None] = {}
        self._wanted = len(LEVELS)
        self._asked = len(LEVELS)
        self._more_wanted = anyio.Event()

    @contextmanager
    def hearing(self, hearer: LogHearer | None) -> Iterator[None]:
        """Around one call."""
        call = object()
        self._calls[call] = hearer
        if hearer is not None and (level := LEVELS.index(hearer.level)) < self._wanted:
            self._wanted = level
            self._more_wanted.set()
        try:
            yield
        finally:
            del self._calls[call]

    def tell(self, message: LogMessage | None) -> None:
        hearers = [*dict.fromkeys(self._calls.values())]
        owners = {None if hearer is None else hearer.owner for hearer in hearers}
        if len(owners | self._given_up.owners()) != 1:
            return
        for hearer in hearers:
            if hearer is not None and (message is None or reaches(message.level, hearer.level)):
                hearer.hear(message)

    async def more_wanted(self) -> LoggingLevel:
        """The least severe level that anybody wanted, once it is less severe than this returned before."""
        while self._wanted >= self._asked:
            self._more_wanted = anyio.Event()
            await self._more_wanted.wait()
        self._asked = self._wanted
        return LEVELS[self._asked]


def reaches(level: LoggingLevel, least: LoggingLevel) -> bool:
    """Whether a message is as severe as that, or more."""
    return LEVELS.index(level) >= LEVELS.index(least)
