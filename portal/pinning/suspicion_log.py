"""Tells in the log what is odd in definitions, as soon as an upstream lists them."""

from functools import partial

import anyio
import anyio.to_thread
import structlog

from manifests.lock import Pin
from portal.pinning.pins import pins_of
from portal.pinning.suspicions import Suspicion, suspicions
from upstreams.recorded_tool import RecordedTool
from upstreams.upstream import Upstream

log = structlog.get_logger()

MAX_LOGGED = 20
"""Suspicions logged of one listing of an upstream; more are counted, and `check` tells all of them."""


class SuspicionLog:
    """Looks at each listing once, one after the other and in a thread: nobody waits for it."""

    def __init__(self) -> None:
        self._noted: dict[str, Upstream] = {}
        self._seen: dict[str, tuple[tuple[RecordedTool, ...], str | None]] = {}
        self._changed = anyio.Event()

    def note(self, upstream: Upstream) -> None:
        """The upstream may list something else than before."""
        said = upstream.tools, upstream.instructions
        known = self._seen.get(upstream.name, ((), None))
        if known[0] is not said[0] or known[1] != said[1]:
            self._seen[upstream.name] = said
            self._noted[upstream.name] = upstream
            self._changed.set()

    async def keep(self) -> None:
        """Look at what is noted until cancelled."""
        while True:
            while self._noted:
                _, upstream = self._noted.popitem()
                pins = pins_of(upstream)
                found = await anyio.to_thread.run_sync(partial(_found, pins))
                _tell(upstream.name, found)
            self._changed = anyio.Event()
            await self._changed.wait()


def _found(pins: list[Pin]) -> list[Suspicion]:
    return [each for each in suspicions(pins) if not each.is_note]


def _tell(upstream: str, found: list[Suspicion]) -> None:
    for each in found[:MAX_LOGGED]:
        log.warning("definition_suspicious", upstream=upstream, told=str(each))
    if len(found) > MAX_LOGGED:
        log.warning("definitions_suspicious", upstream=upstream, more=len(found) - MAX_LOGGED)
