"""The four real MCP servers of the demo, what they work on, and the manifest that names them."""

import os
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import yaml

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
    """A server from PyPI; `packages` are exact, the first one has the program."""

    packages: tuple[str, ...]
    program: str
    args: tuple[str, ...]
    env: dict[str, str]

    def upstream(self) -> dict[str, object]:
        """The server as a manifest names it: started as anyone would, but from what was fetched before."""
        return {
            "command": str(UVX),
            "args": ["--offline", *self.uvx_args(), *self.args],
            "env": self.env,
        }

    def uvx_args(self) -> list[str]:
        """How uvx runs it, in an environment of its own made with the demo's Python."""
        first, *others = self.packages
        withs = [word for package in others for word in ("--with", package)]
        return ["--quiet", "--python", str(PYTHON), "--from", first, *withs, self.program]


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
        yaml.safe_dump({"upstreams": upstreams, "server": {"start_seconds": 60}}, sort_keys=False)
    )
    return path


def fetch_servers(step: Callable[[str, Callable[[], None]], None]) -> None:
    """Have uv install each server, once; `step` shows a title while it runs what it is given."""
    for name, server in demo_servers().items():
        stamp = HOME / f"{name}.fetched"
        wanted = " ".join(server.uvx_args())
        if stamp.exists() and stamp.read_text() == wanted:
            continue
        step(f"fetching {server.packages[0]} from PyPI", lambda server=server: _fetch(server))
        stamp.write_text(wanted)


def _fetch(server: DemoServer) -> None:
    command = [str(UVX), *server.uvx_args(), "--help"]
    _run(command, f"{server.packages[0]} could not be fetched from PyPI", {**os.environ, **server.env})


def make_repository() -> None:
    """A repository with a commit for the git server, when the source came without one."""
    folder = repository()
    if (folder / ".git").exists():
        return
    git = ["git", "-C", str(folder), "-c", "user.name=Demo", "-c", "user.email=demo@example.invalid"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text("# Demo\n")
    for arguments in (["init", "--quiet"], ["add", "README.md"], ["commit", "--quiet", "--message", "Begin"]):
        _run([*git, *arguments], "git could not make a repository for the demo", dict(os.environ))


def make_database() -> None:
    """A shop with some orders on each weekday, always the same."""
    DATABASE.unlink(missing_ok=True)
    days = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    items = (("tea", 4.5), ("pot", 21.0), ("cup", 7.25))
    orders = [
        (days[number % 7], *items[number * number % 3])
        for number in range(60)
        if number % 7 != 6 or number > 40
    ]
    with closing(sqlite3.connect(DATABASE)) as database:
        database.execute("create table orders (id integer primary key, weekday text, item text, price real)")
        database.executemany("insert into orders (weekday, item, price) values (?, ?, ?)", orders)
        database.commit()


def _run(command: list[str], complaint: str, env: dict[str, str]) -> None:
    try:
        subprocess.run(
            command,
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=FETCH_SECONDS,
            env=env,
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", None) or error).strip()
        raise DemoError(f"{complaint}:\n{said[-1500:]}") from error
