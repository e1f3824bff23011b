"""`mcp-code-portal serve`."""

import ctypes
import gc
from argparse import Namespace
from contextlib import suppress
from typing import Final

from manifests.manifest import Manifest
from portal.app.serving import serve_http, serve_stdio
from portal.cli.terminal import Terminal

OBJECTS_BETWEEN_COLLECTIONS: Final = 20_000
"""With Python's default of 700 the collector runs four times while a script makes five calls."""

_M_ARENA_MAX: Final = -8
"""The option of glibc's mallopt that limits the arenas. Each thread else gets its own, which keeps what was freed."""


async def command(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Serve until the client closes stdin, or until a signal ends the HTTP server."""
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    if options.http is None:
        if terminal.is_watched:
            terminal.note("serving MCP on stdin and stdout for an MCP client. Ctrl-C ends it.")
        await serve_stdio(manifest, terminal.note, options.profile)
    else:
        host, port = options.http
        await serve_http(manifest, host, port, terminal.note, options.profile)
    return 0
