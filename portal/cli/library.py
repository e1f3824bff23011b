"""`mcp-code-portal search` and `stubs`: show the typed library as models and type checkers see it."""

from argparse import Namespace

from manifests.kernels import JAVASCRIPT
from manifests.manifest import Manifest
from portal.base.errors import NO_UPSTREAMS, SMALLEST_MANIFEST
from portal.base.requests import RequestError, docs_search_request
from portal.cli.locked import opened_search
from portal.cli.terminal import Terminal, counted, unknown_name, upstreams_tried
from portal.library.library import PORTAL, write_declarations, write_stubs


async def search(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Print the answer of docs_search as stub code or JSON.

    Exits with 1 if the upstream does not exist, 2 if an option is invalid.
    """
    try:
        request = docs_search_request(
            {
                "query": options.query,
                "detail": "full" if options.full else "brief",
                "upstream": options.upstream,
                "limit": options.limit,
                "kernel": manifest.portal.server.switched_on[0],
            }
        )
    except RequestError as error:
        terminal.error(str(error))
        return 2
    names = [name for name, space in manifest.namespaces.items() if request.upstream in (None, name, space)]
    async with opened_search(manifest, names, options, terminal) as docs_search:
        answer = await docs_search.answer(request)
    if not manifest.portal.upstreams:
        terminal.note(SMALLEST_MANIFEST)
    if options.json:
        terminal.json(answer.structured)
    else:
        terminal.result(answer.text)
    return 0 if names or request.upstream in (None, PORTAL) else 1


async def stubs(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Print the stubs of one namespace or of all, or write all as a package. Waits for the upstreams."""
    from portal.app.composition import open_portal

    asked = manifest.namespaces.get(options.namespace, options.namespace)
    # A package always has all namespaces.
    is_of_all = options.namespace is None or options.out is not None
    names = {name for name, space in manifest.namespaces.items() if is_of_all or space == asked}
    if not manifest.portal.upstreams:
        terminal.note(f"notice: {NO_UPSTREAMS} {SMALLEST_MANIFEST}")
    async with open_portal(
        manifest, terminal.note, runs="none", profile=options.profile, only=names
    ) as portal:
        await upstreams_tried(portal.fleet, terminal, names)
        library = (await portal.catalog.fresh()).library
        missing = [u for u in portal.fleet if u.name in names and not u.state.is_well]
        for upstream in missing:
            terminal.error(f"upstream {upstream.name!r} is {upstream.state}")
    if asked and asked not in library.namespaces:
        if not names:
            terminal.error(unknown_name("namespace", asked, manifest.namespaces.values()))
        elif not missing:
            terminal.error(f"scripts may call no tool of the namespace {asked!r}")
        return 1
    if options.out is None:
        for namespace in [asked] if asked else sorted(library.namespaces):
            terminal.result(library.module(namespace))
    else:
        absent = {manifest.namespaces[upstream.name] for upstream in missing}
        write_stubs(library, options.out, absent)
        if JAVASCRIPT in manifest.portal.server.switched_on:
            write_declarations(library, options.out, absent)
        functions = counted(len(library.functions), "function")
        terminal.note(
            f"wrote {functions} of {counted(len(library.namespaces), 'namespace')} to {options.out}"
        )
    return 1 if missing else 0
