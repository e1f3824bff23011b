"""Seven real servers behind one portal over stdio, and what they work on: always the same files, orders and commits.

`scripts/servers --all` installs them: filesystem, memory and everything of npm, git, time, sqlite and excel of PyPI.
"""

import os
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import yaml
from mcp import Client, StdioServerParameters

from tests.acceptance import real_servers
from tests.acceptance.scratch import make_repository

FILES = {
    "notes.md": "# Notes\n\nTODO: call Ada\nline 3\n",
    "sales.csv": "day,amount\nMonday,10\nTuesday,20\nFriday,300\n",
    "package.json": '{"name": "shop", "version": "1.2.0"}\n',
    **{f"reports/r{number}.log": f"ok {number}\nERROR {number}\n" for number in range(1, 7)},
}
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ITEMS = (("tea", 4.5), ("pot", 21.0), ("cup", 7.25))
ORDERS = [(DAYS[number % 7], *ITEMS[number * number % 11 % 3]) for number in range(90)]
WEEK = [["Weekday", "Orders"], *([day, sum(each[0] == day for each in ORDERS)] for day in DAYS)]

_WORKBOOK = """
await excel.create_workbook(path="{0}", sheets=["Week"])
await excel.write_range(path="{0}", sheet="Week", at="A1", rows={1})
"""


def lay_out(folder: Path) -> Path:
    """Write what the servers work on into `folder`, which is empty, and the manifest: its path.

    The portal learns no types: they differ by run.
    """
    for name, text in {**FILES, "long.log": _long_text()}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    make_repository(folder / "repository")
    with closing(sqlite3.connect(folder / "shop.db")) as database:
        database.execute("create table orders (id integer primary key, weekday text, item text, price real)")
        database.executemany("insert into orders (weekday, item, price) values (?, ?, ?)", ORDERS)
        database.commit()
    manifest = {
        "upstreams": {
            "filesystem": real_servers.filesystem(folder),
            "memory": real_servers.memory(folder / "memory.jsonl"),
            "everything": real_servers.everything(),
            "git": real_servers.git(folder / "repository"),
            "time": real_servers.time(),
            "sqlite": real_servers.sqlite(folder / "shop.db"),
            "excel": real_servers.excel(folder),
        },
        # Tools that declare themselves destructive have to be named.
        "capabilities": {
            "tools": {"allow": ["*", "excel.*", "filesystem.write_file", "memory.delete_entities"]}
        },
        "server": {"start_seconds": 60, "observe_results": False},
    }
    (folder / "portal.yaml").write_text(yaml.safe_dump(manifest))
    return folder / "portal.yaml"


@asynccontextmanager
async def real_portal(folder: Path) -> AsyncIterator[Client]:
    """A client of a portal whose servers work in `folder`, which is empty."""
    lay_out(folder)
    command = str(Path(sys.executable).with_name("mcp-code-portal"))
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(Path.home()),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    serve = StdioServerParameters(command=command, args=["serve"], cwd=folder, env=environment)
    async with Client(serve) as client:
        await client.call_tool("docs_search", {})  # until all servers have started
        made = await client.call_tool("execute_code", {"code": _WORKBOOK.format(folder / "week.xlsx", WEEK)})
        if made.is_error:
            raise RuntimeError(f"there is no workbook to work on: {made.content}")
        yield client


def placed(code: str, folder: Path) -> str:
    """A script for this folder."""
    return code.replace("$FILES", str(folder)).replace("$REPO", str(folder / "repository"))


def _long_text() -> str:
    """4,000 lines of 224,000 characters."""
    line = "2026-11-28T10:{:02} worker {} finished job {:05} in 1234 ms\n"
    return "".join(line.format(number % 60, number % 7, number) for number in range(4_000))
