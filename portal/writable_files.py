"""Warns the operator where a script may write the portal's own files through an upstream (`manifests/exposure.py`)."""

import os
from math import inf

import anyio.to_thread
import structlog

from manifests.exposure import writable_files
from manifests.manifest import Manifest
from portal.authority import Authority
from portal.composition import Portal
from portal.library.catalog import listed_tools
from portal.reload import POLL_SECONDS
from upstreams.upstream import Upstream

log = structlog.get_logger()


async def file_warnings(manifest: Manifest, authority: Authority, upstream: Upstream) -> list[str]:
    """The warnings about one upstream, by the tools that it lists now."""
    own = {tool.name for tool in upstream.tools}
    writers = [
        each
        for each in listed_tools(upstream)
        if each.tool in own
        and not each.hints.readonly
        and authority.about_listed(
            upstream.name, upstream.tools, each.tool, each.function, each.hints
        ).granted
    ]
    return await anyio.to_thread.run_sync(
        lambda: [*writable_files(manifest, upstream.name, writers, os.environ)]
    )


async def warn_of_writable_files(portal: Portal) -> None:
    """Log each warning once, as soon as all upstreams have listed their tools, also those that a reload adds."""
    told: set[str] = set()
    while True:
        await portal.fleet.settled(inf)
        manifest = portal.reload.manifest
        for upstream in [*portal.fleet]:
            for text in await file_warnings(manifest, portal.authority, upstream):
                if text not in told:
                    log.warning("files_exposed", upstream=upstream.name, problem=text)
                told.add(text)
        while portal.reload.manifest is manifest:  # noqa: ASYNC110  # a reload tells nobody
            await anyio.sleep(POLL_SECONDS)
