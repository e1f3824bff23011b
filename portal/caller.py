"""Who asks: what the portal knows of the client at the other end of a request."""

from dataclasses import dataclass
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request

_SESSION_HEADER = "mcp-session-id"


@dataclass(frozen=True, slots=True)
class Caller:
    """`share` tells callers apart who take turns; `owner` is whom a session belongs to, "" where nobody is known.

    The two differ because a guess is good enough for the first and not for the second: clients behind one address
    share their turns, but nobody gets or loses a session by an address.
    """

    share: str
    owner: str
    profile: str | None = None
    """The profile that its token binds it to."""
    tenant: str | None = None
    """Whom its token is said to belong to."""
    is_one_client: bool = True
    """Whether all of its requests come from one client, so that what belongs to one of them may be told to another."""


BEARER = "mcp_code_portal.bearer"
"""The key in a request's ASGI scope under which the gate leaves the Bearer of its token."""


@dataclass(frozen=True, slots=True)
class Bearer:
    """Whoever sent one of `server.tokens`; `name` tells the tokens apart."""

    name: str
    profile: str | None
    tenant: str | None = None


LOCAL = Caller("local", "local")
"""The one client of a process: over stdio, or the command line."""


def caller_of(context: ServerRequestContext[Any, Any]) -> Caller:
    """The caller of one request.

    Over HTTP that is the MCP session where there is one: its id is the portal's own, and the SDK has looked it up
    before. Without one, as since revision 2026-07-28, it is the client's address, which is nobody in particular.
    Bearers of one of `server.tokens` are told apart from all others, and bound to its profile.

    Source: MCP 2025-11-25, basic/transports#session-management; MCP 2026-07-28 has no sessions.
    """
    request = context.request
    if not isinstance(request, Request):
        return LOCAL
    caller = _client(context, request)
    bearer = request.scope.get(BEARER)
    if not isinstance(bearer, Bearer):
        return caller
    # No session of theirs is anybody's who came with another token, or with none.
    # However many sessions they open, they take turns as one.
    owner = f"{bearer.name} {caller.owner}"
    # Without a session nothing tells apart the clients that have one token.
    return Caller(bearer.name, owner, bearer.profile, bearer.tenant, caller.is_one_client)


def _client(context: ServerRequestContext[Any, Any], request: Request) -> Caller:
    # The header means nothing in the newer era, where whoever likes may send one.
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS and _SESSION_HEADER in request.headers:
        session = f"session {request.headers[_SESSION_HEADER]}"
        return Caller(session, session)
    return Caller(f"address {request.client.host if request.client else ''}", "", is_one_client=False)
