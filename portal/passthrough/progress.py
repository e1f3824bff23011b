"""What a client that wants to hear of progress is told while it waits for its answer."""

import math
from functools import partial
from typing import Final, TypeAlias

import anyio
from mcp.shared.dispatcher import ProgressFnT

from portal.ledger import Entry, Ledger
from portal.passthrough.clean_json import Scrub
from portal.passthrough.outbox import Outbox

MAX_CHARACTERS: Final = 200
"""Of one message; the rest is cut."""

MAX_TOLD_CALLS: Final = 3
"""Calls under way that are told by name; more are counted."""

Report: TypeAlias = ProgressFnT
"""Sends one notification: a number, which grows from one to the next, a total or None, and a message."""


class Progress:
    """The progress of one request: its number is the seconds that it has taken, its message what it waits for.

    What upstreams say of calls is passed on as messages with the call's name. Their numbers are not: several calls at
    once have several, and MCP wants one that grows.

    Source: MCP 2026-07-28, basic/utilities/progress.
    """

    def __init__(self, report: Report, ledger: Ledger, keep_alive_seconds: float) -> None:
        self.stage = "working"
        self.outbox = Outbox(at_once=20, a_second=5)
        self._report = report
        self.ledger = ledger
        self._keep_alive_seconds = keep_alive_seconds
        self._began = anyio.current_time()
        self._last = 0.0

    def of_call(self, entry: Entry, scrub: Scrub) -> ProgressFnT:
        """What hears an upstream's progress of one call."""

        async def heard(progress: float, total: float | None, message: str | None) -> None:
            if entry.ended is None:  # it may still be told of a call that was given up
                line = _line(f"{entry.function}: {_told(progress, total, message, scrub)}")
                self.outbox.put(partial(self._tell, line))

        return heard

    async def keep_alive(self) -> None:
        """Say what is waited for, again and again, also when no upstream says anything; until the outbox is closed."""
        while True:
            with anyio.move_on_after(self._keep_alive_seconds):
                await self.outbox.closed.wait()
                return
            self.outbox.put(partial(self._tell, self._waited_for()))

    async def _tell(self, message: str) -> None:
        seconds = round(anyio.current_time() - self._began, 3)
        self._last = max(seconds, round(self._last + 0.001, 3))
        await self._report(self._last, None, message)

    def _waited_for(self) -> str:
        waiting = [entry.function for entry in self.ledger.entries.values() if entry.ended is None]
        if not waiting:
            return self.stage
        names = list(dict.fromkeys(waiting))[:MAX_TOLD_CALLS]
        calls = "1 call" if len(waiting) == 1 else f"{len(waiting)} calls"
        return _line(
            f"waiting for {calls}: {', '.join(names)}{', ...' if len(set(waiting)) > len(names) else ''}"
        )


def _told(progress: float, total: float | None, message: str | None, scrub: Scrub) -> str:
    numbers = _number(progress) + (f" of {_number(total)}" if total is not None else "")
    return f"{numbers}: {scrub(message, MAX_CHARACTERS)}" if message else numbers


def _number(value: float) -> str:
    return f"{value:,.10g}" if math.isfinite(value) else "?"


def _line(text: str) -> str:
    """One printable line that UTF-8 can carry."""
    shown = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return shown if len(shown) <= MAX_CHARACTERS else shown[: MAX_CHARACTERS - 1] + "…"
