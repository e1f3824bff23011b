"""The sources of the data in a shared workspace, for the flow rules: those of the runs that wrote into it.

Rule 1: they are written before a file is changed, and read after each operation. So who sees a change sees its sources.
"""

import hashlib
import json
import os
from collections.abc import Set
from contextlib import AsyncExitStack
from functools import partial
from itertools import chain
from pathlib import Path

import anyio.to_thread

from manifests.manifest import Manifest
from portal.catalog.authority import Authorization
from portal.records.store import places
from portal.records.store.tables import UNSOURCED, Tables
from portal.records.store.writer import RunStore
from portal.runs.journal import Journal, read_again
from sandbox_runtime.grants.files import FileService


class SharedWorkspace:
    """A folder that scripts write and share. It never forgets a source; without a store its sources are unknown."""

    def __init__(self, store: RunStore | None, folder: Path) -> None:
        self._store = store
        self._key = "workspace", hashlib.sha256(os.fsencode(folder.resolve())).hexdigest(), ""
        self._written: dict[str, set[str]] = {}

    def watch(self, files: FileService, authorization: Authorization, journal: Journal | None) -> None:
        """Make a run pass its sources to the other users of its folder, and take over theirs."""
        folder, write = files.shared, files.before_change

        async def before_change() -> None:
            if write is not None:
                await write()
            await self.add(folder, authorization.sources)

        async def after() -> None:
            found = authorization.carry(await read_again(partial(self.sources, folder)))
            if journal is not None:
                journal.note_sources(found)

        files.before_change, files.after = before_change, after

    async def sources(self, folder: str) -> set[str] | None:
        """The sources of the data in a tenant's folder, or in all for ""; None if unknown. Raises StoreError."""
        if self._store is None:
            return None
        known = await self._store.read(self._known)
        lists = [known[each] for each in known if not folder or each in ("", folder)]
        return None if None in lists else {*chain.from_iterable(filter(None, lists))}

    async def add(self, folder: str, sources: Set[str] | None) -> None:
        """Note that a run with these sources is about to write. Raises StoreError."""
        written = self._written.setdefault(folder, set())
        added = None if sources is None else {*sources}  # a copy: those of a run may grow before the write
        if self._store is not None and (added is None or not added <= written):
            await self._store.write(partial(self._add, folder=folder, sources=added), is_lasting=True)
            written |= added or set()

    def _add(self, tables: Tables, folder: str, sources: set[str] | None) -> None:
        tables.lock(*self._key)
        known = self._known(tables)
        before = known.get(folder, [])
        known[folder] = None if before is None or sources is None else sorted(sources.union(before))
        tables.put(*self._key, json.dumps(known).encode())

    def _known(self, tables: Tables) -> dict[str, list[str] | None]:
        """The sources of each folder."""
        return json.loads(tables.get(*self._key) or b"{}")  # type: ignore[no-any-return]  # `_add` wrote it


async def open_workspace(
    stack: AsyncExitStack, manifest: Manifest, place: places.Place, kept: RunStore | None
) -> SharedWorkspace | None:
    """The folder that scripts write and share; None if the manifest grants none. Raises StoreError."""
    grant, store = manifest.portal.capabilities.files, kept
    if grant is None or grant.mode == "read" or grant.share in ("session", "run"):
        return None
    if kept is not None and isinstance(place, Path):
        store = await anyio.to_thread.run_sync(places.open_workspaces, place)
        stack.push_async_callback(store.close)
    workspace = SharedWorkspace(store, folder := manifest.folder / grant.workspace)
    if kept is not None and await kept.read(lambda tables: tables.get(*UNSOURCED)) is not None:
        if any(folder.iterdir()):
            await workspace.add("", None)
        await kept.write(lambda tables: tables.drop(*UNSOURCED))
    return workspace
