"""Shows a portal at work: an MCP client, `mcp-code-portal serve`, and four real servers behind it."""

import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TextIO

import anyio
from demo_screen import Screen
from demo_servers import (
    HOME,
    ROOT,
    DemoError,
    demo_servers,
    fetch_tools,
    fetched_tools,
    make_database,
    make_repository,
    repository,
    write_manifest,
)
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import CallToolResult

LOG = HOME / "demo.log"
ANSWER_SECONDS = 120
HEARTBEAT_SECONDS = 3
QUERIES = ("show commit logs", "read rows from a database")
SCRIPT = f"""\
import asyncio, re
from collections import Counter
from datetime import date

log, rows, clock = await asyncio.gather(  # three servers in parallel
    git.git_log(repo_path={str(repository())!r}, max_count=500),
    shop.read_query(query="select weekday, sum(price) as sales from orders group by weekday"),
    time_.get_current_time(timezone="Asia/Tokyo"),
)
days = re.findall(r"^Date: (\\d{{4}}-\\d\\d-\\d\\d)", log, re.MULTILINE)
commits = Counter(date.fromisoformat(day).strftime("%A") for day in days)
week = [[row["weekday"], row["sales"], commits[row["weekday"]]] for row in rows]
await excel.create_workbook(path="week.xlsx", sheets=["Week"], overwrite=True)
await excel.write_range(path="week.xlsx", sheet="Week", at="A1", rows=[["day", "sales", "commits"], *week])
busiest, sales, made = max(week, key=lambda row: row[2])
{{"most commits on a": busiest, "commits": made, "its sales": sales, "it is in Tokyo": clock["datetime"]}}
"""


def run_demo(picture: Path | None) -> int:
    """Run it, and with `picture` also write what it shows there, as SVG."""
    started = time.monotonic()
    try:
        HOME.mkdir(exist_ok=True)
        with open(LOG, "w") as log:
            prepare(log)
        with open(LOG, "w") as log:
            screen = Screen(picture)
            anyio.run(show, screen, log)
        screen.save_picture()
    except (DemoError, MCPError, OSError, ExceptionGroup) as error:
        print(f"demo: {reason(error)}", file=sys.stderr)
        return 1
    print(f"{time.monotonic() - started:.0f} s. Look into .demo: portal.yaml, week.xlsx, demo.log")
    return 0


def prepare(log: TextIO) -> None:
    """Make what the servers work on, write the manifest, and fetch the servers that are not there yet."""
    make_repository()
    make_database()
    write_manifest()
    for name, server in demo_servers().items():
        if fetched_tools(name) is None:
            with heartbeat(f"fetching {server.packages[0]} from PyPI and asking it for its tools"):
                anyio.run(fetch_tools, name, log)


async def show(screen: Screen, log: TextIO) -> None:
    with heartbeat("starting the portal with four servers behind it, and running a script through it"):
        async with portal_client(log) as client:
            tools = (await client.list_tools()).tools
            found = [await call(client, "docs_search", query=query, limit=3) for query in QUERIES]
            run = await call(client, "execute_code", code=SCRIPT)
    screen.show_tools(tools)
    for query, answer in zip(QUERIES, found, strict=True):
        screen.show_search(query, answer)
    screen.show_run(SCRIPT, run)
    screen.show_tokens({name: fetched_tools(name) or [] for name in demo_servers()}, tools)


@asynccontextmanager
async def portal_client(log: TextIO) -> AsyncIterator[Client]:
    parameters = StdioServerParameters(
        command=str(ROOT / ".venv/bin/mcp-code-portal"), args=["serve", "--config", str(HOME / "portal.yaml")]
    )
    async with Client(stdio_client(parameters, errlog=log)) as client:
        yield client


async def call(client: Client, tool: str, **arguments: object) -> CallToolResult:
    """The answer of a tool, which must be no error."""
    with anyio.fail_after(ANSWER_SECONDS):
        result = await client.call_tool(tool, arguments)
    if result.is_error:
        raise DemoError(f"{tool} failed: {result.content}\n{log_tail()}")
    return result


@contextmanager
def heartbeat(title: str) -> Iterator[None]:
    """Say what is being done, and every few seconds that it still is."""
    started = time.monotonic()
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(HEARTBEAT_SECONDS):
            print(f"    ... {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)

    print(f"==> {title}", file=sys.stderr, flush=True)
    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def reason(error: BaseException) -> str:
    """The cause in one line, and what the portal said last when the cause does not say it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, DemoError):
        return str(error)
    return f"{type(error).__name__}: {error}\n{log_tail()}"


def log_tail() -> str:
    text = LOG.read_text(errors="replace") if LOG.exists() else ""
    return "\n".join(["", "last lines of .demo/demo.log:", *text.splitlines()[-20:]])
