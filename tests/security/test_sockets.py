"""Nothing that a portal started reaches the socket of a portal, nor does another user. The twin: its user does."""

import asyncio
import json
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import nullcontext

import anyio
import anyio.to_thread
import httpx2
import pytest
from structlog.testing import capture_logs

from portal.app import live as live_module
from portal.app import peer
from portal.app.consoles import open_client
from portal.app.live import live
from portal.app.peer import is_descendant
from portal.app.running import RunningPortal, announced, outer_portals, running_portals
from portal.cli.status import command
from tests.portal.app.test_live import pages, status, ui
from upstreams.transports import child_supervisor

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("own_state")]

ASK = """
import os, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
if sys.argv[2] == "hides" and os.fork():
    os._exit(0)
try:
    connection.sendall(b"GET /status HTTP/1.1\\r\\nHost: portal\\r\\nConnection: close\\r\\n\\r\\n")
    print(connection.recv(12), flush=True)
except OSError:
    print("refused", flush=True)
"""
"""What the upstream of a script may do, or a program that it starts. One that hides has ended when it is asked for."""
DELETE = "import os, sys\nos.unlink(sys.argv[1].replace('sock', 'json'))"
SHELL = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"
DAEMON = """
import os, sys
reader, writer = os.pipe()
if (middle := os.fork()) == 0:
    os.setsid()
    middle = os.getpid()
    if os.fork() == 0:
        while os.getppid() == middle:
            pass
        exec(sys.argv.pop(1))
    os._exit(0)
os.waitpid(middle, 0)
os.close(writer)
os.read(reader, 1)
"""
"""It is nobody's child any longer when it asks. Its upstream goes on, because else the portal would end it."""
UPSTREAM = ("-I", "-S", child_supervisor.__file__, str(os.getpid()), "256", "")
"""How a portal starts an upstream."""


@pytest.fixture
def other_process() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.kill()


async def asked(portal: int, *arguments: str, act: str = "") -> list[str]:
    """What a Python process hears that this one started, about a portal with that pid: an answer, or a refusal."""
    own = RunningPortal(portal)
    with announced(own), capture_logs() as events:
        async with live(own, status, pages):
            command = [sys.executable, *arguments, own.socket.name, act]
            done = await anyio.run_process(command, cwd=own.socket.parent)
    return [done.stdout.decode().strip(), *(each["event"] for each in events)]


@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", ASK),
        ("-c", SHELL, ASK),
        pytest.param(
            (*UPSTREAM, sys.executable, "-c", DAEMON, ASK),
            marks=pytest.mark.skipif(sys.platform != "linux", reason="others adopt no orphans"),
        ),
    ],
)
async def test_what_a_portal_started_reaches_no_portal(
    arguments: tuple[str, ...], other_process: int
) -> None:
    assert await asked(os.getpid(), *arguments) == ["refused", "connection_refused"]
    assert await asked(other_process, *arguments) == ["b'HTTP/1.1 200'"]


async def test_connection_of_a_process_that_has_ended_is_refused() -> None:
    assert await asked(os.getpid(), "-c", ASK, act="hides") == ["refused", "connection_refused"]


async def test_connection_is_refused_if_the_kernel_does_not_say_whose_it_is(
    monkeypatch: pytest.MonkeyPatch, other_process: int
) -> None:
    monkeypatch.setattr(live_module, "peer_of", lambda connection: 1 // 0)
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    try:
        assert await asked(other_process, "-c", ASK) == ["refused"]
    finally:
        asyncio.get_running_loop().set_exception_handler(None)


async def test_own_upstreams_are_refused_though_they_deleted_the_file_of_the_portal() -> None:
    assert await asked(os.getpid(), "-c", f"{DELETE}{ASK}") == ["refused", "connection_refused"]


async def test_other_users_reach_none(monkeypatch: pytest.MonkeyPatch, other_process: int) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert await asked(other_process, "-c", ASK) == ["refused", "connection_refused"]


def test_process_that_ended_counts_as_one_that_a_portal_started(other_process: int) -> None:
    assert is_descendant(other_process, [os.getpid()])
    assert not is_descendant(os.getpid(), [other_process])
    assert is_descendant(2**22 + 1, [])  # above the largest pid of Linux


def test_ancestor_that_ends_while_it_is_looked_at_hides_no_portal(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = 2**22 + 1
    monkeypatch.setattr(peer, "parent_of", {5: gone, 6: 7, 7: 0}.get)
    assert is_descendant(5, [1])
    assert not is_descendant(6, [1]), "its ancestors are all there"


def test_ancestor_of_another_user_may_be_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(pid: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(peer, "parent_of", {6: 7}.get)
    monkeypatch.setattr(os, "kill", kill)
    assert not is_descendant(6, [1])


async def test_nothing_is_sent_to_a_process_that_is_not_the_announced_portal(
    other_process: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for own in (RunningPortal(os.getpid()), RunningPortal(other_process)):
        with announced(own):
            async with live(own, status, ui), open_client(own) as client:
                with nullcontext() if own.pid == os.getpid() else pytest.raises(httpx2.ConnectError):
                    assert (await client.get("/ui/")).is_success
                    continue
                assert await anyio.to_thread.run_sync(command, Namespace(json=True)) == 1
    [told] = json.loads(capsys.readouterr().out)
    assert [each["kind"] for each in told["needs_you"]] == ["down"]


def test_portal_that_a_portal_started_is_not_spoken_to(other_process: int) -> None:
    with announced(RunningPortal(os.getpid())), announced(RunningPortal(other_process)):
        assert [each.pid for each in outer_portals()] == [os.getpid()]
        assert len(running_portals()) == 2
