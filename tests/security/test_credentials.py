"""What a command gave for an upstream is in nothing that the portal tells, whatever the upstream does with it."""

import json
import shlex
import sys
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse, Response

from manifests.json_value import Json
from tests.portal.commands import PortalCommand, portal_command
from tests.portal.peers import opened, raw, raw_tools, write_manifest
from tests.upstreams.peers import http_peer
from tests.upstreams.raw_http_server import RawHttpServer

pytestmark = pytest.mark.anyio

CANARY = 'canary-"5b1e zyx9"-\u00fc'
"""It looks different in JSON and in a URL."""

SCRIPT = """
for call in (store.error(code=1, message=SECRET), store.crash()):
    try:
        await call
    except ToolError as error:
        print(error)
"""


def reference(text: str) -> str:
    return f"${{command:{sys.executable} -c {shlex.quote(f'print({text!a})')}}}"


def entry(env: Json, **behaviour: Json) -> dict[str, Json]:
    return {**raw(tools=raw_tools("error", "crash"), **behaviour), "env": env, "connect_seconds": 20}


@pytest.fixture
def portal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> PortalCommand:
    return portal_command(monkeypatch, capsys)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Upstreams that get the canary, and tell it wherever they can."""
    env: Json = {"KEY": f"x{reference(CANARY)}y"}
    said = f"token {CANARY} and {json.dumps(CANARY)}"
    write_manifest(
        tmp_path,
        {
            "store": entry(env, stderr=said, banner=f"token {CANARY}"),
            "broken": entry(env, stderr=said, exits_with=3),
            "other": entry({}, stderr=said, exits_with=3),
        },
        audit={"to": "audit.jsonl"},
        server={"token": reference("canary-of-the-portal")},
    )
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        "check",
        "check --json",
        "search",
        "search --json error",
        "stubs",
        "explain store.error",
        "run script.py",
        "run script.py --json",
        "lock",
    ],
)
def test_no_command_tells_it(portal: PortalCommand, folder: Path, arguments: str) -> None:
    script = SCRIPT.replace("SECRET", repr(f"no: {CANARY}"))
    # The script itself holds the canary here, so that the upstream repeats it in an error.
    (folder / "script.py").write_text(script)
    done = portal(*arguments.split(), "--log-level", "info", cwd=folder)
    told = done.stdout + done.stderr
    assert "hidden" in told or arguments in ("lock", "stubs", "explain store.error"), told
    kept = [path.read_text() for path in folder.iterdir() if path.suffix in (".jsonl", ".lock")]
    for text in (told, *kept):
        assert "canary" not in text
        assert "zyx9" not in text


async def test_no_answer_over_http_tells_it_and_the_upstream_gets_it(tmp_path: Path) -> None:
    server = RawHttpServer()
    server.authorization = "Bearer canary-0123456789"
    async with http_peer(server.app) as peer:
        headers: Json = {"Authorization": f"Bearer {reference('canary-0123456789')}"}
        entry: dict[str, Json] = {"url": f"http://127.0.0.1:{peer.port}/mcp", "headers": headers}
        async with opened(tmp_path, {"gate": entry}) as portal:
            assert (await portal.run("await gate.echo()"))["status"] == "ok"
            assert server.executed == 1
            answers: list[Response] = [
                PlainTextResponse(server.authorization, status_code=status)
                for status in (400, 403, 404, 418, 500, 503)
            ]
            for server.call_answer in answers:
                answer = await portal.run("await gate.echo()")
                assert "canary" not in json.dumps(answer)
