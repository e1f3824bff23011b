"""`mcp-code-portal status`: what the portals of this user do, which need a person, and which do not answer."""

import json
import os
import subprocess
import sys
from argparse import Namespace
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from mcp import Client, StdioServerParameters
from mcp_types import Implementation
from starlette.responses import PlainTextResponse

from manifests.loader import load_manifest
from portal.app.live import SeenClient, live, status_of
from portal.app.running import RunningPortal, announced, running_portals
from portal.cli import status
from portal.records.store.places import open_tables, place_of
from tests.portal.peers import DEADLINE_SECONDS, Peer, opened, write_manifest
from tests.portal.rows import asked, begun
from tests.warm_commands import warm_command
from upstreams.redaction import Redaction

pytestmark = pytest.mark.usefixtures("own_state")


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no portal that does not answer."""
    monkeypatch.setattr(status, "ANSWER_SECONDS", DEADLINE_SECONDS)


def waits(manifest: Path) -> str:
    """The short id of a run of the manifest's portal that waits for a person."""
    place = place_of(load_manifest(manifest, {}))
    assert isinstance(place, Path)
    place.parent.mkdir(parents=True, exist_ok=True)
    with closing(open_tables(place, None)) as file:
        return asked(file, begun(file)).run[4:12]


async def told(capsys: pytest.CaptureFixture[str], *, is_json: bool = True) -> tuple[int, Any]:
    """The exit status and what is printed."""
    capsys.readouterr()  # logs of a portal in this process
    code = await anyio.to_thread.run_sync(status.command, Namespace(json=is_json))
    out = capsys.readouterr().out
    return code, json.loads(out) if is_json else out


@pytest.mark.parametrize("trail", ["off", "calls"])
async def test_portal_tells_what_it_is_and_what_needs_a_person(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], trail: str
) -> None:
    own, seen = RunningPortal(os.getpid(), f"{tmp_path}/portal.yaml"), SeenClient(Redaction(()))
    upstreams = {"up": Peer(), "gone": {"command": "/bin/false"}}
    async with opened(tmp_path, upstreams, runs={"trail": trail}) as portal:
        await portal.portal.fleet.settled(DEADLINE_SECONDS)
        run = waits(tmp_path / "portal.yaml")
        with announced(own):
            async with live(own, partial(status_of, own, portal.portal, seen), PlainTextResponse()):
                code, (one,) = await told(capsys)
                text = (await told(capsys, is_json=False))[1]
    assert [*one] == ["pid", "manifest", "transport", "client", "needs_you", "upstreams", "last_day"]
    assert (code, one["pid"], one["transport"]) == (1, os.getpid(), "stdio")
    assert (one["last_day"] is None) == (trail == "off")
    assert [each["kind"] for each in one["needs_you"]] == ["approval", "down"]
    assert [each["status"] for each in one["upstreams"]] == ["ready", "down"]
    assert (
        "1 ready · 1 down" in text and f"mcp-code-portal ui {run}" in text and "without a portal" not in text
    )


async def test_portal_that_does_not_answer_is_told_as_down(capsys: pytest.CaptureFixture[str]) -> None:
    with announced(RunningPortal(os.getpid(), "/here/portal.yaml", "127.0.0.1", 80)):
        code, (one,) = await told(capsys)
    assert (code, one["manifest"], one["needs_you"][0]["kind"]) == (1, "/here/portal.yaml", "down")


async def test_runs_of_portals_that_ended_are_told_from_their_stores(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await told(capsys, is_json=False) == (0, "")
    run = waits(manifest := write_manifest(tmp_path, {}))
    with closing(open_tables(place_of(load_manifest(manifest, {})), None)) as tables:
        tables.put("manifest", "", "", b"/here/portal.yaml")
    code, text = await told(capsys, is_json=False)
    assert code == 1 and f"git.merge  run {run} call 1" in text and text.startswith("/here/portal.yaml  ")
    assert await told(capsys) == (1, [])


def test_command_imports_nothing_that_takes_long() -> None:
    heavy = ["structlog", "pydantic", "pydantic_core", "mcp", "yaml", "psycopg"]
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "portal", "status"], capture_output=True, text=True
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 0 and "portal.cli.status" in imported and imported.isdisjoint(heavy)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_portal_over_stdio_is_told_with_its_client_until_it_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    manifest, (command, *args) = write_manifest(tmp_path, {}), warm_command()
    args += ["serve", "--config", str(manifest)]
    env = {"XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]}  # clients pass on only what they name
    server = StdioServerParameters(command=command, args=args, cwd=tmp_path, env=env)
    info = Implementation(name="Claude\x1b[2J\u202e Desktop", version="1.2")
    async with Client(server, mode=mode, client_info=info) as client:
        await client.list_tools()
        code, (one,) = await told(capsys)
        os.kill(one["pid"], 9)
    assert (code, one["manifest"], one["client"]) == (0, str(manifest), "Claude[2J Desktop 1.2")
    assert running_portals() == []
    assert [*(tmp_path / "state").rglob("portals/*.json")] == [], "nor does its file lie there"
