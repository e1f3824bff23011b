"""People sign in at an upstream through the portal, with two third-party identity providers."""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from html import unescape
from pathlib import Path
from typing import Any

import anyio.to_thread
import httpx2
import jwt
import pytest
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.lowlevel import Server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool
from pydantic import AnyHttpUrl

from manifests.portal_manifest import HttpUpstream
from tests.acceptance import real_servers
from tests.acceptance.model import Model
from tests.acceptance.portal_process import http_portal, write_manifest
from tests.acceptance.test_sign_in import listening, signed_in
from tests.ports import closed_port
from tests.upstreams.oauth_peer import signed_in as logged_in
from tests.upstreams.peers import http_peer
from upstreams.fleet import login_store

pytestmark = [pytest.mark.servers, pytest.mark.usefixtures("own_state")]


class Person:
    """Someone with a browser, who fills in the forms of oidc-provider."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.browser = httpx2.AsyncClient(follow_redirects=True, timeout=60)

    async def open(self, url: str) -> httpx2.Response:
        """The page at the end of all forms."""
        page = await self.browser.get(url)
        while (form := re.search(r'<form[^>]*action="([^"]+)"', page.text)) is not None:
            prompt = re.search(r'name="prompt" value="(\w+)"', page.text)
            assert prompt is not None, page.text
            data = {"prompt": prompt[1], "login": self.name, "password": "x"}
            page = await self.browser.post(page.url.join(unescape(form[1])), data=data)
        return page


class Verifier:
    """Believes what the issuer signed for this audience."""

    def __init__(self, issuer: str, audience: str) -> None:
        self.keys = jwt.PyJWKClient(f"{issuer}/jwks")
        self.audience = audience

    async def verify_token(self, token: str) -> AccessToken | None:
        key = await anyio.to_thread.run_sync(self.keys.get_signing_key_from_jwt, token)
        claims = jwt.decode(token, key.key, algorithms=["RS256"], audience=self.audience)
        return AccessToken(token=token, client_id=claims["sub"], scopes=["mcp"])


async def list_tools(context: Any, params: Any) -> ListToolsResult:
    return ListToolsResult(tools=[Tool(name="whoami", input_schema={"type": "object"})])


async def whoami(context: Any, params: Any) -> CallToolResult:
    token = context.request.headers["authorization"].removeprefix("Bearer ")
    return CallToolResult(
        content=[TextContent(text=jwt.decode(token, options={"verify_signature": False})["sub"])]
    )


@contextmanager
def people_provider(port: int, audience: str, redirect_uri: str) -> Iterator[str]:
    with listening(real_servers.people_provider(port, audience, redirect_uri)):
        yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def upstream(issuer: str, port: int) -> AsyncIterator[HttpUpstream]:
    """An MCP server that takes tokens of the issuer, and knows whose they are."""
    url = f"http://127.0.0.1:{port}/mcp"
    settings = AuthSettings(
        issuer_url=AnyHttpUrl(issuer),
        resource_server_url=AnyHttpUrl(url),
        required_scopes=["mcp"],
        validate_token_resource=False,  # the verifier does
    )
    server: Server[Any] = Server("tickets", on_list_tools=list_tools, on_call_tool=whoami)
    app = server.streamable_http_app(auth=settings, token_verifier=Verifier(issuer, url))
    async with http_peer(app, port):
        yield HttpUpstream.model_validate({"url": url, "oauth": {}})


async def test_each_person_signs_in_once_and_is_known_to_the_upstream(tmp_path: Path) -> None:
    ports = [closed_port() for _ in range(4)]
    url, upstream_url = f"http://127.0.0.1:{ports[0]}/mcp", f"http://127.0.0.1:{ports[1]}/mcp"
    base = url.removesuffix("/mcp")
    with (
        people_provider(ports[2], url, f"{base}/oauth/sign-in/identity") as issuer,
        people_provider(ports[3], upstream_url, "https://unused.example/") as theirs,
    ):
        async with upstream(theirs, ports[1]) as spec:
            await login_store("tickets", spec).save(await logged_in(spec, Person("operator").open))
            manifest = write_manifest(
                tmp_path,
                {"tickets": {"url": upstream_url, "oauth": {"per": "caller"}}},
                server={
                    "auth": {"issuer": issuer, "audience": url, "scopes": ["mcp"], "client_id": "portal"}
                },
                runs={"store": "runs.sqlite", "key": "k" * 32},
            )
            with http_portal(manifest, f"127.0.0.1:{ports[0]}"):
                for name in ("ann", "bob"):
                    await once_signed_in(url, issuer, name)


async def once_signed_in(url: str, issuer: str, name: str) -> None:
    person, stranger = Person(name), Person("mallory")
    async with signed_in(url, issuer, "auto", f"secret-of-{name}", name=name) as model:
        link = await asked_to_sign_in(model)
        assert (await stranger.open(link)).status_code == 403
        await asked_to_sign_in(model)
        assert "You are signed in at tickets" in (await person.open(link)).text
        for _ in range(2):
            assert (await model.run("await tickets.whoami()"))["result"] == name


async def asked_to_sign_in(model: Model) -> str:
    error = (await model.run("await tickets.whoami()"))["error"]
    assert error["code"] == "sign_in_needed", error
    return str(error["message"].rpartition(" ")[2])
