"""The tools of upstreams as portal.lock accepts them. Commands that only read start nothing, and import no SDK."""

import os
from argparse import Namespace
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager

import anyio

from manifests.manifest import Manifest, narrowed
from manifests.own_files import Lock, state_folder
from portal.catalog.authority import Authority
from portal.catalog.catalog import Catalog, listed_tools
from portal.catalog.docs_search import DocsSearch
from portal.cli.terminal import Terminal, upstreams_tried
from portal.library.observed import Observations, shape_store
from portal.library.pinning import Pins, accepted_listing
from upstreams.tools import ListedUpstream, ListingStore


@asynccontextmanager
async def opened_search(
    manifest: Manifest, names: Collection[str], options: Namespace, terminal: Terminal, tool: str = ""
) -> AsyncIterator[DocsSearch]:
    """The functions of these upstreams as a portal shows them: from the lockfile if it has them, else as listed now.

    With `tool`, the lockfile needs to have only the tools that this name may mean.
    """
    known = await _known(manifest, manifest.lock) if manifest.lock and not options.live else []
    asked = [each for each in known if each.name in names]
    if known and len(asked) == len(names) and _is_accepted(manifest, asked, tool):
        terminal.note("this is from the lockfile, and no upstream was started; --live asks them")
        own = narrowed(manifest, options.profile) if options.profile else manifest
        authority = Authority.fixed(own)
        catalog = Catalog(authority, None, Observations(shape_store(manifest)))
        async with anyio.create_task_group() as tasks:
            catalog.note_change()
            tasks.start_soon(catalog.keep, known)
            yield DocsSearch(authority, catalog, known)
            tasks.cancel_scope.cancel()
    else:
        # Imported here, because the SDK behind it takes half a second.
        from portal.app.composition import open_portal

        async with open_portal(
            manifest, terminal.note, runs="none", profile=options.profile, only=names
        ) as portal:
            await upstreams_tried(portal.fleet, terminal, names)
            yield portal.docs_search


async def _known(manifest: Manifest, lock: Lock) -> list[ListedUpstream]:
    """Upstreams whose tools are known: from the last listing, if their section of the manifest has not changed since.

    For upstreams that were never listed here, as after a clone, the lockfile counts.
    """
    found: list[ListedUpstream] = []
    for name in manifest.portal.upstreams:
        folder, written = state_folder(os.environ) / "listings", manifest.section(name)
        store = ListingStore(folder, name, manifest.folder, written)
        listing = await store.load()
        if listing is None and not await store.was_listed():
            listing = accepted_listing(lock, name)
        if listing is not None:
            found.append(ListedUpstream(name))
            found[-1].apply(listing)
    return found


def _is_accepted(manifest: Manifest, upstreams: Sequence[ListedUpstream], tool: str) -> bool:
    """Whether the lock accepts all tools that they list; with `tool`, all that this name may mean, and at least one."""
    if not tool and manifest.portal.runs.is_shared:
        return False  # the observed types are in the database that replicas share
    pins = Pins(manifest.lock)
    meant = [
        (upstream, each.tool)
        for upstream in upstreams
        for each in listed_tools(upstream)
        if not tool or tool in manifest.rules.names(upstream.name, each.tool, each.function).current
    ]
    if tool and not meant:
        return False
    return not any(name in pins.quarantined(each.name, each.tools) for each, name in meant)
