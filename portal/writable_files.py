"""Warns the operator where a script may write the portal's own files through an upstream (`manifests/exposure.py`)."""

import os
from collections.abc import Iterable, Iterator
from math import inf

import anyio.to_thread
import structlog

from manifests.decision import ListedTool
from manifests.exposure import writable_files
from manifests.manifest import Manifest
from portal.authority import Authority
from portal.composition import Portal
from portal.library.catalog import listed_tools
from upstreams.upstream import Upstream

log = structlog.get_logger()


async def file_warnings(
    manifest: Manifest, authority: Authority, upstreams: Iterable[Upstream]
) -> list[tuple[str, bool]]:
    """What `writable_files` says of these upstreams, by the tools that they list now."""
    writers = {each.name: [*_writers(authority, each)] for each in upstreams}
    return await anyio.to_thread.run_sync(lambda: [*writable_files(manifest, writers, os.environ)])


def _writers(authority: Authority, upstream: Upstream) -> Iterator[ListedTool]:
    own = {tool.name for tool in upstream.tools}
    for each in listed_tools(upstream):
        if each.tool in own and not each.hints.readonly:
            about = authority.about_listed(
                upstream.name, upstream.tools, each.tool, each.function, each.hints
            )
            if about.granted:
                yield each


async def warn_of_writable_files(portal: Portal) -> None:
    """Log the warnings, as soon as all upstreams have listed their tools."""
    await portal.fleet.settled(inf)
    for text, is_named in await file_warnings(portal.manifest, portal.authority, portal.fleet):
        (log.warning if is_named else log.info)("files_exposed", problem=text)
