"""A script that uses nothing of the library begins as it is parsed, and has no effect before it is executed."""

import anyio.lowlevel
import pytest

from manifests.grants import Limits
from sandbox_runtime.frames import NOTHING_TO_CHECK, ToPortal, frame
from sandbox_runtime.recording import Recording
from sandbox_runtime.replay import replay
from sandbox_runtime.sandbox import Sandbox, Workers
from tests.sandbox_runtime.running import EchoPort, where
from tests.sandbox_runtime.test_calls import Heard
from tests.sandbox_runtime.test_channel_abuse import FINISHED, TakenOver

pytestmark = pytest.mark.anyio

NOTHING = frame(ToPortal.PREPARED, NOTHING_TO_CHECK, b'"unguarded_lines": []}')
SCRIPT = "print(1)\nportal.emit({'type': 'text', 'text': 'a'})\nawait portal.sleep(0)\n3"
CALL = frame(ToPortal.CALLS, b"1 git.git_log {}")


@pytest.mark.parametrize(("may_begin", "calls"), [(True, 1), (False, 0)])
async def test_calls_are_read_once_the_script_is_executed_if_it_might_begin(
    may_begin: bool, calls: int
) -> None:
    workers, port = Workers(TakenOver(NOTHING + CALL + FINISHED, b""), 1, 1, print), Heard()
    await workers.open()
    try:
        async with Sandbox(workers, "a" * 64).run(Limits(), where) as run:
            assert (await run.prepare("1", ("git",), may_begin=may_begin)).error is None
            for _ in range(100):
                await anyio.lowlevel.checkpoint()
            assert port.opened == []
            result = await run.execute({}, port, port)
            code = result.error and result.error.code
            assert (len(port.opened), code) == (calls, None if may_begin else "worker_lost")
    finally:
        await workers.close()


@pytest.mark.parametrize(
    ("script", "may_begin", "has_begun"),
    [
        ("while True: pass", True, True),
        ("while True: pass", False, False),
        ("while True: await git.git_log()", True, False),
        ("while True: git_log()", True, False),
    ],
)
async def test_script_that_began_and_is_given_up_ends_with_its_worker(
    sandbox: Sandbox, script: str, may_begin: bool, has_begun: bool
) -> None:
    async with sandbox.run(Limits(), where) as run:
        await run.prepare(script, ("git",), may_begin=may_begin)
        worker = run.worker
    assert worker is not None
    assert worker.is_alive is not has_begun


async def test_session_outlives_a_script_that_might_have_begun(sandbox: Sandbox) -> None:
    session = await sandbox.open_session()
    async with sandbox.run(Limits(), where, session) as run:
        await run.prepare("while True: pass", (), may_begin=True)
    assert session.alive
    async with sandbox.run(Limits(), where, session) as run:
        await run.prepare("1 + 1", (), may_begin=True)
        assert (await run.execute({}, EchoPort())).value == 2
    session.close()


async def test_early_script_has_the_result_the_output_and_the_record_of_a_late_one(sandbox: Sandbox) -> None:
    kinds = []
    for may_begin in (True, False):
        recording = Recording()
        async with sandbox.run(Limits(), where, recording=recording) as run:
            await run.prepare(SCRIPT, ("git",), may_begin=may_begin)
            result = await run.execute({}, EchoPort())
        assert (result.error, result.value, result.stdout, len(result.emitted)) == (None, 3, "1\n", 1)
        assert recording.record is not None and recording.record.settings is not None
        kinds.append([event.kind for event in recording.events if event.kind != "clock"])
        assert (await replay(sandbox, recording.record, where)).value == 3
    assert kinds[0] == kinds[1]
