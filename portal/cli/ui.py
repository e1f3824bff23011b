"""`mcp-code-portal ui`: serves the consoles of all portals of this user to a browser on this machine."""

import os
import secrets
import socket
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from typing import Final

import anyio
import anyio.to_thread
import uvicorn

from manifests.manifest import Manifest
from manifests.own_files import state_folder, write_whole
from manifests.portal_manifest import ServerSettings
from portal.app.consoles import Consoles, open_clients
from portal.app.http_connections import http_server, listening
from portal.base.errors import PortalError, RunsError
from portal.cli.command_line import USAGE_ERROR
from portal.cli.terminal import Terminal, open_browser, person
from portal.console.access import TICKET_SECONDS, Access
from portal.console.visitor import Visitor
from portal.identity.approvers import Decider

_HOST: Final = "127.0.0.1"
_PORTS: Final = range(7700, 7720)

IDLE_MINUTES: Final = 30
_MINUTE_SECONDS: Final = 60


async def command(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Serve until a signal, or until no one looked for half an hour."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    visitor = Visitor(Decider(person("console")), may_decide=is_terminal or options.decide)
    with closing(_listener(options.port)) as listener:
        port = listener.getsockname()[1]
        # A browser sends the cookies of a host to all of its ports, so each console has a host of its own.
        own = f"ui-{secrets.token_hex(4)}.localhost"
        access = Access({f"{name}:{port}" for name in (own, _HOST)}.__contains__)
        async with open_clients() as clients, anyio.create_task_group() as tasks:
            consoles = Consoles(clients, manifest, access)
            try:
                path = await consoles.path_of(options.run)
            except RunsError as error:
                terminal.error(f"{error.code}: {error}. {error.hint}")
                return USAGE_ERROR

            async def show() -> str:
                address = f"http://{own}:{port}{access.ticket(visitor, path)}"
                terminal.result(address)
                for other in await consoles.listener_tickets(visitor, path):
                    terminal.note(f"or at the portal's own address: {other}")
                return address

            server = http_server(consoles.app, ServerSettings(drain_seconds=1))
            tasks.start_soon(server.end_when_cancelled)
            tasks.start_soon(_end_when_idle, server, tasks.cancel_scope, terminal)
            address = await show()
            rights = "to see and decide" if visitor.may_decide else "to see only, which --decide changes"
            terminal.note(
                f"It opens the console once, within {TICKET_SECONDS} s, {rights}. Ctrl-C ends this."
            )
            terminal.note(f"For a browser that does not know {own}, write {_HOST}.")
            if is_terminal:
                terminal.note("Enter prints another one.")
                tasks.start_soon(_show_again, show)
            if options.browser:
                tasks.start_soon(_open, address, port)
            with anyio.CancelScope(shield=True):
                await server.serve(sockets=[listener])
    return 0


async def _end_when_idle(server: uvicorn.Server, scope: anyio.CancelScope, terminal: Terminal) -> None:
    """A page that is looked at has a stream open, and a browser keeps its connections for more than a minute."""
    quiet = 0
    while quiet < IDLE_MINUTES:
        await anyio.sleep(_MINUTE_SECONDS)
        quiet = 0 if server.server_state.connections else quiet + 1
    terminal.note("It ends, because no one looked for half an hour.")
    scope.cancel()


async def _open(address: str, port: int) -> None:
    """Open a browser by a file, because all users of the machine see with which address one is started."""
    page = state_folder(os.environ) / f"ui-{port}.html"
    with suppress(OSError):  # the address is printed, too
        page.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(
            page, f'<meta http-equiv="refresh" content="0; url={address}">'.encode(), is_lasting=False
        )
        try:
            await anyio.to_thread.run_sync(open_browser, page.as_uri())
            await anyio.sleep(TICKET_SECONDS)
        finally:
            page.unlink(missing_ok=True)


async def _show_again(show: Callable[[], Awaitable[object]]) -> None:
    while await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
        await show()


def _listener(port: int | None) -> socket.socket:
    """Listen on this port, or on the first free one of the usual ones. Raises PortalError."""
    for each in _PORTS if port is None else ():
        with suppress(PortalError):
            return listening(_HOST, each)
    return listening(_HOST, _PORTS[0] if port is None else port)
