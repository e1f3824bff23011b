"""`mcp-code-portal login` and `logout` as processes of their own, and what other commands say of a missing login."""

import json
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
import yaml
from starlette.requests import Request
from starlette.responses import Response

from manifests.json_value import Json
from tests.portal.commands import Done, ended, finished, started
from tests.portal.peers import DEADLINE_SECONDS, Opened, Peer, opened
from tests.upstreams.oauth_peer import ProtectedServer, browse, protected
from tests.upstreams.peers import closed_port

pytestmark = pytest.mark.anyio


@pytest.fixture
async def server() -> AsyncIterator[ProtectedServer]:
    async with protected(Peer()) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path, server: ProtectedServer, own_state: None) -> Path:
    upstreams: dict[str, Json] = {
        "tickets": {"url": server.url, "oauth": {}},
        "plain": {"url": f"{server.origin}/plain"},
        "own": {
            "url": server.url,
            "oauth": {
                "grant": "client_credentials",
                "client_id": "a",
                "client_secret": "b",
                "issuer": server.authorization.issuer,
            },
        },
    }
    (tmp_path / "state").mkdir()
    (tmp_path / "portal.yaml").write_text(yaml.safe_dump({"upstreams": upstreams}))
    return tmp_path


async def command(*arguments: str, cwd: Path) -> Done:
    return await anyio.to_thread.run_sync(lambda: finished(*arguments, cwd=cwd))


async def login(folder: Path) -> Done:
    process = started("login", "tickets", "--no-browser", cwd=folder)
    assert process.stdout is not None
    url = await anyio.to_thread.run_sync(process.stdout.readline)
    page = await browse(url.strip())
    assert page.is_success and "code-" not in page.text.replace("mcp-code-portal", "")
    return await anyio.to_thread.run_sync(ended, process)


def kept(folder: Path) -> list[Path]:
    return sorted((folder / "state/mcp-code-portal/logins").glob("*.json"))


async def test_login_keeps_tokens_for_their_owner_alone_and_logout_revokes_them(
    folder: Path, server: ProtectedServer
) -> None:
    done = await login(folder)
    assert done.returncode == 0, done.stderr
    (file,) = kept(folder)
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
    assert not any(token in done.stdout + done.stderr for token in server.authorization.tokens)

    done = await command("logout", "tickets", cwd=folder)
    assert (done.returncode, kept(folder)) == (0, []), done.stderr
    assert server.authorization.grants.count("revoked") == 2
    assert not any(token in done.stdout + done.stderr for token in server.authorization.tokens)


async def test_login_says_where_before_anybody_types_a_password(
    folder: Path, server: ProtectedServer
) -> None:
    process = started("login", "tickets", "--no-browser", cwd=folder)
    assert process.stdout is not None
    await anyio.to_thread.run_sync(process.stdout.readline)
    process.kill()
    done = await anyio.to_thread.run_sync(ended, process)
    assert f"at {server.authorization.issuer}" in done.stderr


async def test_logout_revokes_with_the_client_secret_of_today(folder: Path, server: ProtectedServer) -> None:
    port = closed_port()

    def write(secret: str) -> None:
        uri = f"http://127.0.0.1:{port}/callback"
        server.authorization.add_client("mine", secret, redirect_uris=[uri])
        settings = {"client_id": "mine", "client_secret": secret, "redirect_port": port}
        oauth = {**settings, "issuer": server.authorization.issuer}
        upstreams = {"tickets": {"url": server.url, "oauth": oauth}}
        (folder / "portal.yaml").write_text(yaml.safe_dump({"upstreams": upstreams}))

    write("old-secret")
    assert (await login(folder)).returncode == 0
    write("new-secret")
    done = await command("logout", "tickets", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert server.authorization.grants.count("revoked") == 2


async def test_signing_out_twice_is_no_error(folder: Path) -> None:
    assert (await command("logout", "tickets", cwd=folder)).returncode == 0


@pytest.mark.parametrize("name", ["ticket", "plain", "own"])
async def test_upstream_that_nobody_can_sign_in_to_is_told(folder: Path, name: str) -> None:
    for verb in ("login", "logout"):
        done = await command(verb, name, cwd=folder)
        assert (done.returncode, done.stdout) == (2, "")
        assert name in done.stderr


async def test_file_of_tokens_that_others_can_read_is_not_used(folder: Path, server: ProtectedServer) -> None:
    await login(folder)
    (file,) = kept(folder)
    os.chmod(file, 0o640)
    async with opened(folder / "state", {"tickets": {"url": server.url, "oauth": {}}}) as portal:
        await portal.portal.fleet.settled(DEADLINE_SECONDS)
        assert portal.portal.fleet["tickets"].state.status == "needs_login"
    assert (await command("logout", "tickets", cwd=folder)).returncode == 0
    assert kept(folder) == []


async def test_portal_says_everywhere_what_to_run(
    tmp_path: Path, server: ProtectedServer, folder: Path
) -> None:
    async with opened(tmp_path / "state", {"tickets": {"url": server.url, "oauth": {}}}) as portal:
        await _says_what_to_run(portal)
    done = await command("check", "--json", cwd=folder)
    assert done.returncode == 1
    findings = json.loads(done.stdout)
    assert [row["status"] for row in findings["upstreams"] if row["name"] == "tickets"] == ["needs_login"]
    assert any("waiting for a login: " in error for error in findings["errors"])
    assert any("mcp-code-portal login tickets" in error for error in findings["errors"])


async def _says_what_to_run(portal: Opened) -> None:
    search = await portal.search()
    assert [row["state"] for row in search["namespaces"]] == ["needs_login"]
    assert any("mcp-code-portal login tickets" in notice for notice in search["notices"])
    answer = await portal.run("await tickets.echo()")
    assert "mcp-code-portal login tickets" in json.dumps(answer)


async def test_script_in_the_middle_of_which_a_login_ends_is_told_the_command(
    folder: Path, server: ProtectedServer
) -> None:
    await login(folder)
    async with opened(folder / "state", {"tickets": {"url": server.url, "oauth": {}}}) as portal:
        assert await portal.result_of("await tickets.echo(a=1)") == {"a": 1}
        server.authorization.end()
        error = await portal.error_of("await tickets.echo(a=2)")
        assert error["code"] == "upstream_needs_login"
        assert "mcp-code-portal login tickets" in error["message"]
    assert server.peer.calls == [("echo", {"a": 1})]


async def test_login_that_fails_is_one_readable_error(folder: Path, server: ProtectedServer) -> None:
    async def broken(request: Request) -> Response:
        return Response(status_code=503)

    server.authorization.answers["/.well-known/oauth-authorization-server"] = broken
    done = await command("login", "tickets", "--no-browser", cwd=folder)
    assert (done.returncode, done.stdout, kept(folder)) == (1, "", [])
    assert "Traceback" not in done.stderr and "cannot describe itself" in done.stderr
