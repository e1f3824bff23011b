"""Headers whose secrets come from a command are asked for anew when the upstream does not take them any more."""

import sys
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from manifests.json_value import Json
from tests.portal.peers import Opened, opened, states
from tests.upstreams.peers import http_peer
from tests.upstreams.raw_http_server import RawHttpServer

PRINT = (
    "import pathlib; p = pathlib.Path('runs'); p.write_text(p.read_text() + '.'); print(open('token').read())"
)


class Secrets:
    """A command that prints what is in a file, and how often it was run."""

    def __init__(self, folder: Path) -> None:
        self._token, self._runs = folder / "token", folder / "runs"
        self._runs.write_text("")
        (folder / "print.py").write_text(PRINT)
        self.entry: Json = {"Authorization": f"Bearer ${{command:{sys.executable} print.py}}"}

    def become(self, token: str) -> None:
        self._token.write_text(token)

    @property
    def runs(self) -> int:
        return len(self._runs.read_text())


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    secrets = Secrets(tmp_path)
    secrets.become("token-1")
    return secrets


def entry(port: int, secrets: Secrets) -> dict[str, Json]:
    return {"url": f"http://127.0.0.1:{port}/mcp", "headers": secrets.entry}


async def echo(portal: Opened) -> Json:
    answer = await portal.run("await gate.echo()")
    return answer["status"], states(answer)


async def test_call_that_was_refused_is_sent_once_more_with_the_new_one(
    tmp_path: Path, secrets: Secrets
) -> None:
    server = RawHttpServer()
    server.authorization = "Bearer token-1"
    async with http_peer(server.app) as peer, opened(tmp_path, {"gate": entry(peer.port, secrets)}) as portal:
        assert await echo(portal) == ("ok", [("gate.echo", "done")])
        secrets.become("token-2")
        server.authorization = "Bearer token-2"
        assert await echo(portal) == ("ok", [("gate.echo", "done")])
        assert (server.executed, server.sessions_opened, secrets.runs) == (2, 1, 2)


async def test_what_was_got_anew_is_hidden_like_the_first(tmp_path: Path, secrets: Secrets) -> None:
    """The upstream repeats whatever it does not take."""
    server = RawHttpServer()
    server.authorization = "Bearer token-1"

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        sent = dict(scope.get("headers", [])).get(b"authorization", b"").decode()
        if scope["type"] != "http" or sent == server.authorization:
            await server.app(scope, receive, send)
        else:
            await PlainTextResponse(f"not {sent}", status_code=401)(scope, receive, send)

    async with http_peer(app) as peer, opened(tmp_path, {"gate": entry(peer.port, secrets)}) as portal:
        await echo(portal)
        secrets.become("canary-of-tokens")
        server.authorization = "Bearer something else"
        answer = await portal.run("await gate.echo()")
        assert "hidden" in answer["error"]["message"]
        assert "canary" not in str(answer) + portal.portal.fleet["gate"].state.detail
