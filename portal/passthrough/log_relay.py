"""What upstreams log, on its way to the client of one request: capped, scrubbed and named by upstream."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

from mcp_types import LoggingLevel

from manifests.json_value import Json
from portal.budget.tokens import compact
from portal.passthrough.clean_json import Scrub, clean_json, clean_text, one_line, printable
from portal.passthrough.outbox import Outbox
from upstreams.notifications import LogHearer, LogMessage

MAX_CHARACTERS: Final = 4_000
"""Of one message, as JSON; of a longer one only the beginning of its JSON is told, as text."""

MAX_READ_CHARACTERS: Final = 50_000
MAX_READ_VALUES: Final = 5_000
"""One with more characters than this, or with more keys and values, is not looked at: that takes time from others."""

MAX_MESSAGES: Final = 1_000
"""Of one request; more are counted."""

MAX_LOGGER_CHARACTERS: Final = 100

OWN_LOGGER: Final = "mcp-code-portal"

Log: TypeAlias = Callable[[LoggingLevel, str, Json], Awaitable[None]]
"""Sends one message: level, logger and data."""


class LogRelay:
    """Passes on what is logged while calls of one request are under way, from `level` on."""

    def __init__(self, log: Log, owner: str, level: LoggingLevel) -> None:
        self.outbox = Outbox(at_once=50, a_second=20)
        self._log = log
        self._owner = owner
        self._level = level
        self._hearers: dict[str, LogHearer] = {}
        self._told = 0
        self._left_out = 0

    def hearer(self, upstream: str, scrub: Scrub) -> LogHearer:
        """What hears an upstream; the same for all calls of the request."""
        if upstream not in self._hearers:
            hear = partial(self._hear, upstream, printable(scrub))
            self._hearers[upstream] = LogHearer(self._owner, self._level, hear)
        return self._hearers[upstream]

    def close(self) -> None:
        """Have what is still there sent, and how much is missing."""
        missing = self._left_out
        told = f"{missing} log messages of upstreams were left out"
        self.outbox.close(partial(self._log, "warning", OWN_LOGGER, told) if missing else None)

    def _hear(self, upstream: str, scrub: Scrub, message: LogMessage | None) -> None:
        # Whether there is room is asked first: what is dropped should cost next to nothing.
        has_room = self._told < MAX_MESSAGES and not self.outbox.is_full
        data = _shown(message.data, scrub) if has_room and message is not None else None
        if message is None or data is None:
            self._left_out += 1
            return
        self._told += 1
        logger = clean_text(message.logger, one_line(scrub), MAX_LOGGER_CHARACTERS)
        named = f"{upstream}/{logger}" if logger else upstream
        self.outbox.put(partial(self._log, message.level, named, data))


def _shown(data: Json, scrub: Scrub) -> Json:
    """The data without secrets, or as much of its text as is told; None if it is too much to look at."""
    if not _is_small(data):
        return None
    try:
        clean = clean_json(data, scrub, MAX_CHARACTERS)
        text = clean if isinstance(clean, str) else compact(clean)
    except (ValueError, RecursionError):
        return None
    return clean if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"


def _is_small(data: Json) -> bool:
    values, characters = 0, 0
    todo: list[Json] = [data]
    while todo:
        value = todo.pop()
        values += 1
        if isinstance(value, str):
            characters += len(value)
        elif isinstance(value, (list, dict)):
            if values + len(todo) + len(value) > MAX_READ_VALUES:
                return False
            todo += value if isinstance(value, list) else [*value, *value.values()]
        if values > MAX_READ_VALUES or characters > MAX_READ_CHARACTERS:
            return False
    return True
