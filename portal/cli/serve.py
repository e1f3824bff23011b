"""`mcp-code-portal serve`."""

from argparse import Namespace

from manifests.manifest import Manifest
from portal.cli.terminal import Terminal
from portal.serving import serve_http, serve_stdio


async def command(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Serve until the client closes stdin, or until a signal ends the HTTP server."""
    if options.http is None:
        if terminal.err.is_terminal:
            terminal.note("serving MCP on stdin and stdout; an MCP client is expected there. Ctrl-C ends it.")
        await serve_stdio(manifest, terminal.note, options.profile)
    else:
        host, port = options.http
        await serve_http(manifest, host, port, terminal.note, options.profile)
    return 0
