"""`mcp-code-portal search`."""

from argparse import Namespace

from manifests.manifest import Manifest
from portal.cli.terminal import Terminal
from portal.cli.upstream_wait import tried
from portal.composition import open_portal
from portal.requests import RequestError, docs_search_request


async def command(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Print what docs_search answers: stub code, or JSON.

    Exits with 1 if there is no upstream of the name, 2 if an option cannot be what it is.
    """
    try:
        request = docs_search_request(
            {
                "query": options.query,
                "detail": "full" if options.full else "brief",
                "upstream": options.upstream,
                "limit": options.limit,
            }
        )
    except RequestError as error:
        terminal.error(str(error))
        return 2
    async with open_portal(manifest, terminal.note, runs_scripts=False, profile=options.profile) as portal:
        with terminal.waiting("starting the upstreams"):
            searched = portal.docs_search.searched(request.upstream)
            await tried(portal.fleet, terminal, [upstream.name for upstream in searched])
            answer = await portal.docs_search.answer(request)
    if options.json:
        terminal.json(answer.structured)
    else:
        terminal.result(answer.text)
    return 0 if searched or request.upstream is None else 1
