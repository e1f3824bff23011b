"""`mcp-code-portal login` and `logout`, and what the portal and `check` say of a missing login."""

import json
from argparse import Namespace
from pathlib import Path

import anyio
import pytest
import yaml

from manifests.json_value import Json
from manifests.loader import load_manifest
from portal.cli import check, login
from portal.cli.terminal import Terminal
from tests.portal.commands import Told
from tests.portal.peers import DEADLINE_SECONDS, opened
from tests.upstreams.oauth_peer import ProtectedServer, browse


@pytest.fixture
def folder(tmp_path: Path, server: ProtectedServer, own_state: None) -> Path:
    own = {"grant": "client_credentials", "client_id": "a", "client_secret": "b"}
    upstreams: dict[str, Json] = {
        "tickets": {"url": server.url, "oauth": {}},
        "plain": {"url": f"{server.origin}/plain"},
        "own": {"url": server.url, "oauth": {**own, "issuer": server.authorization.issuer}},
    }
    (tmp_path / "state").mkdir()
    (tmp_path / "portal.yaml").write_text(yaml.safe_dump({"upstreams": upstreams}))
    return tmp_path


async def open_url(told: Told) -> None:
    """Open the URL that is printed, as a person does."""
    page = await browse(await told.printed.receive())
    assert page.is_success and "code-" not in page.text.replace("mcp-code-portal", "")


async def sign(verb: str, folder: Path, name: str = "tickets") -> int:
    """The exit status of `login` or `logout`."""
    options = Namespace(upstream=name, browser=False, is_out=verb == "logout", person=None)
    terminal = Told()
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(open_url, terminal)
            status = await login.command(load_manifest(folder / "portal.yaml", {}), options, terminal)
            tasks.cancel_scope.cancel()
    return status


async def test_no_token_is_shown_and_a_login_that_ends_is_told(
    folder: Path, server: ProtectedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await sign("login", folder) == 0
    told = "".join(capsys.readouterr())
    assert f"To sign in to 'tickets' at {server.authorization.issuer}" in told
    async with opened(folder / "state", {"tickets": {"url": server.url, "oauth": {}}}) as portal:
        assert await portal.result_of("await tickets.echo(a=1)") == {"a": 1}
        server.authorization.end()
        error = await portal.error_of("await tickets.echo(a=2)")
        assert error["code"] == "upstream_needs_login" and "mcp-code-portal login tickets" in error["message"]
    assert [await sign("logout", folder) for _ in range(2)] == [0, 0], "signing out twice is no error"
    told += "".join(capsys.readouterr())
    assert not any(token in told for token in server.authorization.tokens)


async def test_login_that_others_can_read_is_not_used_and_can_be_deleted(
    folder: Path, server: ProtectedServer
) -> None:
    await sign("login", folder)
    [file] = (folder / "state/mcp-code-portal/logins").glob("*.json")
    file.chmod(0o640)
    async with opened(folder / "state", {"tickets": {"url": server.url, "oauth": {}}}) as portal:
        await portal.portal.fleet.settled(DEADLINE_SECONDS)
        assert portal.portal.fleet["tickets"].state.status == "needs_login"
    assert await sign("logout", folder) == 0 and not file.exists()


@pytest.mark.parametrize("name", ["ticket", "plain", "own"])
async def test_upstream_that_nobody_can_sign_in_to_is_told(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb in ("login", "logout"):
        assert await sign(verb, folder, name) == 2
        stdout, stderr = capsys.readouterr()
        assert stdout == "" and name in stderr


async def test_portal_says_everywhere_what_to_run(
    folder: Path, server: ProtectedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    to_run = "mcp-code-portal login tickets"
    upstreams: dict[str, Json] = {"tickets": {"url": server.url, "oauth": {}}}
    async with opened(folder / "state", upstreams) as portal:
        search = await portal.search()
        assert [row["state"] for row in search["namespaces"]] == ["needs_login"]
        assert any(to_run in notice for notice in search["notices"])
        assert to_run in json.dumps(await portal.run("await tickets.echo()"))
    (folder / "portal.yaml").write_text(yaml.safe_dump({"upstreams": upstreams}))
    options = Namespace(upstream="tickets", json=True, strict=False, profile=None)
    capsys.readouterr()
    assert await check.command(load_manifest(folder / "portal.yaml", {}), options, Terminal()) == 1
    out = capsys.readouterr().out
    findings = json.loads(out[out.index("{\n") :])  # behind the logs, which are not configured here
    assert [row["status"] for row in findings["upstreams"]] == ["needs_login"]
    [error] = findings["errors"]
    assert "waiting for a login: " in error and to_run in error
