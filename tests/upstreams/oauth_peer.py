"""An MCP server that wants tokens, and the authorization server that gives them: both the SDK's, on two origins.

The SDK's authorization server knows no client credentials; that one grant is added here, behind the SDK's own check of
clients. That check is made strict here: one method for each request (RFC 6749, 2.3).
"""

import base64
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias
from urllib.parse import parse_qs, unquote, urlencode

import anyio
import httpx2
import pytest
from mcp.server.auth.middleware.client_auth import AuthenticationError, ClientAuthenticator
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from manifests.json_value import Json
from manifests.portal_manifest import HttpUpstream
from tests.ports import closed_port
from tests.upstreams.peers import DEADLINE_SECONDS, WatchedFleet, fleet_of, http_peer
from upstreams.fleet import login_store
from upstreams.oauth.authorization_server import OAuthError
from upstreams.oauth.login import log_in
from upstreams.oauth.tokens import Login, OAuthTokens
from upstreams.redaction import Redaction

NAME = "tickets"
SCOPE = "tools"

RESOURCE_METADATA = "/.well-known/oauth-protected-resource/mcp"
SERVER_METADATA = "/.well-known/oauth-authorization-server"

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


class AuthorizationServer:
    """Gives tokens to whoever asks by the book; `grants` says what it was asked for, in order.

    A refresh token is good for one refresh, and using it twice ends all tokens of its client, as RFC 9700 wants it.
    """

    def __init__(self, port: int) -> None:
        self.issuer = f"http://127.0.0.1:{port}"
        self.port = port
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.grants: list[str] = []
        self.forms: list[dict[str, str]] = []
        self.expires_in: int | None = 3600
        self.answers: dict[str, Handler] = {}
        """Instead of its own, by path."""
        self.told_issuer: str | None = None
        """The issuer in its redirect (RFC 9207)."""
        self._codes: dict[str, AuthorizationCode] = {}
        self._access: dict[str, AccessToken] = {}
        self._refresh: dict[str, RefreshToken] = {}
        self._spent: set[str] = set()

    @property
    def app(self) -> ASGIApp:
        # There is more than a login may ask for.
        asks = ClientRegistrationOptions(enabled=True, valid_scopes=[SCOPE, "more"], default_scopes=[SCOPE])
        routes = create_auth_routes(
            self, AnyHttpUrl(self.issuer), None, asks, RevocationOptions(enabled=True)
        )
        forms = [route for route in routes if route.path in ("/token", "/revoke")]
        own = [Route(route.path, self._form(route), methods=["POST"]) for route in forms]
        return _overridden(Starlette(routes=[*own, *routes]), self.answers)

    @property
    def tokens(self) -> list[str]:
        """Every token that it ever gave."""
        return [*self._access, *self._refresh, *self._spent]

    def expire(self) -> None:
        """Access tokens no longer work; refresh tokens do."""
        self._access = {
            token: each.model_copy(update={"expires_at": 1}) for token, each in self._access.items()
        }

    def end(self) -> None:
        """No token works any longer."""
        self.expire()
        self._refresh.clear()

    def add_client(
        self, client_id: str, secret: str, method: str = "client_secret_basic", **more: Any
    ) -> None:
        facts = {"client_id": client_id, "client_secret": secret, "token_endpoint_auth_method": method}
        grants = ["client_credentials", "authorization_code", "refresh_token"]
        self.clients[client_id] = OAuthClientInformationFull(
            **facts, grant_types=grants, scope=f"{SCOPE} more", **more
        )

    def _form(self, route: Route) -> Any:
        async def handle(scope: Scope, receive: Receive, send: Send) -> None:
            request = Request(scope, receive)
            body = await request.body()
            form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
            basic = request.headers.get("authorization", "")
            if basic and {"client_id", "client_secret"} & form.keys():
                self.grants.append("two methods")
                await JSONResponse({"error": "invalid_request"}, status_code=400)(scope, receive, send)
                return
            if basic:  # the SDK wants it in the form
                named = base64.b64decode(basic.removeprefix("Basic ")).decode().partition(":")[0]
                body += b"&" + urlencode({"client_id": unquote(named), "client_secret": ""}).encode()
                headers = [pair for pair in scope["headers"] if pair[0] != b"content-length"]
                scope = {**scope, "headers": headers}
            again = replayed(body)
            if route.path == "/token":
                await self._token(route, scope, again, send, form)
            else:
                await route.app(scope, again, send)

        return _Asgi(handle)

    async def _token(
        self, route: Route, scope: Scope, receive: Receive, send: Send, form: dict[str, str]
    ) -> None:
        self.forms.append(form)
        self.grants.append(form.get("grant_type", ""))
        if form.get("grant_type") == "client_credentials":
            response = await self._client_credentials(Request(scope, receive), form)
            await response(scope, receive, send)
        else:
            await route.app(scope, receive, send)

    async def _client_credentials(self, request: Request, form: dict[str, str]) -> Response:
        try:
            client = await ClientAuthenticator(self).authenticate_request(request)
        except AuthenticationError:
            return JSONResponse({"error": "invalid_client"}, status_code=401)
        scopes = form.get("scope", SCOPE).split()
        token = self._given(client.client_id, scopes, form.get("resource"), with_refresh=False)
        return JSONResponse(token.model_dump(exclude_none=True))

    def _given(
        self, client_id: str, scopes: list[str], resource: str | None, *, with_refresh: bool = True
    ) -> OAuthToken:
        access, refresh = f"access-{secrets.token_hex(16)}", f"refresh-{secrets.token_hex(16)}"
        facts = {"client_id": client_id, "scopes": scopes, "resource": resource}
        # The SDK's server takes a token for expired one second at a time: here the test says when.
        self._access[access] = AccessToken(token=access, expires_at=None, **facts)
        given = OAuthToken(access_token=access, expires_in=self.expires_in, scope=" ".join(scopes))
        if with_refresh:
            self._refresh[refresh] = RefreshToken(token=refresh, **facts)
            given.refresh_token = refresh
        return given

    # The provider's methods for the SDK's routes.

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = f"code-{secrets.token_hex(20)}"
        asked = {**params.model_dump(exclude={"state", "scopes"}), "scopes": params.scopes or [SCOPE]}
        ends = time.time() + 60
        self._codes[code] = AuthorizationCode(code=code, client_id=client.client_id, expires_at=ends, **asked)
        told = {} if self.told_issuer is None else {"iss": self.told_issuer}
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state, **told)

    async def load_authorization_code(self, client: Any, authorization_code: str) -> AuthorizationCode | None:
        return self._codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self._codes[authorization_code.code]
        return self._given(client.client_id, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client: Any, refresh_token: str) -> RefreshToken | None:
        if refresh_token in self._spent:
            self.grants.append("reuse")
            self.end()
        return self._refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        if self._refresh.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant")
        self._spent.add(refresh_token.token)
        return self._given(client.client_id, scopes, refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self._access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.grants.append("revoked")
        self._access.pop(token.token, None)
        self._refresh.pop(token.token, None)

    async def verify_token(self, token: str) -> AccessToken | None:
        return self._access.get(token)  # whose end the SDK's server sees to


class ProtectedServer:
    """An MCP server behind `AuthorizationServer`; `requests` has the headers of all that it was sent."""

    def __init__(self, peer: Any, authorization: AuthorizationServer, port: int) -> None:
        self.origin = f"http://127.0.0.1:{port}"
        self.url = f"{self.origin}/mcp"
        self.port = port
        self.peer = peer
        self.authorization = authorization
        self.requests: list[dict[str, str]] = []
        self.answers: dict[str, Handler] = {}
        self.refused_tools: set[str] = set()
        """Tools whose calls are all answered with 401."""

    @property
    def app(self) -> ASGIApp:
        settings = AuthSettings(
            issuer_url=AnyHttpUrl(self.authorization.issuer),
            resource_server_url=AnyHttpUrl(self.url),
            required_scopes=[SCOPE],
            validate_token_resource=True,
        )
        inner = self.peer.server.streamable_http_app(auth=settings, token_verifier=self.authorization)
        overridden = _overridden(inner, self.answers)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                self.requests.append({key.decode(): value.decode() for key, value in scope["headers"]})
                if self.requests[-1].get("mcp-name") in self.refused_tools:
                    await Response(status_code=401)(scope, receive, send)
                    return
            await overridden(scope, receive, send)

        return app

    def spec(self, **oauth: Json) -> HttpUpstream:
        return HttpUpstream.model_validate({"url": self.url, "oauth": oauth})

    def client_spec(self, secret: str, **oauth: Json) -> HttpUpstream:
        """The client `portal` signs in by itself."""
        own = {"grant": "client_credentials", "client_id": "portal", "client_secret": secret}
        return self.spec(**{**own, "issuer": self.authorization.issuer, **oauth})


@asynccontextmanager
async def protected(peer: Any) -> AsyncIterator[ProtectedServer]:
    """Both servers, running."""
    authorization = AuthorizationServer(closed_port())
    server = ProtectedServer(peer, authorization, closed_port())
    async with http_peer(authorization.app, authorization.port), http_peer(server.app, server.port):
        yield server


async def browse(url: str) -> httpx2.Response:
    """Acts like a person with a browser who agrees to everything."""
    async with httpx2.AsyncClient(follow_redirects=True, timeout=DEADLINE_SECONDS) as browser:
        return await browser.get(url)


async def signed_in(spec: HttpUpstream, browser: Callable[[str], Awaitable[object]] = browse) -> Login:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            login = await log_in(spec, lambda issuer, url: tasks.start_soon(browser, url))
            tasks.cancel_scope.cancel()
    return login


async def refused(spec: HttpUpstream) -> OAuthError:
    """The error of a login that does not get as far as a browser, or not further."""
    with pytest.RaisesGroup(OAuthError) as caught:
        await signed_in(spec)
    [error] = caught.value.exceptions
    return error


async def logged_in(spec: HttpUpstream) -> Login:
    """Signed in, and the login kept for the upstream `NAME`."""
    login = await signed_in(spec)
    await login_store(NAME, spec).save(login)
    return login


@asynccontextmanager
async def signed_in_fleet(server: ProtectedServer) -> AsyncIterator[WatchedFleet]:
    """A fleet of the server alone, with a login."""
    spec = server.spec()
    await logged_in(spec)
    async with fleet_of(**{NAME: spec}) as fleet:
        yield fleet


@asynccontextmanager
async def tokens_of(spec: HttpUpstream) -> AsyncIterator[OAuthTokens]:
    """As in a portal that knows the upstream."""
    async with anyio.create_task_group() as tasks:
        yield OAuthTokens(NAME, spec, (), login_store(NAME, spec), Redaction(()), tasks.start_soon)
        tasks.cancel_scope.cancel()


async def headers_of(spec: HttpUpstream) -> dict[str, str]:
    """The headers of a request to the upstream."""
    async with tokens_of(spec) as kept:
        return await kept.headers()


async def echo(fleet: WatchedFleet, **arguments: int) -> object:
    return (await fleet[NAME].call("echo", arguments, seconds=DEADLINE_SECONDS)).structured


async def announce(host: AuthorizationServer | ProtectedServer, path: str, **changed: Json) -> None:
    """Let its metadata at the path say this from now on; without a field that is None."""
    async with httpx2.AsyncClient() as client:
        told = (await client.get(f"http://127.0.0.1:{host.port}{path}")).json()
    fields = {**told, **changed}
    host.answers[path] = saying({name: value for name, value in fields.items() if value is not None})


def saying(value: Json, status: int = 200) -> Handler:
    async def answer(request: Request) -> Response:
        return JSONResponse(value, status_code=status)

    return answer


class _Asgi:
    """Starlette takes an object for an ASGI app, and a function for one that answers requests."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def _overridden(app: ASGIApp, answers: dict[str, Handler]) -> ASGIApp:
    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        answer = answers.get(scope.get("path", ""))
        if answer is None:
            await app(scope, receive, send)
        else:
            await (await answer(Request(scope, receive)))(scope, receive, send)

    return handle


def replayed(body: bytes) -> Receive:
    """A message for an app, after a middleware has read it."""

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
