"""A portal for people, the identity provider where they sign in, and an upstream that knows each of them."""

import base64
import contextvars
import hashlib
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.provider import AuthorizationCode, AuthorizationParams, RefreshToken
from mcp.server.lowlevel import Server
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp_types import (
    CallToolResult,
    ListResourcesResult,
    ListToolsResult,
    ReadResourceResult,
    Resource,
    TextResourceContents,
)
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from manifests.json_value import Json
from manifests.loader import load_manifest
from portal.app.composition import open_portal
from portal.server.portal import Portal
from tests.one_sandbox import shared
from tests.portal.issuer import Issuer
from tests.portal.peers import Peer, http_app, structured, tool, write_manifest
from tests.ports import closed_port
from tests.upstreams.oauth_peer import AuthorizationServer, ProtectedServer, logged_in
from tests.upstreams.peers import http_peer

KEY = "the-key-of-the-store-of-runs"
_WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="operator")
"""The owner of the browser that asks the authorization server, by its cookie `who`."""


class IdentityProvider(Issuer):
    """Signs in the person that the browser's cookie `who` names, by default ann."""

    def __init__(self) -> None:
        super().__init__()
        self.codes: dict[str, tuple[str, str]] = {}
        self.claims: dict[str, dict[str, Json]] = {}
        """Further claims, by person."""
        self.audience = ""
        self.authorized: list[dict[str, str]] = []
        """The parameters of authorization requests."""

    def app(self) -> Starlette:
        async def metadata(request: Request) -> Response:
            ends = {f"{name}_endpoint": f"{self.url}/{name}" for name in ("authorization", "token")}
            kinds = {
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                "jwks_uri": f"{self.url}/jwks",
            }
            return JSONResponse({"issuer": self.url, **ends, **kinds})

        async def authorize(request: Request) -> Response:
            asked = request.query_params
            self.authorized.append(dict(asked))
            code = secrets.token_hex(16)
            self.codes[code] = request.cookies.get("who", "ann"), asked["code_challenge"]
            told = {"code": code, "state": asked["state"], "iss": self.url}
            return RedirectResponse(f"{asked['redirect_uri']}?{urlencode(told)}", 303)

        async def token(request: Request) -> Response:
            form = await request.form()
            who, challenge = self.codes.pop(str(form["code"]), ("", ""))
            digest = hashlib.sha256(str(form["code_verifier"]).encode()).digest()
            if base64.urlsafe_b64encode(digest).decode().rstrip("=") != challenge:
                return JSONResponse({"error": "invalid_grant"}, 400)
            return JSONResponse({"access_token": self.token_of(who), "token_type": "Bearer"})

        own = [
            Route("/.well-known/oauth-authorization-server", metadata),
            Route("/authorization", authorize),
            Route("/token", token, methods=["POST"]),
        ]
        return Starlette(routes=[*own, Mount("/", super().app())])

    def token_of(self, who: str) -> str:
        return self.token(**{"sub": who, "aud": self.audience, **self.claims.get(who, {})})


