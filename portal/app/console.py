"""The pages of a portal that runs in this process: on its socket, and on its listener. Imported with the first page."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from portal.app.http_access import HttpAccess
from portal.base.caller import LOCAL
from portal.console.access import Access, Tokens
from portal.console.app import console_app
from portal.console.pages import visitor_of
from portal.console.source import LiveSource
from portal.console.visitor import HEADER, Visitor
from portal.identity.approvers import Decider
from portal.server.portal import Portal


class PortalConsole:
    """The applications at the two doors. `name` is the portal's in addresses, and `about` says how it runs.

    `access` gives the rules of its listener, if it has one.
    """

    def __init__(
        self, portal: Portal, name: str, about: Callable[[], str], access: Callable[[], HttpAccess] | None
    ) -> None:
        self._portal = portal
        inside = LiveSource(portal, f"/ui/@{name}", about)
        self.on_socket = console_app(inside, told_visitor, [Route("/ticket", self._ticket)] if access else [])
        if access:
            self._access = Access(lambda host: access().knows_host(host), lambda: tokens_of(access()))
            self.on_listener = console_app(LiveSource(portal, "/ui", about), self._access.admit)

    async def _ticket(self, request: Request) -> Response:
        """The address with which the visitor enters at the listener, once. 404 if the portal does not know its own."""
        if not (url := self._portal.runs.public_url):
            return PlainTextResponse("There is no runs.public_url.\n", 404)
        path = self._access.ticket(visitor_of(request), request.query_params["path"])
        return JSONResponse(f"{url}{path}")


async def told_visitor(request: Request) -> Visitor | Response:
    """The visitor whom the peer at the socket names. It is a process of the portal's user."""
    try:
        return Visitor.of_header(request.headers[HEADER])
    except (KeyError, ValueError, TypeError):
        return PlainTextResponse(f"Say who visits, in {HEADER}.\n", 400)


def tokens_of(access: HttpAccess) -> Tokens | None:
    """What finds out whose a token is; None if the portal requires none."""

    async def visitor(token: str) -> Visitor:
        bearer = await access.bearer(token.strip())
        if bearer is None:  # the shared token
            return Visitor(Decider("console", LOCAL.run_owner), may_decide=True)
        return Visitor(Decider(f"console {bearer.name}", bearer.run_owner, bearer), may_decide=True)

    return visitor if access.needs_token else None
