"""How much memory an instance has is seen, whatever the process around it has."""

import json
import mmap

import pytest

from sandbox_runtime.engine import GuestEngine
from sandbox_runtime.run_host import RunHost

MIB = 1 << 20
PAGE = 64 << 10  # of wasm
SETTINGS = b'{"library": {}, "argument_bytes": 100, "result_bytes": 100}'


@pytest.fixture
def engine(compiled: str) -> GuestEngine:
    engine = GuestEngine(compiled, RunHost())
    engine.memory.open()
    return engine


def grown_by(engine: GuestEngine, script: bytes) -> int:
    instance = engine.instantiate()
    try:
        before = engine.memory.size_bytes()
        instance.prepare(script, b"", most=1000)
        answer = instance.execute(SETTINGS, most=1000)
        assert json.loads(answer.partition(b"\n")[2]) == "done"
        return engine.memory.size_bytes() - before
    finally:
        instance.close()


def test_memory_that_a_script_takes_is_seen(engine: GuestEngine) -> None:
    taken = grown_by(engine, b"x = bytes(20 << 20)\n'done'")
    assert 20 * MIB <= taken < 22 * MIB and taken % PAGE == 0
    assert grown_by(engine, b"'done'") < 2 * MIB


def test_memory_that_the_process_takes_is_not_the_instances(engine: GuestEngine) -> None:
    instance = engine.instantiate()
    before = engine.memory.size_bytes()
    with mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS):
        assert engine.memory.size_bytes() == before > 16 * MIB
    instance.close()
    assert engine.memory.size_bytes() == 0


def test_where_the_process_cannot_look_nothing_is_seen(compiled: str) -> None:
    blind = GuestEngine(compiled, RunHost())
    instance = blind.instantiate()
    assert blind.memory.size_bytes() == 0
    instance.close()
