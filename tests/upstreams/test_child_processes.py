"""Children of the portal get only their environment, and none outlives it; and of the last stderr of one, the line that
explains its end is reported.
"""

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from manifests.portal_manifest import StdioUpstream
from tests.upstreams.peers import DEADLINE_SECONDS, fleet_of, process_end, raw_server, text_of
from upstreams.health import Diagnostics
from upstreams.redaction import Redaction
from upstreams.transports.child_process import crash_reason, open_child
from upstreams.transports.stdio import open_stdio_wire


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


async def test_starts_that_are_given_up_leave_no_descriptor_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for seconds in (0, 0, 0.001, 0.01):
        with anyio.move_on_after(seconds):
            async with open_child(raw_server(), tmp_path, Redaction([])):
                await anyio.sleep_forever()
    await descriptors_are_closed(before)


async def test_child_whose_stderr_is_read_no_further_leaves_no_descriptor_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    flood = "import os\nwhile True: os.write(2, b'flood\\n' * 1000)"
    spec = StdioUpstream(command=sys.executable, args=["-c", flood])
    with anyio.CancelScope() as scope:
        async with open_child(spec, tmp_path, Redaction([])) as child:
            for _ in range(1000):
                if child.stderr.lines():
                    scope.cancel()
                await anyio.sleep(0.01)
    await descriptors_are_closed(before)


async def descriptors_are_closed(before: int) -> None:
    for _ in range(1000):  # asyncio closes them in later turns
        if len(os.listdir("/proc/self/fd")) <= before:
            return
        await anyio.sleep(0.01)
    pytest.fail("descriptors are left open")


async def test_a_child_is_not_read_on_while_its_messages_wait(tmp_path: Path) -> None:
    """A flood within the limits took 900 MB."""
    line = b'{"jsonrpc":"2.0","method":"notifications/flood","params":{"at":[' + b"[]," * 1300 + b"0]}}\n"
    script = f"import os, pathlib\nfor _ in range(500): os.write(1, {line!r})\npathlib.Path('done').touch()"
    spec = StdioUpstream(command=sys.executable, args=["-c", script])
    diagnostics = Diagnostics(Redaction([]))

    async def nothing(*_: Any) -> Any:
        """The upstream asks nothing."""

    async with (
        open_stdio_wire(spec, tmp_path, lambda value, text: value, diagnostics) as wire,
        anyio.create_task_group() as tasks,
    ):
        await anyio.sleep(1)
        assert not (tmp_path / "done").exists()
        tasks.start_soon(wire.run, nothing, nothing)
        with anyio.fail_after(DEADLINE_SECONDS):
            await wire.ending.ended.wait()
        assert (tmp_path / "done").exists()
        assert not wire.ending.cut_off_reason


