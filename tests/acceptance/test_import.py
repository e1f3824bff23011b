"""From the configurations of several clients to a script behind the portal, as a new user goes the way."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from tests.acceptance import real_servers
from tests.acceptance.model import Json, Model, text_of
from tests.acceptance.scratch import make_database
from tests.warm_commands import warm_command

pytestmark = pytest.mark.anyio

COMMAND_SECONDS = 120
FILES = {
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "cursor": ".cursor/mcp.json",
    "vscode-project": "work/.vscode/mcp.json",
    "codex": ".codex/config.toml",
}
CLIENTS = tuple(FILES)
CACHE = {"MCP_CODE_PORTAL_CACHE": str(Path.home() / ".cache/mcp-code-portal")}
"""The cache of other tests, because a new home would compile the sandbox again."""
SECRET = "ghp_abcdefghij0123456789"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Somebody's home: four clients, two servers that all know, one of a project, one that is off."""
    (tmp_path / "work").mkdir()
    make_database(tmp_path / "work/shop.db")
    time, shop = real_servers.time(), real_servers.sqlite(tmp_path / "work/shop.db")
    with_secret = {**time, "env": {"GITHUB_TOKEN": SECRET}}
    texts = {
        "claude-desktop": json.dumps({"mcpServers": {"time": time, "shop": shop}, "scale": 1}, indent=2),
        "cursor": "// mine\n" + json.dumps({"mcpServers": {"clock": time, "time": with_secret}}, indent="\t"),
        "vscode-project": json.dumps({"servers": {"local": relative(shop)}, "inputs": []}),
        "codex": "\n".join(
            [
                '[mcp_servers.off]\ncommand = "no-such-program"\nenabled = false\n',
                "[mcp_servers.shop]",
                f"command = {json.dumps(shop['command'])}",
                f"args = {json.dumps(shop['args'])}",
                "tool_timeout_sec = 5\n",
            ]
        ),
    }
    for client, text in texts.items():
        path = tmp_path / FILES[client]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def relative(server: dict[str, Json]) -> dict[str, Json]:
    """The same server, as a project says it."""
    return {**server, "type": "stdio", "args": ["--db-path", "${workspaceFolder}/shop.db"]}


def portal(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **CACHE}
    return subprocess.run(
        [*warm_command(), *arguments],
        cwd=home / "work",
        env=environ,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
    )


def contents(home: Path) -> dict[str, bytes]:
    return {client: (home / FILES[client]).read_bytes() for client in CLIENTS}


async def test_import_check_serve_and_back(home: Path) -> None:
    before = contents(home)
    importing = ("import", "--project", ".")
    done = portal(
        home, *importing, "--save-secrets", *(word for client in CLIENTS for word in ("--install", client))
    )
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr + (home / "work/portal.yaml").read_text()

    done = portal(home, "check", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = {each["name"]: each["status"] for each in json.loads(done.stdout)["upstreams"]}
    assert found == dict.fromkeys(("time", "shop", "time-cursor"), "ready")

    # What Cursor is configured with now, started as Cursor would.
    text = (home / FILES["cursor"]).read_text().removeprefix("// mine\n")
    (entry,) = json.loads(text)["mcpServers"].values()
    parameters = StdioServerParameters(
        command=entry["command"], args=entry["args"], env={"HOME": str(home), **CACHE}, cwd="/"
    )
    async with Client(parameters) as client:
        code = (
            "now = await time_.get_current_time(timezone='UTC')\n"
            "rows = await shop.read_query(query='select item from orders order by id')\n"
            "[now['timezone'], 'tea' in str(rows)]"
        )
        answer = text_of(await Model(client).call("execute_code", {"code": code}))
    assert json.loads(answer)["result"] == ["UTC", True]

    done = portal(home, *importing, *(word for client in CLIENTS for word in ("--undo", client)))
    assert done.returncode == 0, done.stderr
    assert contents(home) == before
