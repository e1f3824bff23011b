"""Decides who may use the portal over HTTP: by host, origin, token and sign-in."""

import hmac
import ipaddress
import math
import time
from collections.abc import Callable, Collection, Set
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlsplit

import anyio
from mcp.server.auth.handlers.metadata import ProtectedResourceMetadataHandler
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.routes import build_resource_metadata_url, cors_middleware
from mcp.shared.auth import ProtectedResourceMetadata
from pydantic import AnyHttpUrl
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from manifests.portal_manifest import AuthSettings, PortalManifest
from portal.base.caller import BEARER, Bearer
from portal.base.errors import ASK_OPERATOR, OpenBindError, SignInError
from portal.calls.fetch import FROM_SCRIPT
from portal.identity.approvers import Approvers
from portal.identity.sign_in import SignIn
from portal.server.callers import decider_of_request


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")

OPEN_PATHS: Final = ("/healthz", "/readyz")
"""Served without a token and under any address, as health checks ask. Names are shown only with a token."""

_METADATA: Final = "/.well-known/oauth-protected-resource"
OPEN_BEGINNINGS: Final = ("/hooks/", "/.well-known/", "/mcp/.well-known/", "/oauth/sign-in/")
"""Paths with these prefixes need no token. A hook has its secret in the path. Metadata tells a client where to sign in,
or 404, which some clients need before they look elsewhere. A browser signs in at the identity provider instead."""

METRICS_PATH: Final = "/metrics"
"""Guarded by its own route: a tenant's token does not open it, because its metrics cover all tenants."""

CONSOLE_PATH: Final = "/ui"
"""Guarded by `portal.console.access`: browsers send no bearer tokens, but cookies."""