class PersonalServer(AuthorizationServer):
    """Knows whose its tokens are."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.people: dict[str, str] = {}
        """By code and by token."""

    @property
    def app(self) -> ASGIApp:
        inner = super().app

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                _WHO.set(Request(scope).cookies.get("who", "operator"))
            await inner(scope, receive, send)

        return app

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        url = await super().authorize(client, params)
        self.people[httpx2.URL(url).params["code"]] = _WHO.get()
        return url

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        token = await super().exchange_authorization_code(client, authorization_code)
        return self._note(token, self.people[authorization_code.code])

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        token = await super().exchange_refresh_token(client, refresh_token, scopes)
        return self._note(token, self.people[refresh_token.token])

    def _note(self, token: OAuthToken, who: str) -> OAuthToken:
        self.people[token.access_token] = who
        if token.refresh_token:
            self.people[token.refresh_token] = who
        return token


class Mirror(Peer):
    """Its one tool says whose token and which header a call had."""

    def __init__(self) -> None:
        super().__init__(tool("whoami", annotations={"readOnlyHint": True}), tool("write"))
        self.people: dict[str, str] = {}
        self.readers: set[str] = set()
        self.more: dict[str, Json] = {}
        """Also in its answers."""
        self.listed = 0
        self.is_reached, self.may_answer = anyio.Event(), anyio.Event()
        """`write` sets the first. It waits for the second, after `hold`."""
        self.may_answer.set()
        self.server: Server[Any] = Server(
            "mirror",
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_list_resources=self._list_resources,
            on_read_resource=self._read,
        )

    def hold(self) -> None:
        self.is_reached, self.may_answer = anyio.Event(), anyio.Event()

    def _reader(self, context: Any) -> str:
        token = context.request.headers.get("authorization", "").removeprefix("Bearer ")
        self.readers.add(self.people[token])
        return self.people[token]

    async def _list_resources(self, context: Any, params: Any) -> ListResourcesResult:
        return ListResourcesResult(resources=[Resource(name=f"of {self._reader(context)}", uri="who://me")])

    async def _read(self, context: Any, params: Any) -> ReadResourceResult:
        content = TextResourceContents(uri="who://me", text=self._reader(context))
        return ReadResourceResult(contents=[content])

    async def _list(self, context: Any, params: Any) -> ListToolsResult:
        self.listed += 1
        return await super()._list(context, params)

    async def _call(self, context: Any, params: Any) -> CallToolResult:
        headers = context.request.headers
        token = headers.get("authorization", "").removeprefix("Bearer ")
        self.calls.append((params.name, params.arguments or {}))
        if params.name == "write":
            self.is_reached.set()
            await self.may_answer.wait()
        told = {"who": self.people.get(token, ""), "user": headers.get("x-user"), "token": token}
        return structured({**told, **self.more})


@dataclass
class Company:
    """Everything that runs, and the browsers of its people."""

    portal: Portal
    url: str
    provider: IdentityProvider
    upstream: ProtectedServer
    folder: Path
    mirror: Mirror
    stack: AsyncExitStack
    browsers: dict[str, httpx2.AsyncClient] = field(default_factory=dict)

    @property
    def authorization(self) -> AuthorizationServer:
        return self.upstream.authorization

    async def client(self, who: str, mode: str = "auto", token: str = "", **options: Any) -> Client:
        headers = {"Authorization": f"Bearer {token or self.provider.token_of(who)}"}
        http = await self.stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=30))
        transport = streamable_http_client(f"{self.url}/mcp", http_client=http)
        return await self.stack.enter_async_context(Client(transport, mode=mode, **options))

    def browser(self, who: str) -> httpx2.AsyncClient:
        """This person's browser, which follows redirects."""
        if who not in self.browsers:
            self.browsers[who] = httpx2.AsyncClient(follow_redirects=True, timeout=30, cookies={"who": who})
            self.stack.push_async_callback(self.browsers[who].aclose)
        return self.browsers[who]


async def run(client: Client, code: str = "await tickets.whoami()", **more: Json) -> dict[str, Any]:
    return (await client.call_tool("execute_code", {"code": code, **more})).structured_content


def link_in(answer: dict[str, Any]) -> str:
    assert answer["error"]["code"] == "sign_in_needed", answer
    return str(answer["error"]["message"].rpartition(" ")[2])


@asynccontextmanager
async def company(
    folder: Path, *, headers: dict[str, str] | None = None, per: str | None = "caller", **sections: Any
) -> AsyncIterator[Company]:
    """A portal whose upstream `tickets` wants logins, and where the operator has signed in."""
    mirror, provider = Mirror(), IdentityProvider()
    authorization = PersonalServer(closed_port())
    upstream, port = ProtectedServer(mirror, authorization, closed_port()), closed_port()
    mirror.people = authorization.people
    url = f"http://127.0.0.1:{port}"
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(http_peer(provider.app()))
        provider.url, provider.audience = f"http://127.0.0.1:{served.port}", f"{url}/mcp"
        await stack.enter_async_context(http_peer(authorization.app, authorization.port))
        inner = upstream.app if per else mirror.server.streamable_http_app()
        await stack.enter_async_context(http_peer(inner, upstream.port))
        entry: dict[str, Json] = {"url": upstream.url, "headers": headers or {}}
        if per:
            await logged_in(upstream.spec())
            entry["oauth"] = {"per": per}
        server = {
            "auth": {
                "issuer": provider.url,
                "audience": f"{url}/mcp",
                "client_id": "portal",
                **sections.pop("auth", {}),
            },
            **sections.pop("server", {}),
        }
        runs = {"store": "runs.sqlite", "key": KEY, **sections.pop("runs", {})}
        path = write_manifest(folder, {"tickets": entry}, server=server, runs=runs, **sections)
        manifest = load_manifest(path, {})
        bound = manifest.portal.tenants.profiles.values() if manifest.portal.tenants else ()
        sandbox = await shared(manifest)
        portal = await stack.enter_async_context(
            open_portal(manifest, lambda line: None, bound=lambda manifest: bound, sandbox=sandbox)
        )
        await stack.enter_async_context(http_peer(http_app(portal), port))
        async with AsyncExitStack() as clients:
            yield Company(portal, url, provider, upstream, folder, mirror, clients)
