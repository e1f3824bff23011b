"""Signing in to an upstream behind the authorization server of many public ones, which is strict with clients."""

import json
import re
import subprocess
from pathlib import Path

import httpx2
import pytest

from tests.acceptance import real_servers
from tests.acceptance.model import Json
from tests.acceptance.portal_process import COMMAND, write_manifest
from tests.acceptance.test_sign_in import listening
from tests.ports import closed_port

pytestmark = [pytest.mark.servers, pytest.mark.usefixtures("own_state")]


def command(manifest: Path, *arguments: str) -> str:
    """The output of a command that succeeds; whoever signs in opens the URL that it tells."""
    asked = [COMMAND, *arguments, "--config", str(manifest)]
    with subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        told = []
        for line in process.stdout:
            told.append(line)
            if found := re.search(r"http\S+code_challenge=\S+", line):
                assert "Signed in" in httpx2.get(found[0], follow_redirects=True).text
    assert process.returncode == 0, told
    return "".join(told)


@pytest.mark.parametrize(
    "client", ["public", pytest.param("confidential", marks=pytest.mark.release), "by hand"]
)
def test_login_runs_renews_and_ends(tmp_path: Path, client: str) -> None:
    port, redirect_port = closed_port(), closed_port()
    redirect_uri = f"http://localhost:{redirect_port}/oauth/done"
    with listening(real_servers.workers_provider(port, redirect_uri)) as said:
        _, client_id, client_secret = said.split()
        by_hand: dict[str, Json] = {
            "client_id": client_id,
            "client_secret": client_secret,
            "issuer": f"http://127.0.0.1:{port}",
            "redirect_host": "localhost",
            "redirect_port": redirect_port,
            "redirect_path": "/oauth/done",
        }
        confidential: dict[str, Json] = {"token_endpoint_auth_method": "client_secret_basic"}
        oauth = {"public": {}, "confidential": confidential, "by hand": by_hand}[client]
        upstream: dict[str, Json] = {"url": f"http://127.0.0.1:{port}/mcp", "oauth": oauth}
        manifest = write_manifest(tmp_path, {"tickets": upstream})
        script = tmp_path / "script.py"
        script.write_text("await tickets.whoami()")
        command(manifest, "login", "tickets", "--no-browser")
        (kept,) = tmp_path.rglob("logins/*.json")
        first = json.loads(kept.read_text())
        kept.write_text(json.dumps({**first, "expires_at": 1}))
        assert "ann" in command(manifest, "run", str(script))
        assert json.loads(kept.read_text())["access_token"] != first["access_token"]
        assert "deleted and revoked" in command(manifest, "logout", "tickets")
