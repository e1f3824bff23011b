"""Children of the portal get only their environment, and none outlives it."""

from pathlib import Path

import anyio
import pytest

from tests.upstreams.peers import DEADLINE_SECONDS, fleet_of, process_end, raw_server, text_of


async def test_child_gets_its_environment_and_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("PORTAL_SECRET", "not for children")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("LANG", raising=False)
    spec = raw_server(env={"TOKEN": "t0ken"}, cwd="data")
    async with fleet_of(tmp_path, one=spec) as fleet:
        seen = text_of(await fleet.call("environment"))
    assert sorted(seen["names"]) == ["HOME", "PATH", "TMPDIR", "TOKEN"]
    assert seen["folder"] == str(tmp_path / "data")
    # 0 to 2, and the one that lists them.
    assert seen["descriptors"] == [0, 1, 2, 3]


async def test_no_process_is_left_after_a_graceful_close(tmp_path: Path) -> None:
    """For a portal that is killed see tests/acceptance/test_orphans.py."""
    pids = tmp_path / "pids"
    specs = {
        "polite": raw_server(pid_file=str(pids)),
        "deaf": raw_server(pid_file=str(pids), ignores_eof=True, ignores_sigterm=True),
        "parent": raw_server(pid_file=str(pids), has_grandchild=True),
    }
    async with fleet_of(**specs):
        pass
    ended = [int(line) for line in pids.read_text().splitlines()]
    assert len(ended) == 4
    with anyio.fail_after(DEADLINE_SECONDS):
        for pid in ended:
            await process_end(pid)
