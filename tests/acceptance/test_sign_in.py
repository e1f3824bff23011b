"""A client of the SDK signs in at a third-party identity provider, as the portal tells it to."""

import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from tests.acceptance import real_servers
from tests.acceptance.model import Json, Model
from tests.acceptance.portal_process import http_portal, write_manifest
from tests.ports import closed_port

pytestmark = [pytest.mark.anyio, pytest.mark.servers]

SECRET = "secret-of-ann"


class Memory:
    """The client's token storage."""

    token: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.token

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.token = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


@contextmanager
def identity_provider(port: int, audience: str, token_format: str) -> Iterator[str]:
    """The issuer's URL."""
    with listening(real_servers.identity_provider(port, audience, token_format)):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def listening(command: list[str]) -> Iterator[str]:
    """The line that a provider prints once it listens."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert "listening" in said
            yield said
        finally:
            process.kill()


@asynccontextmanager
async def signed_in(
    url: str, issuer: str, mode: str, secret: str, memory: Memory | None = None, name: str = "ann"
) -> AsyncIterator[Model]:
    auth = ClientCredentialsOAuthProvider(url, memory or Memory(), name, secret, issuer=issuer)
    async with (
        httpx2.AsyncClient(auth=auth, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield Model(client)


@pytest.mark.parametrize("token_format", ["jwt", "opaque"])
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_client_finds_out_where_to_sign_in_and_does_what_its_profile_may(
    tmp_path: Path, token_format: str, mode: str
) -> None:
    port, portal_port = closed_port(), closed_port()
    url = f"http://127.0.0.1:{portal_port}/mcp"
    auth: dict[str, Json] = {"issuer": f"http://127.0.0.1:{port}", "audience": url, "scopes": ["mcp"]}
    if token_format == "opaque":
        auth["introspection"] = {"client_id": "ann", "client_secret": SECRET}
    manifest = write_manifest(
        tmp_path,
        {"time": real_servers.time()},
        server={"auth": auth},
        profiles={"admin": {}, "reader": {"tools": {"deny": ["*"]}}},
        tenants={"claim": "org", "profiles": {"groups:admins": "admin", "*": "reader"}},
        audit={"to": "audit.jsonl"},
    )
    with (
        identity_provider(port, url, token_format) as issuer,
        http_portal(manifest, f"127.0.0.1:{portal_port}"),
    ):
        assert httpx2.post(url, json={}).status_code == 401
        async with signed_in(url, issuer, mode, SECRET) as model:
            answer = await model.run("await time_.get_current_time(timezone='UTC')")
            assert answer["status"] == "ok", answer
        with pytest.raises(BaseExceptionGroup):
            async with signed_in(url, issuer, mode, "wrong"):
                pass
    told = (tmp_path / "audit.jsonl").read_text()
    assert "person ann" in told
    assert SECRET not in told


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_client_whose_token_lacks_a_scope_steps_up(tmp_path: Path, mode: str) -> None:
    port, portal_port = closed_port(), closed_port()
    url = f"http://127.0.0.1:{portal_port}/mcp"
    auth: dict[str, Json] = {"issuer": f"http://127.0.0.1:{port}", "audience": url, "scopes": ["mcp"]}
    tenants: dict[str, Json] = {"profiles": {"scope:mcp": "user"}}
    manifest = write_manifest(tmp_path, {}, server={"auth": auth}, profiles={"user": {}}, tenants=tenants)
    with identity_provider(port, url, "jwt") as issuer, http_portal(manifest, f"127.0.0.1:{portal_port}"):
        asked = {"grant_type": "client_credentials", "scope": "other", "resource": url}
        answer = httpx2.post(f"{issuer}/token", data=asked, auth=("ann", SECRET)).json()
        memory = Memory()
        memory.token = OAuthToken.model_validate(answer)
        lacks = httpx2.post(url, json={}, headers={"Authorization": f"Bearer {answer['access_token']}"})
        assert lacks.status_code == 403
        async with signed_in(url, issuer, mode, SECRET, memory) as model:
            assert await model.result_of("1 + 1") == 2
        assert memory.token is not None and memory.token.scope == "other mcp"
