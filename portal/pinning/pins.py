"""Keeps from scripts what upstreams changed since the operator accepted it.

What counts is what the upstream lists at that moment: a tool that changes while a script runs is refused at its next
call, also where that call waits for a connection.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import structlog

from manifests.decision import Decision
from manifests.lock import Lock, Pin
from upstreams.tools import RecordedTool
from upstreams.upstream import Upstream

log = structlog.get_logger()

QUARANTINED: Final = "quarantined"
_NONE: Final[Mapping[str, Decision]] = MappingProxyType({})
_MAX_LOGGED: Final = 20
_NEW: Final = "{} has no line for it: the tool is new, and nobody has accepted it"
_GRANT: Final = (
    "Whoever runs the portal can look at it with `mcp-code-portal lock --diff`, accept it with "
    "`mcp-code-portal lock --accept`, and start the portal anew."
)


def pin_of(upstream: str, tool: RecordedTool) -> Pin:
    """A tool as its upstream lists it now."""
    definition = {
        "title": tool.title,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": tool.annotations,
        "inputExamples": list(tool.examples) or None,
    }
    said = {key: value for key, value in definition.items() if value is not None and value != {}}
    return Pin(upstream, tool.name, tool.description, said)


def pins_of(upstream: Upstream) -> list[Pin]:
    """All that an upstream says of itself now."""
    pins = [pin_of(upstream.name, tool) for tool in upstream.tools]
    if upstream.instructions:
        pins.insert(0, Pin(upstream.name, None, upstream.instructions))
    return pins


class Pins:
    """Which tools are quarantined. Without a lock none is."""

    def __init__(self, lock: Lock | None) -> None:
        self._lock = lock
        self._known: dict[str, tuple[tuple[RecordedTool, ...], Mapping[str, Decision]]] = {}

    def quarantined(self, upstream: str, tools: tuple[RecordedTool, ...]) -> Mapping[str, Decision]:
        """Why tools may not be called, by name; `tools` are those that the upstream lists now.

        Hashing a listing takes some 10 µs a tool; asking again about the same one takes none.
        """
        if self._lock is None:
            return _NONE
        known = self._known.get(upstream)
        if known is None or known[0] is not tools:
            found = {tool.name: why for tool in tools if (why := self._why(self._lock, upstream, tool))}
            known = self._known[upstream] = tools, found
            if found:
                names = [name[:200] for name in found][:_MAX_LOGGED]
                log.warning("tools_quarantined", upstream=upstream, count=len(found), tools=names)
        return known[1]

    def summary(self, upstream: Upstream) -> str:
        """What the upstream says about itself as a whole, as far as it was accepted."""
        if self._lock is None:
            return upstream.instructions or upstream.server or ""
        accepted = self._lock.pins.get((upstream.name, None))
        now = Pin(upstream.name, None, upstream.instructions or "")
        return now.description if accepted is not None and accepted.is_same(now) else ""

    def _why(self, lock: Lock, upstream: str, tool: RecordedTool) -> Decision | None:
        accepted, now = lock.pins.get((upstream, tool.name)), pin_of(upstream, tool)
        if accepted is not None and accepted.is_same(now):
            return None
        if accepted is None:
            rule = _NEW.format(lock.file)
        elif now.digest is None:
            rule = "its definition nests too deep to be accepted"
        else:
            rule = f"its definition is no longer the one that {lock.file} accepts"
        where = lock.where(upstream, tool.name)
        return Decision("deny", rule, where, _GRANT, is_shown=False, code=QUARANTINED)
