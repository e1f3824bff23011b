"""A command that ends takes its upstreams with it: it waits for one that is slow to start, and says so."""

import os
from pathlib import Path

import pytest

from tests.portal.commands import COMMAND_SECONDS, Done, PortalCommand, started
from tests.portal.peers import raw, write_manifest


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """What the upstream `slow` waits for. It is given no time that the portal could wait for it."""
    os.mkfifo(go := tmp_path / "go")
    write_manifest(tmp_path, {"slow": raw(waits_for=str(go)), "store": raw()}, server={"start_seconds": 0.01})
    return go


def done_when_told(go: Path, *arguments: str) -> Done:
    """A command that goes on when it has said what it waits for."""
    process = started(*arguments, cwd=go.parent)
    try:
        assert process.stderr
        assert "waiting for slow (up to 60 s)\n" in process.stderr, "it did not wait"
        go.write_text("go")
        stdout, stderr = process.communicate(timeout=COMMAND_SECONDS)
    finally:
        process.kill()
    return Done(process.returncode, stdout, stderr)


def test_run_waits_for_what_may_be_another_clients_name_for_a_tool(go: Path) -> None:
    (go.parent / "script.py").write_text("await mcp__slow__echo(n=1)")
    done = done_when_told(go, "run", "script.py")
    assert "`mcp__slow__echo` means slow.echo" in done.stderr


@pytest.mark.parametrize(
    "reaching", ["(await slow.echo(n=1))['n']", "len((await portal.search('slow.echo'))['functions'])"]
)
def test_run_waits_for_what_its_script_may_reach(portal: PortalCommand, go: Path, reaching: str) -> None:
    script = go.parent / "script.py"
    script.write_text(reaching)
    assert done_when_told(go, "run", "script.py").stdout == "1\n"
    script.write_text("(await store.echo(n=2))['n']")
    done = portal("run", "script.py", cwd=go.parent)
    assert (done.stdout, "slow" in done.stderr) == ("2\n", False)
