"""Portals with a lockfile: what their upstreams list is accepted first, and then they are opened."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from manifests.json_value import Json
from manifests.own_files import write_lock
from portal.library.pinning import pins_of
from tests.portal.peers import DEADLINE_SECONDS, Opened, Peer, opened

Upstreams = dict[str, Peer | dict[str, Json]]


async def accept(folder: Path, upstreams: Upstreams, **sections: Any) -> None:
    """Write the lockfile of what these upstreams list now."""
    (folder / "portal.lock").unlink(missing_ok=True)
    async with opened(folder, upstreams, **sections) as portal:
        await portal.portal.fleet.settled(DEADLINE_SECONDS)
        pins = [pin for upstream in portal.portal.fleet for pin in pins_of(upstream)]
    write_lock(folder / "portal.lock", pins)


@asynccontextmanager
async def accepted(folder: Path, upstreams: Upstreams, **sections: Any) -> AsyncIterator[Opened]:
    """A portal whose upstreams list what was accepted."""
    await accept(folder, upstreams, **sections)
    async with opened(folder, upstreams, **sections) as portal:
        yield portal
