"""Waiting for upstreams, and saying which ones."""

from collections.abc import Collection
from typing import Final

from portal.cli.terminal import Terminal
from upstreams.fleet import Fleet

_QUIET_SECONDS: Final = 2.0
_MAX_NAMED: Final = 20


async def tried(fleet: Fleet, terminal: Terminal, names: Collection[str] | None = None) -> None:
    """Wait until every upstream (of `names`) is ready or has said what keeps it; tell those that take their time."""
    slow = await fleet.settled(_QUIET_SECONDS, names)
    if not slow:
        return
    named = ", ".join(upstream.name for upstream in slow[:_MAX_NAMED])
    more = f" and {len(slow) - _MAX_NAMED} more" if len(slow) > _MAX_NAMED else ""
    seconds = max(upstream.connect_seconds for upstream in slow)
    terminal.note(f"waiting for {named}{more} (up to {seconds:g} s)")
    await fleet.tried(names)
