"""What runs write to is copied beforehand, how much memory an instance has is seen, and runs leave nothing behind."""

import gc
import resource
import weakref

import pytest

from manifests.grants import Limits
from sandbox_runtime.recording import Recording
from sandbox_runtime.sandbox import Sandbox
from sandbox_runtime.worker.engine import GuestEngine
from sandbox_runtime.worker.fork_server import learn_memory
from sandbox_runtime.worker.run_host import RunHost
from tests.sandbox_runtime.running import NAMESPACES, TABLE, EchoPort, where

SCRIPT = b"rows = [{'a': i} for i in range(10)]\nsum(row['a'] for row in rows)"
SETTINGS = b'{"library": {}, "argument_bytes": 100, "result_bytes": 100}'


PAGE = 64 << 10  # of wasm


def faults_of_a_script(engine: GuestEngine) -> int:
    instance = engine.instantiate()
    try:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        instance.call("prepare", SCRIPT, b"", most=1000)
        answer = instance.call("execute", SETTINGS, most=1000)
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    finally:
        instance.close()
    assert answer.endswith(b"\n45")
    return faults


def test_a_script_hardly_faults_where_the_pages_are_known(compiled: str) -> None:
    host = RunHost()
    engine = GuestEngine(compiled, host)
    untouched = faults_of_a_script(engine)
    learn_memory(engine, host)
    touched = [faults_of_a_script(engine) for _ in range(3)]
    assert max(touched) < untouched / 2


def test_a_memory_that_is_found_nowhere_is_given_up_without_an_error(compiled: str) -> None:
    host = RunHost()
    engine = GuestEngine(compiled, host)
    learn_memory(engine, host)
    assert not engine.memory.restore()  # no instance is alive
    assert faults_of_a_script(engine) > 0


@pytest.mark.anyio
async def test_what_a_run_holds_is_freed_with_it_and_not_by_the_garbage_collector(sandbox: Sandbox) -> None:
    recording, port = Recording(), EchoPort()
    held = [weakref.ref(each) for each in (recording, port)]
    gc.disable()
    try:
        async with sandbox.run(Limits(), where, recording=recording) as run:
            await run.prepare("await git.git_log(count=1)", NAMESPACES)
            result = await run.execute(TABLE, port)
        assert result.error is None
        held.append(weakref.ref(run))
        del run, recording, port
        assert [each() for each in held] == [None, None, None]
    finally:
        gc.enable()
