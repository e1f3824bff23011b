"""A portal whose manifest changes while clients work: by signal and by itself, over HTTP and over stdio."""

import fcntl
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.acceptance.model import Json, Model
from tests.acceptance.portal_process import (
    COMMAND,
    HttpPortal,
    http_model,
    http_portal,
    stdio_model,
    write_manifest,
)
from tests.warm_commands import warm_command

pytestmark = pytest.mark.anyio

TICKETS: dict[str, Json] = {
    "command": sys.executable,
    "args": [str(Path(__file__).parent / "peers/waiting_server.py"), "git_log"],
}
SECONDS = 60


async def until_listed(model: Model, *namespaces: str) -> None:
    """Search until these are the namespaces."""
    with anyio.fail_after(SECONDS):
        while [each["namespace"] for each in (await model.search())["namespaces"]] != [*namespaces]:
            pass


async def status(portal: HttpPortal, token: str) -> int:
    async with httpx2.AsyncClient(timeout=SECONDS) as http:
        answer = await http.post(portal.url, json={}, headers={"Authorization": f"Bearer {token}"})
    return answer.status_code


@pytest.mark.parametrize("is_watched", [True, False])
async def test_upstream_is_added_and_removed_while_clients_work(tmp_path: Path, is_watched: bool) -> None:
    settings = {"reload": "watch" if is_watched else "ask"}
    states: list[str] = []
    with http_portal(write_manifest(tmp_path, {"tickets": TICKETS}, server=settings)) as portal:
        is_over = False

        async def work() -> None:
            async with http_model(portal) as model:
                while not is_over:
                    states.append((await model.run("(await tickets.git_log(id=1))['id']"))["status"])

        async with http_model(portal) as model, anyio.create_task_group() as tasks:
            await until_listed(model, "tickets")
            for _ in range(3):
                tasks.start_soon(work)

            def change(**upstreams: dict[str, Json]) -> None:
                write_manifest(tmp_path, {"tickets": TICKETS, **upstreams}, server=settings)
                for _ in range(0 if is_watched else 100):
                    portal.process.send_signal(signal.SIGHUP)

            change(more=TICKETS)
            await until_listed(model, "more", "tickets")
            assert await model.result_of("(await more.git_log(id=1))['id']") == 1
            change()
            await until_listed(model, "tickets")
            is_over = True
    assert set(states) == {"ok"}


async def test_tokens_and_profiles_are_replaced(tmp_path: Path) -> None:
    server: dict[str, Json] = {"reload": "signal", "token": "the-former-token"}
    with http_portal(write_manifest(tmp_path, {"tickets": TICKETS}, server=server)) as portal:
        assert await status(portal, "the-former-token") != 401
        server |= {
            "token": "the-present-token",
            "tokens": [{"token": "a-readers-token", "profile": "reader"}],
        }
        reader = {"tools": {"deny": ["*"]}}
        write_manifest(tmp_path, {"tickets": TICKETS}, server=server, profiles={"reader": reader})
        portal.process.send_signal(signal.SIGHUP)
        with anyio.fail_after(SECONDS):
            while await status(portal, "the-present-token") == 401:
                pass
        assert await status(portal, "the-former-token") == 401
        script, told = "(await tickets.git_log(id=1))['id']", {}
        for token in ("the-present-token", "a-readers-token"):
            async with http_model(portal, token=token) as model:
                told[token] = (await model.run(script))["status"]
        assert told == {"the-present-token": "ok", "a-readers-token": "refused"}


async def test_over_stdio_a_changed_manifest_takes_effect(tmp_path: Path) -> None:
    server: dict[str, Json] = {"reload": "watch"}
    async with stdio_model(write_manifest(tmp_path, {}, server=server)) as model:
        assert await model.result_of("1 + 1") == 2
        write_manifest(tmp_path, {"tickets": TICKETS}, server=server)
        await until_listed(model, "tickets")
        assert await model.result_of("(await tickets.git_log(id=1))['id']") == 1


async def run_reload(manifest: Path) -> subprocess.CompletedProcess[bytes]:
    return await anyio.run_process(
        [*warm_command(), "reload", "--yes", "--config", str(manifest)], check=False
    )


async def test_over_stdio_a_change_waits_also_after_restarts_until_it_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a desktop client restarts the portal, and a script has written portal.yaml."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    environment, folder = {"XDG_STATE_HOME": str(tmp_path / "state")}, tmp_path / "of"
    folder.mkdir()
    manifest = write_manifest(folder, {"tickets": TICKETS})
    async with stdio_model(manifest, environment=environment) as model:
        await until_listed(model, "tickets")
        write_manifest(folder, {"evil": {"command": "touch", "args": ["started"]}})
    for _ in range(2):
        async with stdio_model(manifest, environment=environment) as model:
            await until_listed(model, "tickets")
            assert await model.result_of("(await tickets.git_log(id=1))['id']") == 1
            assert any("has not accepted" in each for each in (await model.search())["notices"])
    assert not await anyio.Path(folder / "started").exists()
    async with stdio_model(manifest, environment=environment) as model:
        write_manifest(folder, {"more": TICKETS, "tickets": TICKETS})
        done = await run_reload(manifest)
        assert (done.returncode, b"over stdio" in done.stdout, b"runs on it" in done.stdout) == (
            0,
            True,
            True,
        )
        await until_listed(model, "more", "tickets")
    assert b"no portal of this manifest runs" in (await run_reload(manifest)).stdout


@pytest.mark.parametrize("is_closed", [True, False])
def test_portal_ends_if_its_terminal_is_closed_or_its_shell_ends(tmp_path: Path, is_closed: bool) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [COMMAND, "serve", "--config", str(write_manifest(tmp_path, {})), "--http", "127.0.0.1:0"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    told = ""
    try:
        while not re.search("listening on http", told):
            told += os.read(ours, 4096).decode()
        os.close(ours) if is_closed else process.send_signal(signal.SIGHUP)
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.wait()
