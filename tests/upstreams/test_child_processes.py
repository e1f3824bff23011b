"""What children of the portal get, and that none of them outlives it."""

import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process

from manifests.portal_manifest import StdioUpstream
from tests.upstreams.peers import DEADLINE_SECONDS, fleet_of, process_end, raw_server, text_of
from upstreams.errors import UpstreamLostError

pytestmark = pytest.mark.anyio


async def test_child_gets_exactly_its_environment_and_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("PORTAL_SECRET", "not for children")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("LANG", raising=False)
    spec = raw_server(env={"TOKEN": "t0ken"}, cwd="data")
    async with fleet_of(tmp_path, server=spec) as fleet:
        seen = text_of(await fleet["server"].call("environment", {}, seconds=DEADLINE_SECONDS))
    assert sorted(seen["names"]) == ["HOME", "PATH", "TMPDIR", "TOKEN"]
    assert seen["folder"] == str(tmp_path / "data")
    # 0 to 2, and the one that lists them.
    assert seen["descriptors"] == [0, 1, 2, 3]


async def test_configured_secrets_are_in_no_message(tmp_path: Path) -> None:
    secret = "hunter2-hunter2"
    spec = raw_server(env={"TOKEN": secret}, banner=f"token is {secret}", stderr=f"token is {secret}")
    async with fleet_of(secrets=[secret], server=spec) as fleet:
        with pytest.raises(Exception, match="hidden") as caught:
            await fleet["server"].call(
                "error", {"code": 1, "message": f"bad {secret}"}, seconds=DEADLINE_SECONDS
            )
        with pytest.raises(UpstreamLostError) as lost:
            await fleet["server"].call("crash", {}, seconds=DEADLINE_SECONDS)
        told = [
            str(caught.value),
            str(lost.value),
            *fleet["server"].diagnostics,
            fleet["server"].state.detail,
        ]
    assert secret not in " ".join(told)


def recorded_pids(pid_file: Path) -> list[int]:
    return [int(line) for line in pid_file.read_text().splitlines()] if pid_file.exists() else []


async def test_no_process_is_left_after_a_graceful_close(tmp_path: Path) -> None:
    pid_files = [tmp_path / name for name in ("polite", "deaf", "parent")]
    specs = {
        "polite": raw_server(pid_file=str(pid_files[0])),
        "deaf": raw_server(pid_file=str(pid_files[1]), ignores_eof=True, ignores_sigterm=True),
        "parent": raw_server(pid_file=str(pid_files[2]), has_grandchild=True),
    }
    async with fleet_of(**specs):
        pass
    pids = [pid for pid_file in pid_files for pid in recorded_pids(pid_file)]
    assert len(pids) == 4
    await ended(pids)


PORTAL = """
import anyio, json, structlog, sys
from pathlib import Path
from manifests.portal_manifest import StdioUpstream
from tests.upstreams.peers import open_fleet

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))

async def main():
    specs = {f"u{n}": StdioUpstream.model_validate(spec) for n, spec in enumerate(json.loads(sys.argv[1]))}
    async with open_fleet(specs, Path.cwd(), lambda upstream: None) as fleet:
        await fleet.settled(30)
        print("ready", flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


@asynccontextmanager
async def portal_of(*specs: StdioUpstream) -> AsyncIterator[Process]:
    """A process of its own with these upstreams, which are ready."""
    command = [sys.executable, "-c", PORTAL, json.dumps([spec.model_dump() for spec in specs])]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with anyio.fail_after(DEADLINE_SECONDS * 2):
        async with await anyio.open_process(command, env=environment, stderr=None) as process:
            assert process.stdout
            assert b"ready" in await process.stdout.receive()
            yield process


def stubborn(pid_file: Path) -> StdioUpstream:
    return raw_server(pid_file=str(pid_file), has_grandchild=True, ignores_eof=True, ignores_sigterm=True)


async def ended(pids: list[int]) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        for pid in pids:
            await process_end(pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_no_process_is_left_however_the_portal_ends(number: signal.Signals, tmp_path: Path) -> None:
    pid_file = tmp_path / "pids"
    async with portal_of(stubborn(pid_file), raw_server(pid_file=str(pid_file))) as process:
        pids = recorded_pids(pid_file)
        process.send_signal(number)
        await process.wait()
    assert len(pids) == 3
    await ended(pids)
