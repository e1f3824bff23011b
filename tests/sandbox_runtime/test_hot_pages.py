"""What a run writes to is learned once, and copied beforehand; scripts behave as they would without."""

import json
import resource

from sandbox_runtime.engine import GuestEngine
from sandbox_runtime.fork_server import learn_hot_pages
from sandbox_runtime.run_host import RunHost

SCRIPT = b"rows = [{'a': i} for i in range(10)]\nsum(row['a'] for row in rows)"
SIDE_BY_SIDE = b"""\
blocks = [bytes(size) for size in range(20, 500, 8) for _ in range(20)]
[len({id(block) >> 12 for block in blocks}), sum(block.__sizeof__() + 8 for block in blocks) >> 12]
"""
SETTINGS = b'{"library": {}, "argument_bytes": 100, "result_bytes": 100}'


def faults_of_a_script(engine: GuestEngine) -> int:
    instance = engine.instantiate()
    try:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        instance.prepare(SCRIPT, b"", most=1000)
        answer = instance.execute(SETTINGS, most=1000)
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    finally:
        instance.close()
    assert answer.endswith(b"\n45")
    return faults


def test_a_script_hardly_faults_where_the_pages_are_known(compiled: str) -> None:
    host = RunHost()
    engine = GuestEngine(compiled, host)
    untouched = faults_of_a_script(engine)
    learn_hot_pages(engine, host)
    touched = [faults_of_a_script(engine) for _ in range(3)]
    assert max(touched) < untouched / 2


def test_without_knowing_any_page_scripts_run_as_ever(compiled: str) -> None:
    engine = GuestEngine(compiled, RunHost())
    engine.hot_pages.touch()
    assert faults_of_a_script(engine) > 0


def test_a_memory_that_is_found_nowhere_is_given_up_without_an_error(compiled: str) -> None:
    host = RunHost()
    engine = GuestEngine(compiled, host)
    learn_hot_pages(engine, host)
    engine.hot_pages.touch()  # no instance is alive
    assert faults_of_a_script(engine) > 0


def test_what_a_script_allocates_lies_side_by_side(compiled: str) -> None:
    instance = GuestEngine(compiled, RunHost()).instantiate()
    instance.prepare(SIDE_BY_SIDE, b"", most=1000)
    pages, least = json.loads(instance.execute(SETTINGS, most=1000).partition(b"\n")[2])
    assert least <= pages < 1.5 * least
