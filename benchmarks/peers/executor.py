"""executor, from npm: `executor mcp`. Its upstreams lie in a database, filled over its HTTP interface beforehand."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp_types import CallToolResult

from benchmarks.measuring import free_port, wait_for_port
from benchmarks.peers.environments import node_environment
from benchmarks.peers.system import CACHE, About, CannotError, Launch, Scripts, Upstreams, text_of

VERSION = "1.5.9"
CALL = "tools.echo.org.default.echo({number: i})"
NUMBER = "data.structuredContent.number"


def value_of(result: CallToolResult) -> object:
    answer = result.structured_content or {}
    return answer["result"] if answer.get("status") == "completed" else text_of(result)


SCRIPTS = Scripts(
    tool="execute",
    by_task={
        "trivial": "return 1 + 1",
        "five_calls": f"const r = []; for (let i = 0; i < 5; i++) r.push((await {CALL}).{NUMBER}); return r",
        "five_calls_gathered": (
            f"return (await Promise.all([0, 1, 2, 3, 4].map(i => {CALL}))).map(x => x.{NUMBER})"
        ),
    },
    leave="globalThis.left = 1; return 1",
    look="return globalThis.left ?? 0",
    read=value_of,
)


class Executor:
    name = "executor"
    tasks = SCRIPTS

    def __init__(self) -> None:
        self._tools = 0

    def prepare(self, upstreams: Upstreams) -> Launch:
        executor = node_environment("executor", f"executor@{VERSION}") / "executor"
        home = CACHE / "executor" / "home"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        env = {"HOME": str(home), "EXECUTOR_DATA_DIR": str(home / "data")}
        with daemon(executor, home, env) as url, httpx2.Client(base_url=url, timeout=60) as http:
            for name, upstream in upstreams.mcp_servers().items():
                add(http, name, upstream)
            self._tools = sum(tool["address"].startswith("tools.") for tool in http.get("/api/tools").json())
        return Launch([str(executor), "mcp", "--scope", str(home)], env)

    def about(self) -> About:
        return About(
            version=VERSION,
            language="TypeScript",
            isolation="QuickJS in wasm, in the process that holds the upstreams",
            note="It starts a stdio upstream anew for each call.",
        )

    async def count_tools(self, client: Client) -> int:
        """As its HTTP interface said, when its database was filled."""
        return self._tools


@contextlib.contextmanager
def daemon(executor: Path, home: Path, env: dict[str, str]) -> Iterator[str]:
    """Its HTTP interface, on loopback, while its database is filled."""
    port = free_port()
    command = [str(executor), "daemon", "run", "--foreground", "--port", str(port), "--scope", str(home)]
    process = subprocess.Popen(
        command,
        env=dict(os.environ) | env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_for_port(port, seconds=60)
        yield f"http://127.0.0.1:{port}"
    except (TimeoutError, httpx2.HTTPError) as error:
        raise CannotError(f"its HTTP interface did not answer: {error}") from error
    finally:
        # npm's launcher and the program it launched.
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def add(http: httpx2.Client, name: str, upstream: dict[str, Any]) -> None:
    kind: dict[str, Any] = (
        {"transport": "remote", "endpoint": upstream["url"]}
        if "url" in upstream
        else {"transport": "stdio", **upstream}
    )
    http.post("/api/mcp/servers", json={"name": name, "slug": name, **kind}).raise_for_status()
    connection = {
        "owner": "org",
        "name": "default",
        "integration": name,
        "template": "none",
        "values": {},
    }
    http.post("/api/connections", json=connection).raise_for_status()
