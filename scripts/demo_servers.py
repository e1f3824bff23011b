"""The four real MCP servers of the demo, what they work on, and the manifest that names them."""

import json
import os
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import anyio
import yaml
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import Tool

from manifests.json_value import Json

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".demo"
DATABASE = HOME / "shop.db"
UVX = ROOT / ".venv/bin/uvx"
PYTHON = ROOT / ".venv/bin/python"
FETCH_SECONDS = 300


class DemoError(Exception):
    """Something the demo needs did not work; the text says what and how."""


@dataclass(frozen=True)
class DemoServer:
    """A server from PyPI, started by uvx in an environment of its own; the first of `packages` has the program."""

    packages: tuple[str, ...]
    program: str
    args: tuple[str, ...]
    env: dict[str, str]

    def upstream(self) -> dict[str, Json]:
        """The server as a manifest names it: from what was fetched before, so that it needs no network."""
        return {"command": str(UVX), "args": ["--offline", *self.uvx_args()], "env": dict(self.env)}

    def uvx_args(self) -> list[str]:
        first, *others = self.packages
        withs = [word for package in others for word in ("--with", package)]
        return ["--quiet", "--python", str(PYTHON), "--from", first, *withs, self.program, *self.args]


def repository() -> Path:
    """This repository, or a small one when the source came without its history."""
    return ROOT if (ROOT / ".git").exists() else HOME / "repository"


def demo_servers() -> dict[str, DemoServer]:
    # uv keeps its cache here, so that removing .demo removes everything.
    env = {"UV_CACHE_DIR": str(HOME / "uv-cache")}
    return {
        "time": DemoServer(("mcp-server-time==2026.10.19",), "mcp-server-time", (), env),
        "git": DemoServer(
            ("mcp-server-git==2026.10.19",), "mcp-server-git", ("--repository", str(repository())), env
        ),
        "shop": DemoServer(
            ("mcp-server-sqlite==2025.4.25", "mcp<2"), "mcp-server-sqlite", ("--db-path", str(DATABASE)), env
        ),
        "excel": DemoServer(
            ("excel-mcp-server==2.2.2",),
            "excel-mcp-server",
            ("stdio",),
            {**env, "EXCEL_FILES_PATH": str(HOME)},
        ),
    }


def write_manifest() -> Path:
    upstreams = {name: server.upstream() for name, server in demo_servers().items()}
    path = HOME / "portal.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "upstreams": upstreams,
                # They declare themselves destructive: a rule has to name them.
                "capabilities": {"tools": {"allow": ["*", "excel.create_workbook", "excel.write_range"]}},
                "server": {"start_seconds": 60},
            },
            sort_keys=False,
        )
    )
    return path


def fetched_tools(name: str) -> list[Tool] | None:
    """The tools that the server listed when it was fetched; None when it was not, or in another version."""
    path = HOME / f"{name}.json"
    if not path.exists():
        return None
    fetched = json.loads(path.read_text())
    if fetched["server"] != demo_servers()[name].upstream():
        return None
    return [Tool.model_validate(tool) for tool in fetched["tools"]]


async def fetch_tools(name: str, log: TextIO) -> None:
    """Have uv install the server from PyPI, ask it for its tools as any client would, and keep them."""
    server = demo_servers()[name]
    parameters = StdioServerParameters(
        command=str(UVX), args=server.uvx_args(), env={**os.environ, **server.env}
    )
    with anyio.fail_after(FETCH_SECONDS):
        async with Client(stdio_client(parameters, errlog=log)) as client:
            tools = (await client.list_tools()).tools
    listed = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
    (HOME / f"{name}.json").write_text(json.dumps({"server": server.upstream(), "tools": listed}))


def make_repository() -> None:
    """A repository with a commit for the git server, when the source came without one."""
    if not (repository() / ".git").exists():
        make_history(repository())


def make_history(folder: Path) -> None:
    """A repository with one commit, in which a git server can commit."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text("# Demo\n")
    _git(folder, "init", "--quiet")
    _git(folder, "config", "user.name", "Demo")
    _git(folder, "config", "user.email", "demo@example.invalid")
    _git(folder, "add", "README.md")
    _git(folder, "commit", "--quiet", "--message", "Begin")


def make_database() -> None:
    """A shop with some orders on each weekday, always the same."""
    DATABASE.unlink(missing_ok=True)
    days = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    items = (("tea", 4.5), ("pot", 21.0), ("cup", 7.25))
    orders = [(days[number % 7], *items[number * number % 11 % 3]) for number in range(90)]
    with closing(sqlite3.connect(DATABASE)) as database:
        database.execute("create table orders (id integer primary key, weekday text, item text, price real)")
        database.executemany("insert into orders (weekday, item, price) values (?, ?, ?)", orders)
        database.commit()


def _git(folder: Path, *args: str) -> None:
    done = subprocess.run(
        ["git", "-C", str(folder), *args],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise DemoError(f"git could not make a repository for the demo: {done.stderr.strip()}")
