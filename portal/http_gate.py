"""Who may talk to the portal over HTTP: Host, Origin and bearer token, looked at before every route.

Rule 1: a page in somebody's browser must not reach a portal on their machine (DNS rebinding, cross-origin requests).
Rule 2: beyond loopback nothing is served without a token.
"""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from manifests.portal_manifest import BoundToken
from portal.address import is_loopback
from portal.caller import BEARER, Bearer
from portal.errors import OpenBindError

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Served without a token, because what starts a container has none; they tell names only to those who have it."""


@dataclass(frozen=True)
class GateRules:
    """`hosts` and `origins` are compared without their port; without `token` and `bearers` none is asked for.

    `bearers` are those of `server.tokens`, by their tokens.
    """

    hosts: frozenset[str]
    origins: frozenset[str]
    token: str | None
    bearers: Mapping[str, Bearer] = field(default_factory=dict, repr=False)

    def is_authorised(self, headers: Headers) -> bool:
        """Whether the request carries a token, or none is asked for."""
        if self.token is None and not self.bearers:
            return True
        return _is_same(_given(headers), self.token) or self.bearer(headers) is not None

    def bearer(self, headers: Headers) -> Bearer | None:
        """Whose of `server.tokens` the request carries. All are compared, so that the time tells nothing."""
        given = _given(headers)
        found = [bearer for token, bearer in self.bearers.items() if _is_same(given, token)]
        return found[0] if found else None


def gate_rules(
    host: str,
    *,
    token: str | None,
    allowed_hosts: Sequence[str],
    allowed_origins: Sequence[str],
    tokens: Sequence[BoundToken] = (),
) -> GateRules:
    """The rules for a portal that listens on `host`.

    Raises:
        OpenBindError: `host` is reachable from other machines and there is no token.
    """
    if not (token or tokens) and not is_loopback(host):
        raise OpenBindError(host)
    bracketed = f"[{host}]" if ":" in host else host
    hosts = {*LOOPBACK_NAMES, bracketed, *allowed_hosts}
    origins = {*(f"http://{name}" for name in LOOPBACK_NAMES), *allowed_origins}
    bearers = {
        each.token.get_secret_value(): Bearer(f"token {index}", each.profile, each.tenant)
        for index, each in enumerate(tokens, 1)
    }
    return GateRules(frozenset(map(str.lower, hosts)), frozenset(map(str.lower, origins)), token, bearers)


class HttpGate:
    """ASGI middleware. 421 for a Host that is not ours, 403 for an Origin, 401 without the token."""

    def __init__(self, app: ASGIApp, rules: GateRules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refusal := self._refusal(scope)):
            await refusal(scope, receive, send)
            return
        if scope["type"] == "websocket":
            return
        if scope["type"] == "http" and (bearer := self._rules.bearer(Headers(scope=scope))):
            # By "user" the SDK knows whose MCP session of an older client is; it need not know the token itself.
            user = AuthenticatedUser(AccessToken(token="", client_id=bearer.name, scopes=[]))
            scope = {**scope, BEARER: bearer, "user": user}
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not _matches(host, self._rules.hosts):
            return PlainTextResponse(
                f"Host {host[:100]!r} is not served here. Add it to server.allowed_hosts in portal.yaml.\n",
                421,
            )
        origin = headers.get("origin")
        if origin is not None and not _matches(origin, self._rules.origins):
            return PlainTextResponse(
                f"Origin {origin[:100]!r} may not call this. Add it to server.allowed_origins in portal.yaml.\n",
                403,
            )
        if scope["path"] in OPEN_PATHS or self._rules.is_authorised(headers):
            return None
        return PlainTextResponse(
            "A bearer token is needed: send `Authorization: Bearer <server.token>`.\n",
            401,
            {"WWW-Authenticate": 'Bearer realm="mcp-code-portal"'},
        )


def _given(headers: Headers) -> str | None:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else None


def _is_same(given: str | None, token: str | None) -> bool:
    return given is not None and token is not None and hmac.compare_digest(given.encode(), token.encode())


def _matches(value: str, allowed: frozenset[str]) -> bool:
    """Whether `value`, with or without its port, is in `allowed`."""
    value = value.lower()
    bare, colon, port = value.rpartition(":")
    return value in allowed or (bool(colon) and port.isdigit() and bare in allowed)
