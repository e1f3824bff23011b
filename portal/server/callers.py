"""Identifies who sent a request, and who decides at its client."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request

from manifests.kernels import KernelName
from portal.base.caller import BEARER, LOCAL, WITHOUT_TOKEN, Bearer, Caller
from portal.base.plain_text import one_line
from portal.calls.channel import Context
from portal.identity.approvers import Decider
from upstreams.redaction import Redaction

_MAX_CLIENT_CHARACTERS = 60
_MAX_CLIENTS = 10_000


def caller_of(context: Context) -> Caller:
    """The caller of one request.

    Over HTTP it is identified by its MCP session, if it has one. The portal issued the session id, and the SDK has
    checked it. Without a session, as since revision 2026-07-28, it is identified by address, and its owner is unknown.
    The bearer of one of `server.tokens` is separate from all others and gets the token's profile.

    Source: MCP 2025-11-25, basic/transports#session-management; MCP 2026-07-28 has no sessions.
    """
    request = context.request
    if not isinstance(request, Request):
        return LOCAL
    session = None
    # Ignored since 2026-07-28, where the SDK does not check the header: any client could send one.
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS and MCP_SESSION_ID_HEADER in request.headers:
        name = f"session {request.headers[MCP_SESSION_ID_HEADER]}"
        session = Caller(name, name)
    return http_caller(request, session)


def http_caller(request: Request, session: Caller | None = None) -> Caller:
    """The caller of a request over HTTP. `session` is its MCP session, if it has one."""
    caller = session or Caller(
        f"address {request.client.host if request.client else ''}", "", is_one_client=False
    )
    bearer = request.scope.get(BEARER)
    if not isinstance(bearer, Bearer):
        return caller if BEARER in request.scope else replace(caller, run_owner=WITHOUT_TOKEN)
    # A session belongs to one token: other tokens cannot use it. All sessions of a token share one queue.
    owner = f"{bearer.run_owner} {caller.owner}"
    # Without an MCP session, clients with the same token cannot be distinguished.
    own = bearer.profile, bearer.tenant, caller.is_one_client, bearer.run_owner, bearer.claims
    return Caller(bearer.name, owner, *own)


@dataclass(frozen=True)
class Languages:
    """The kernel of the last script of each client, as far as clients can be told apart."""

    _last: dict[str, KernelName] = field(default_factory=dict)

    def note(self, caller: Caller, kernel: KernelName) -> None:
        self._last.pop(caller.owner, None)
        self._last[caller.owner] = kernel
        if len(self._last) > _MAX_CLIENTS:
            del self._last[next(iter(self._last))]

    def of(self, caller: Caller, switched_on: Sequence[KernelName]) -> KernelName:
        """The language that `docs_search` speaks with the caller, who may not have sent a script yet."""
        return self._last.get(caller.owner, switched_on[0]) if caller.owner else switched_on[0]


def client_of(context: Context, mask: Redaction) -> str:
    """The program that sent a request, as it names itself: name and version. It may claim anything.

    Source: MCP 2025-11-25, basic/lifecycle#initialization; since 2026-07-28 each request says so in its `_meta`.
    """
    if (given := context.session.client_params) is not None:
        info = given.client_info
        return _shown(f"{info.title or info.name} {info.version}", mask)
    return program_of(context.request, mask) if isinstance(context.request, Request) else ""


def program_of(request: Request, mask: Redaction) -> str:
    """The same for a request that is not MCP: the first product of its User-Agent, such as `curl 8.5.0`.

    Source: RFC 9110, 10.1.5.
    """
    return _shown(request.headers.get("user-agent", "").partition(" ")[0].replace("/", " ", 1), mask)


def _shown(program: str, mask: Redaction) -> str:
    return one_line(mask.start(program), _MAX_CLIENT_CHARACTERS)


def decider_of(context: Context) -> Decider:
    """The person at an MCP client. Over stdio there is only one."""
    if isinstance(context.request, Request):
        return decider_of_request(context.request, "client")
    return Decider("client", LOCAL.run_owner)


def decider_of_request(request: Request, door: str) -> Decider:
    """The sender of a request over HTTP, as a decider. `door` names the way in which it came."""
    bearer, owner = request.scope.get(BEARER), http_caller(request).run_owner
    if isinstance(bearer, Bearer):
        return Decider(f"{door} {bearer.name}", owner, bearer)
    return Decider(door, owner, is_known=BEARER in request.scope)
