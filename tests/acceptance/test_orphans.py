"""However the portal ends, nothing it started outlives it (Linux; elsewhere the supervisor of a child polls)."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Set
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.acceptance import real_servers
from tests.acceptance.model import Model
from tests.acceptance.portal_process import (
    COMMAND,
    STOP_SECONDS,
    HttpPortal,
    http_model,
    http_portal,
    stdio_model,
    write_manifest,
)
from tests.acceptance.process_tree import ProcessTree, descendants

pytestmark = pytest.mark.anyio

STUBBORN_SERVER = str(Path(__file__).parent / "peers/stubborn_server.py")
RUN_SECONDS = 60
SCRIPT_ENDINGS = {"spinning": "while True: pass", "waiting": "await asyncio.sleep(1000)"}


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real server, one that refuses to end, and one behind a shell."""
    time = real_servers.time()
    upstreams = {
        "time": time,
        "stubborn": {"command": sys.executable, "args": [STUBBORN_SERVER]},
        "shell": {"command": "sh", "args": ["-c", f"'{time['command']}'; true"]},
    }
    return write_manifest(
        tmp_path_factory.mktemp("orphans"), upstreams, capabilities={"limits": {"cpu_seconds": RUN_SECONDS}}
    )


@pytest.fixture
def portal(manifest: Path) -> Iterator[HttpPortal]:
    with http_portal(manifest, is_warm=False) as portal:
        yield portal


SIGNALS = [signal.SIGKILL, signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.release)]


@pytest.mark.parametrize("sent", SIGNALS, ids=lambda sent: sent.name)
async def test_nothing_survives_a_signal(portal: HttpPortal, sent: signal.Signals) -> None:
    async with http_model(portal) as model:
        await use_everything(model)
    with tree_below(portal.process.pid) as tree:
        portal.process.send_signal(sent)
        assert tree.survivors() == []
        portal.process.wait(STOP_SECONDS)


@pytest.mark.parametrize("ending", SCRIPT_ENDINGS)
def test_nothing_survives_sigkill_in_the_middle_of_a_script(
    manifest: Path, tmp_path: Path, ending: str
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    script = tmp_path / "script.py"
    script.write_text(f"import asyncio\nawait stubborn.tell(fifo={str(fifo)!r})\n{SCRIPT_ENDINGS[ending]}\n")
    command = [COMMAND, "run", "--config", str(manifest), str(script)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        wait_for_writer(fifo)
        with tree_below(process.pid) as tree:
            process.kill()
            assert tree.survivors() == []
    finally:
        process.kill()
        process.wait(STOP_SECONDS)


async def test_nothing_survives_a_client_that_leaves(manifest: Path) -> None:
    others = frozenset(descendants(os.getpid()))
    with ExitStack() as later:
        async with stdio_model(manifest, is_warm=False) as model:
            await use_everything(model)
            tree = later.enter_context(tree_below(os.getpid(), others))
        assert tree.survivors() == []


async def use_everything(model: Model) -> None:
    """Have every server started and a worker used."""
    states = {row["upstream"]: row["state"] for row in (await model.search())["namespaces"]}
    assert states == dict.fromkeys(("time", "stubborn", "shell"), "ready")
    assert await model.result_of("1 + 1") == 2


def wait_for_writer(fifo: Path) -> None:
    """Return once the FIFO was written to."""
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        ready, _, _ = select.select([reader], [], [], RUN_SECONDS)
        assert ready, "the script did not begin in time"
    finally:
        os.close(reader)


@contextmanager
def tree_below(pid: int, others: Set[int] = frozenset()) -> Iterator[ProcessTree]:
    """The tree, which must hold at least the three servers and a worker."""
    tree = ProcessTree(pid, others)
    assert len(tree.handles) >= 4, tree.handles
    try:
        yield tree
    finally:
        tree.close()
