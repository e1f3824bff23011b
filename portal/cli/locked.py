"""The tools of upstreams as portal.lock accepts them: who only reads about them starts nothing, and imports no SDK."""

import os
from argparse import Namespace
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager

import anyio

from manifests.manifest import Manifest, narrowed
from manifests.own_files import state_folder
from portal.catalog.authority import Authority, CallRates
from portal.catalog.catalog import Catalog, listed_tools
from portal.catalog.docs_search import DocsSearch
from portal.cli.terminal import Terminal, upstreams_tried
from portal.library.observed import Observations, shape_store
from portal.library.pinning import Pins
from upstreams.tools import ListedUpstream, ListingStore


@asynccontextmanager
async def opened_search(
    manifest: Manifest, names: Collection[str], options: Namespace, terminal: Terminal, tool: str = ""
) -> AsyncIterator[DocsSearch]:
    """What a portal shows of these upstreams: as they listed it last, if the lockfile accepts all of it; else live.

    With `tool`, one of them has to have listed a tool that this name may mean.
    """
    known = [] if options.live else await _accepted(manifest)
    asked = [each for each in known if each.name in names]
    if known and len(asked) == len(names) and (not tool or _mean(manifest, asked, tool)):
        terminal.note("this is from the lockfile, and no upstream was started; --live asks them")
        own = narrowed(manifest, options.profile) if options.profile else manifest
        authority = Authority(own, CallRates())
        catalog = Catalog(authority, None, None, Observations(shape_store(manifest)))
        async with anyio.create_task_group() as tasks:
            catalog.note_change()
            tasks.start_soon(catalog.keep, known)
            yield DocsSearch(authority, catalog, known)
            tasks.cancel_scope.cancel()
    else:
        # Imported here, because the SDK behind it takes half a second.
        from portal.app.composition import open_portal

        opening = open_portal(manifest, terminal.note, runs_scripts=False, profile=options.profile)
        async with opening as portal:
            await upstreams_tried(portal.fleet, terminal, names)
            yield portal.docs_search


async def _accepted(manifest: Manifest) -> list[ListedUpstream]:
    """The upstreams of which the lockfile accepts all that they listed, with their sections as they are now."""
    if manifest.lock is None or manifest.portal.runs.is_shared:  # replicas share what results look like
        return []
    pins, folder, found = Pins(manifest.lock), state_folder(os.environ) / "listings", list[ListedUpstream]()
    for name, spec in manifest.portal.upstreams.items():
        store = ListingStore(folder, name, spec, manifest.folder, manifest.written.get(name))
        listing = await store.load()
        if listing is not None and not pins.quarantined(name, listing.tools):
            found.append(ListedUpstream(name))
            found[-1].apply(listing)
    return found


def _mean(manifest: Manifest, upstreams: Sequence[ListedUpstream], tool: str) -> bool:
    """Whether the name may mean one of their tools."""
    listed = ((upstream.name, each) for upstream in upstreams for each in listed_tools(upstream))
    return any(tool in manifest.rules.names(name, each.tool, each.function).current for name, each in listed)