NESTED = """\
  + Exception Group Traceback (most recent call last):
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | docker.errors.DockerException: Error while fetching server API version
    +------------------------------------
"""
PROBED = """\
WARNING:root:Failed to validate request: 2 validation errors for ClientRequest
PingRequest.method
  Input should be 'ping' [type=literal_error, input_value='server/discover', input_type=str]
    For further information visit https://errors.pydantic.dev/2.11/v/literal_error
"""
SETTINGS = """\
Traceback (most recent call last):
  File "/app/settings.py", line 9, in <module>
    settings = Settings()
pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings
api_key
  Field required [type=missing, input_value={}, input_type=dict]
    For further information visit https://errors.pydantic.dev/2.11/v/missing
"""
UNDICI = """\
Fatal error in main(): TypeError: fetch failed
    at node:internal/deps/undici/undici:13510:13 {
  [cause]: Error: connect ECONNREFUSED 127.0.0.1:9
      at TCPConnectWrap.afterConnect [as oncomplete] (node:net:1611:16) {
    errno: -111,
    code: 'ECONNREFUSED',
  }
}
"""
JAVA = """\
Exception in thread "main" java.lang.IllegalStateException: cannot start
\tat com.example.Main.main(Main.java:7)
Caused by: java.net.ConnectException: Connection refused
\tat java.base/sun.nio.ch.Net.pollConnect(Native Method)
\t... 12 more
"""
GO = "panic: no token\n\ngoroutine 1 [running]:\nmain.main()\n\t/app/main.go:10 +0x1d\nexit status 2\n"
RUST = """\
thread 'main' panicked at src/main.rs:10:5:
no token
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
"""
UV_TREE = """\
  × No solution found when resolving tool dependencies:
  ╰─▶ Because mcp-server-tyme was not found in the package registry and you
      require mcp-server-tyme, we can conclude that your requirements are
      unsatisfiable.
"""
NPM = """\
npm warn deprecated inflight@1.0.6: This module is not supported
npm error code E404
npm error 404 Not Found - GET https://registry.npmjs.org/mcp-nowhere - Not found
npm error 404
npm error 404  'mcp-nowhere@*' is not in this registry.
npm error A complete log of this run can be found in: /root/.npm/_logs/2026-debug-0.log
"""
NPM_NETWORK = """\
npm ERR! code ENOTFOUND
npm ERR! network request to https://registry.npmjs.org/x failed, reason: getaddrinfo ENOTFOUND registry.npmjs.org
npm ERR! network This is a problem related to network connectivity.
"""
RICH = """\
Usage: server [OPTIONS]
Try 'server --help' for help.
╭─ Error ──────────────────────────────────────────────────────────────────────╮
│ Missing option '--token'.                                                    │
╰──────────────────────────────────────────────────────────────────────────────╯
"""
BANNER = """\
bad configuration: no such profile
╭──────────────────────────────────────────────────╮
│                  FastMCP 3.2.0                   │
╰──────────────────────────────────────────────────╯
INFO:     Shutting down
"""


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        (NESTED, "docker.errors.DockerException: Error while fetching server API version"),
        (PROBED, ""),
        (PROBED + "no more file handles\n", "no more file handles"),
        (SETTINGS, "ValidationError: 1 validation error for Settings api_key Field required [type=missing"),
        ("  ^\n\nError: Cannot find module '/x.js'\n    at Module (node:1)\n\nBye\n", "Error: Cannot find module"),
        (UNDICI, "Error: connect ECONNREFUSED 127.0.0.1:9"),
        ('ZodError: [\n  {\n    "path": [\n      "API_KEY"\n    ]\n  }\n]\n', 'ZodError: [ "path": [ "API_KEY"'),
        (JAVA, "java.net.ConnectException: Connection refused"),
        (GO, "panic: no token"),
        (RUST, "thread 'main' panicked at src/main.rs:10:5: no token"),
        ("error: Failed to fetch: `https://a`\n  Caused by: failed to lookup a\nBye\n", "failed to lookup a"),
        (UV_TREE, "Because mcp-server-tyme was not found in the package registry and you require mcp-server-tyme"),
        ("  ├─▶ Failed to fetch: `https://a`\n  ╰─▶ HTTP status client error\n  help: it was\n", "HTTP status"),
        (NPM, "npm error 404 Not Found - GET https://registry.npmjs.org/mcp-nowhere - Not found"),
        (NPM_NETWORK, "npm ERR! network request to https://registry.npmjs.org/x failed, reason: getaddrinfo"),
        ("docker: Cannot connect to the Docker daemon.\nBye\n", "docker: Cannot connect"),
        (RICH, "Error Missing option '--token'."),
        (BANNER, "bad configuration: no such profile"),
        ("usage: x [-h]\nx: error: the following arguments are required: --token\n", "x: error: the following"),
        ("error: required option '--key <key>' not specified\n", "error: required option '--key <key>'"),
        ("Configuration error: no key\n\nUsage:\n  KEY - the key\n", "Configuration error: no key"),
        ("2026-11-28 12:00:00,1 - app - ERROR - cannot bind\nINFO: bye\n", "2026-11-28 12:00:00,1 - app - ERROR"),
        ('{"level":"error","msg":"no token"}\n{"level":"info","msg":"bye"}\n', '{"level":"error","msg":"no token"}'),
        ("/usr/bin/python3: No module named nowhere\n", "/usr/bin/python3: No module named nowhere"),
        ("Missing API key\n-----\n", "Missing API key"),
        ("Exception ignored in: <generator>\nTOKEN is not set\n", "TOKEN is not set"),
        ("----\n====\n", ""),
    ],
)  # fmt: skip
def test_reason_of_a_crash_is_the_line_that_says_why(stderr: str, reason: str) -> None:
    lines = [line for line in stderr.encode().split(b"\n") if line.strip()]
    told = crash_reason([Redaction(()).excerpt(line, 200) for line in lines])
    assert told.removeprefix("pydantic_core._pydantic_core.").startswith(reason)
    assert bool(told) == bool(reason)
