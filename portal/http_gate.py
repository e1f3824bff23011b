"""Who may talk to the portal over HTTP: Host, Origin and bearer token, looked at before every route.

Rule 1: a page in somebody's browser must not reach a portal on their machine (DNS rebinding, cross-origin requests).
Rule 2: beyond loopback nothing is served without a token.
"""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from portal.address import is_loopback
from portal.errors import OpenBindError

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Served without a token, because what starts a container has none; they tell names only to those who have it."""


@dataclass(frozen=True)
class GateRules:
    """`hosts` and `origins` are compared without their port; `token` None means that none is asked for."""

    hosts: frozenset[str]
    origins: frozenset[str]
    token: str | None

    def is_authorised(self, headers: Headers) -> bool:
        """Whether the request carries the token, or none is asked for."""
        if self.token is None:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self.token.encode())


def gate_rules(
    host: str, *, token: str | None, allowed_hosts: Sequence[str], allowed_origins: Sequence[str]
) -> GateRules:
    """The rules for a portal that listens on `host`.

    Raises:
        OpenBindError: `host` is reachable from other machines and there is no token.
    """
    if not token and not is_loopback(host):
        raise OpenBindError(host)
    bracketed = f"[{host}]" if ":" in host else host
    hosts = {*LOOPBACK_NAMES, bracketed, *allowed_hosts}
    origins = {*(f"http://{name}" for name in LOOPBACK_NAMES), *allowed_origins}
    return GateRules(frozenset(map(str.lower, hosts)), frozenset(map(str.lower, origins)), token)


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


def _matches(value: str, allowed: frozenset[str]) -> bool:
    """Whether `value`, with or without its port, is in `allowed`."""
    value = value.lower()
    bare, colon, port = value.rpartition(":")
    return value in allowed or (bool(colon) and port.isdigit() and bare in allowed)