class HttpAccess:
    """Decides by one manifest who may call a portal that listens on `host`. Hosts and origins match with and without a
    port. After a reload, `former` passes on the verified tokens, unless tenants or claims change.

    Raises OpenBindError: other machines can reach `host`, and callers need no token.
    """

    def __init__(
        self,
        host: str,
        portal: PortalManifest,
        claims: Collection[str] = (),
        former: "HttpAccess | None" = None,
    ) -> None:
        settings, telemetry = portal.server, portal.telemetry
        self.needs_token = settings.knows_callers
        if not self.needs_token and not is_loopback(host):
            raise OpenBindError(host)
        self._auth, self._people = settings.auth, (portal.tenants, {*claims})
        self._sign_in: SignIn | None = None
        if former is not None and former._people == self._people:
            self._sign_in = former._sign_in
        elif self._auth is not None:
            self._sign_in = SignIn(self._auth, portal.tenants, claims)
        self._metrics_token = (telemetry and telemetry.metrics_token) or settings.token
        bracketed = f"[{host}]" if ":" in host else host
        own = [AnyHttpUrl(settings.auth.resource).host or ""] if settings.auth else []
        self._hosts = {each.lower() for each in (*LOOPBACK_NAMES, bracketed, *own, *settings.allowed_hosts)}
        local = (f"http://{name}" for name in LOOPBACK_NAMES)
        listed = {each.lower() for each in settings.allowed_origins}
        self._origins = {*local, *listed}
        # Without a token, any page that is open on this machine could use the portal, so only listed origins may.
        self._pages = self._origins if self.needs_token else listed
        self._bearers: dict[bytes, Bearer | None] = {}
        if settings.token:
            self._bearers[settings.token.get_secret_value().encode()] = None
        for index, each in enumerate(settings.tokens, 1):
            token = each.token.get_secret_value().encode()
            name = f"token {each.name or index}" + (f" of {each.tenant}" if each.tenant else "")
            bearer = Bearer.of(name, token, each.profile, each.tenant)
            self._bearers[token] = replace(bearer, entry=f"token:{each.name}" if each.name else "")

    async def caller(self, headers: Headers) -> Bearer | None:
        """Identify the caller. None for the shared `server.token`, or when no token is required. Raises SignInError."""
        return await self.bearer(_token(headers))

    async def bearer(self, token: str) -> Bearer | None:
        """Return the owner of a token, as `caller` does; "" is no token."""
        # All are compared, so that the time reveals nothing.
        found = [own for known, own in self._bearers.items() if hmac.compare_digest(token.encode(), known)]
        if found:
            return found[0]
        if self._sign_in is not None and token:
            return await self._sign_in.bearer(token)
        if self.needs_token:
            how = "sign in" if self._sign_in else "send `Authorization: Bearer <server.token>`"
            code = "invalid_token" if token else ""
            raise SignInError(401, code, f"a bearer token is required: {how}")
        return None

    def refusal(self, headers: Headers, path: str = "") -> Response | None:
        """421 for an unknown Host, 403 for an unknown Origin; None if both are allowed."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self.knows_host(host) and not (path in OPEN_PATHS and _is_address(host)):
            text = f"Host {host[:100]!r} is not allowed by server.allowed_hosts. {ASK_OPERATOR}\n"
            return PlainTextResponse(text, 421)
        if origin is not None and not _matches(origin, self._origins):
            text = f"Origin {origin[:100]!r} is not allowed by server.allowed_origins. {ASK_OPERATOR}\n"
            return PlainTextResponse(text, 403)
        return None

    def knows_host(self, host: str) -> bool:
        """Whether a request may name the portal so."""
        return _matches(host, self._hosts)

    def allows_page(self, origin: str) -> bool:
        """Whether a browser may let pages of this origin use `/mcp`."""
        return _matches(origin, self._pages)

    def metrics_refusal(self, headers: Headers) -> Response | None:
        """401 without the metrics token, which is `telemetry.metrics_token`, else `server.token`.

        With that token any Host is allowed: a scraper uses addresses, and a web page that guesses one lacks the token.
        """
        if self._metrics_token is None:
            if self.needs_token:
                return PlainTextResponse(f"There is no telemetry.metrics_token. {ASK_OPERATOR}\n", 403)
            return self.refusal(headers)
        expected = self._metrics_token.get_secret_value().encode()
        if hmac.compare_digest(_token(headers).encode(), expected):
            return None
        return self.challenge(SignInError(401, "", "the bearer token for metrics is required"))

    def challenge(self, error: SignInError) -> Response:
        """The response to a request whose token is missing or refused.

        Source: RFC 6750, 3; RFC 9728, 5.1; MCP 2026-07-28, basic/authorization.
        """
        values = {"realm": "mcp-code-portal"}
        if error.code:
            values |= {"error": error.code, "error_description": str(error).translate({34: "'", 92: None})}
        if self._auth is not None:
            values["resource_metadata"] = str(build_resource_metadata_url(AnyHttpUrl(self._auth.resource)))
            if self._auth.scopes:
                values["scope"] = " ".join(self._auth.scopes)
        challenge = "Bearer " + ", ".join(f'{name}="{value}"' for name, value in values.items())
        ascii_only = challenge.encode("ascii", "replace").decode()
        headers = {"Retry-After": "5"} if error.status == 503 else {"WWW-Authenticate": ascii_only}
        return PlainTextResponse(f"{error}.\n", error.status, headers)


def sign_in_routes(auth: AuthSettings | None) -> list[Route]:
    """Serve the protected resource metadata, which names the identity provider. Source: RFC 9728."""
    if auth is None:
        return []
    # Built from texts: a URL object would add a slash to an issuer without a path, and clients compare it exactly.
    told = {
        "resource": auth.resource,
        "authorization_servers": [auth.issuer],
        "resource_name": "mcp-code-portal",
    }
    if auth.scopes:
        told["scopes_supported"] = [*auth.scopes]
    handler = ProtectedResourceMetadataHandler(ProtectedResourceMetadata.model_validate(told))
    # At any path below: the resource's path may have escapes, and clients also look without it.
    path, methods = f"{_METADATA}{{resource:path}}", ["GET", "OPTIONS"]
    return [Route(path, cors_middleware(handler.handle, methods), methods=methods)]


@dataclass(frozen=True)
class HttpAccessMiddleware:
    """ASGI middleware that applies the HttpAccess of the moment to each request."""

    app: ASGIApp
    access: Callable[[], HttpAccess]
    approvers: Callable[[], Approvers] = Approvers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ends = math.inf
        if scope["type"] == "websocket":
            return
        if scope["type"] == "http":
            admitted = await self._admitted(scope)
            if isinstance(admitted, Response):
                await admitted(scope, receive, send)
                return
            scope, bearer = admitted, admitted.get(BEARER)
            is_listening = Headers(scope=scope).get("mcp-method") == "subscriptions/listen"
            # Streams end when the token expires, so that no one keeps listening. Running scripts may finish.
            if bearer is not None and (scope["method"] == "GET" or is_listening):
                ends = bearer.ends
        has_begun = False

        async def noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        with anyio.move_on_after(ends - time.time()) as open_stream:
            await self.app(scope, receive, noted)
        if not open_stream.cancelled_caught:
            return
        if has_begun:
            await send({"type": "http.response.body", "body": b""})
        else:
            over = SignInError(401, "invalid_token", "the token has expired")
            await self.access().challenge(over)(scope, receive, send)

    async def _admitted(self, scope: Scope) -> Scope | Response:
        """The scope of a request, with its bearer; or the response that refuses it."""
        headers, path, access = Headers(scope=scope), scope["path"], self.access()
        if FROM_SCRIPT in headers and path not in OPEN_PATHS:
            return PlainTextResponse("Scripts must not reach a portal.\n", 403)
        if path == METRICS_PATH or f"{path}/".startswith(f"{CONSOLE_PATH}/"):
            return scope
        if (refusal := access.refusal(headers, path)) is not None:
            return refusal
        if path in OPEN_PATHS or path.startswith(OPEN_BEGINNINGS):
            return scope
        try:
            bearer = await access.caller(headers)
        except SignInError as error:
            return access.challenge(error)
        if bearer is None:
            return {**scope, BEARER: None} if access.needs_token else scope
        # The SDK ties MCP sessions of older clients to "user". It does not need the token itself. Any token of the same
        # user may answer in a session, so a token that may decide gets its own sessions.
        scope = {**scope, BEARER: bearer}
        may_decide = self.approvers().include(decider_of_request(Request(scope), ""))
        whose = f"{bearer.run_owner} {may_decide}"
        return {**scope, "user": AuthenticatedUser(AccessToken(token="", client_id=whose, scopes=[]))}


class BrowserAccessMiddleware(CORSMiddleware):
    """CORS for `/mcp`, outside HttpAccessMiddleware: a preflight has no token, and pages have to read refusals."""

    def __init__(self, app: ASGIApp, access: Callable[[], HttpAccess]) -> None:
        told = ("Mcp-Session-Id", "WWW-Authenticate", "Retry-After")
        super().__init__(
            app, (), ("GET", "POST", "DELETE"), ("*",), allow_private_network=True, expose_headers=told
        )
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_browsers = scope.get("path") == "/mcp" and FROM_SCRIPT not in Headers(scope=scope)
        await (super().__call__ if is_browsers else self.app)(scope, receive, send)

    def is_allowed_origin(self, origin: str) -> bool:
        return self._access().allows_page(origin)

    def preflight_response(self, request_headers: Headers) -> Response:
        return self._access().refusal(request_headers) or super().preflight_response(request_headers)


def _token(headers: Headers) -> str:
    """The bearer token of a request; "" without one."""
    # Of two headers neither counts: a proxy in front may have checked the other one.
    values = headers.getlist("authorization")
    scheme, _, given = (values[0] if len(values) == 1 else "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


def _is_address(host: str) -> bool:
    """Whether a Host is an address or missing. A page whose name was rebound to this machine sends a name."""
    try:
        return not host or bool(ipaddress.ip_address(urlsplit(f"//{host}").hostname or ""))
    except ValueError:
        return False


def _matches(value: str, allowed: Set[str]) -> bool:
    value = value.lower()
    bare, _, port = value.rpartition(":")
    return value in allowed or (port.isdigit() and bare in allowed)
