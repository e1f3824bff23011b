"""A secret that was filled into a command's arguments or a URL is in nothing that the portal tells, though its upstream
repeats it wherever it can, and wherever what it says is cut.
"""

import json
from base64 import b64encode
from pathlib import Path
from urllib.parse import quote, unquote

import anyio.to_thread
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from manifests.json_value import Json
from tests.portal.commands import finished
from tests.portal.peers import opened, raw
from tests.upstreams.peers import http_peer

pytestmark = pytest.mark.anyio

CANARY = "canary/5b1e+zyx9 \u00fc"
SENT = [b64encode(pair.encode()).decode() for pair in (f"user:{CANARY}", f"{CANARY}:")]
PARTS = ("canary", "zyx9", quote(CANARY, safe=""), *SENT)
ENVIRON = {"KEY": CANARY, "QUOTED": quote(CANARY, safe="")}


def raising(call: str) -> str:
    return f"try:\n    await {call}\n    told = None\nexcept ToolError as e:\n    told = [e.code, str(e), e.hint]\ntold"


def assert_hidden(*told: Json) -> None:
    for each in told:
        text = each if isinstance(each, str) else json.dumps(each, ensure_ascii=False)
        assert "[hidden]" in text
        for part in PARTS:
            assert part not in text and part not in unquote(text)


@pytest.mark.parametrize("before", [0, 100, 190, 290])
async def test_argument_that_a_child_repeats_on_its_way_down(
    tmp_path: Path, before: int, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = raw(stderr="x" * before + " ${KEY}", exits_with=3)
    async with opened(tmp_path, {"up": entry}, environ=ENVIRON, audit={"to": "audit.jsonl"}) as portal:
        searched = await portal.search()
        error = await portal.error_of("await up.echo()")
        state, said = portal.portal.fleet["up"].state.detail, portal.portal.fleet["up"].stderr_tail()
    for text in (json.dumps(searched), json.dumps(error), state, capsys.readouterr().out):
        assert "exited with status 3" in text
        assert not any(part in text for part in PARTS)
    assert not any(part in said for part in PARTS)
    if before < 290:  # else the line was cut before it
        assert_hidden(said)
    assert "canary" not in (tmp_path / "audit.jsonl").read_text()


PLACES = {
    "path": "http://127.0.0.1:{port}/at/${{QUOTED}}/mcp",
    "query": "http://127.0.0.1:{port}/mcp?k=${{QUOTED}}",
    "user": "http://${{QUOTED}}@127.0.0.1:{port}/mcp",
    "password": "http://user:${{QUOTED}}@127.0.0.1:{port}/mcp",
}


async def tell_all(request: Request) -> Response:
    """Refuses everything, and says what it was asked."""
    said = f"{request.headers.get('authorization', '-')} {request.url} {unquote(str(request.url))}"
    return PlainTextResponse(said, status_code=400)


@pytest.mark.parametrize("place", PLACES)
async def test_url_that_a_server_repeats(tmp_path: Path, place: str) -> None:
    app = Starlette(routes=[Route("/{anything:path}", tell_all, methods=["GET", "POST", "DELETE"])])
    async with http_peer(app) as peer:
        entry: dict[str, Json] = {"url": PLACES[place].format(port=peer.port)}
        async with opened(tmp_path, {"up": entry}, environ=ENVIRON) as portal:
            searched = await portal.search()
            error = await portal.error_of("await up.echo()")
            state = portal.portal.fleet["up"].state.detail
        commands = [
            await anyio.to_thread.run_sync(
                lambda command=command: finished(*command, "--log-level", "debug", cwd=tmp_path, env=ENVIRON)
            )
            for command in (["check"], ["explain", "up.echo"])
        ]
    assert_hidden(searched["notices"], state, commands[0].stderr)
    for text in (json.dumps(error), *(done.stdout + done.stderr for done in commands)):
        assert not any(part in text for part in PARTS)
