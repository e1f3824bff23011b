"""`mcp-code-portal ui`: its address opens the console once, with the rights of whoever saw it printed."""

import math
import re
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import anyio
import httpx2
import pytest

from manifests.loader import load_manifest
from portal.cli import ui
from tests.portal.commands import PortalCommand, Told
from tests.portal.peers import DEADLINE_SECONDS

OWN = {"Sec-Fetch-Site": "same-origin"}


def stream(*lines: str, is_terminal: bool) -> SimpleNamespace:
    left = [*lines, ""]
    return SimpleNamespace(isatty=lambda: is_terminal, readline=lambda: left.pop(0))


@pytest.mark.usefixtures("own_state")
@pytest.mark.parametrize(
    ("is_terminal", "decides", "printed", "status"),
    [(True, False, 2, 404), (False, False, 1, 403), (False, True, 1, 404)],
)
async def test_the_address_opens_the_console_with_the_rights_of_a_terminal_only_if_it_is_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_terminal: bool,
    decides: bool,
    printed: int,
    status: int,
) -> None:
    (tmp_path / "portal.yaml").write_text("upstreams: {}\n")
    there = stream("\n", is_terminal=is_terminal)
    monkeypatch.setattr(ui, "sys", SimpleNamespace(stdin=there, stdout=stream(is_terminal=is_terminal)))
    monkeypatch.setattr(ui, "IDLE_MINUTES", math.inf)
    monkeypatch.setattr(ui, "_MINUTE_SECONDS", 0.01)
    terminal, manifest = Told(), load_manifest(tmp_path / "portal.yaml", {})
    options = Namespace(run="", port=0, browser=False, decide=decides)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ui.command, manifest, options, terminal)
            shown = [await terminal.printed.receive() for _ in range(printed)]
            assert all(re.match(r"http://ui-[0-9a-f]{8}\.localhost:", each) for each in shown)
            addresses = [re.sub(r"ui-\w+\.localhost", "127.0.0.1", each) for each in shown]
            async with httpx2.AsyncClient(follow_redirects=True) as http:
                assert (await http.get(addresses[-1])).status_code == 200
                assert (await http.get(addresses[-1])).status_code == 403
                answer = await http.post(httpx2.URL(addresses[-1]).join("/ui/@left/x"), headers=OWN)
                assert answer.status_code == status
            monkeypatch.setattr(ui, "IDLE_MINUTES", 0)  # it ends by itself


@pytest.mark.usefixtures("own_state")
async def test_the_ticket_is_no_argument_of_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []

    def browse(url: str) -> None:
        opened.append(page := Path(url.removeprefix("file://")))
        assert "?ticket=x" in page.read_text() and page.stat().st_mode & 0o777 == 0o600

    monkeypatch.setattr(ui, "open_browser", browse)
    monkeypatch.setattr(ui, "TICKET_SECONDS", 0)
    await ui._open("http://ui-1.localhost:7700/ui/enter?ticket=x", 7700)
    assert [each.exists() for each in opened] == [False]


@pytest.mark.usefixtures("own_state")
def test_an_unknown_run_is_told(portal: PortalCommand, tmp_path: Path) -> None:
    done = portal("ui", "run_1234", "--no-browser", "--port", "0", cwd=tmp_path)
    assert (done.returncode, done.stdout, "run_1234" in done.stderr) == (2, "", True)


def test_a_taken_port_is_told_and_else_the_next_is_used(portal: PortalCommand, tmp_path: Path) -> None:
    with ui._listener(0) as first:
        port = first.getsockname()[1]
        done = portal("ui", "--port", str(port), cwd=tmp_path)
        assert (done.returncode, str(port) in done.stderr) == (1, True)
    with ui._listener(None) as first, ui._listener(None) as second:
        assert first.getsockname()[1] < second.getsockname()[1]
