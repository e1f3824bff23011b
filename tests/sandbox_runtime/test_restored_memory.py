"""After a run an instance has the memory of a new one, byte for byte; else the next script gets a new instance."""

import ctypes
import gc
import re
import resource
import subprocess
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from wasmtime import WasmtimeError

from manifests.grants import Limits
from sandbox_runtime.aot import guest_component
from sandbox_runtime.build_js import _CORE_MODULE, _sections
from sandbox_runtime.frames import RunStart
from sandbox_runtime.recording import Recording
from sandbox_runtime.sandbox import Sandbox
from sandbox_runtime.worker.engine import GuestEngine, GuestInstance
from sandbox_runtime.worker.fork_server import learn_memory
from sandbox_runtime.worker.memory import IS_OWN
from sandbox_runtime.worker.run_host import RunHost
from tests.sandbox_runtime.running import NAMESPACES, TABLE, EchoPort, Runner, where

SETTINGS = b'{"library": {}, "argument_bytes": 65536, "result_bytes": 65536, "seed": "any"}'
SCRIPTS = {
    "a sum": "1 + 1",
    "closed streams": "import os\nfor n in range(3): os.close(n)\nraise ValueError(1)",
    "random numbers": "import random, secrets\nrandom.seed(1)\n[random.random(), secrets.token_hex()]",
    "many modules": "import csv, decimal, email, html.parser, sqlite3, statistics, tomllib, zipfile",
    "patched modules": "import builtins, json, sys\nbuiltins.len = None\njson.loads = None\nsys.modules.clear()",
    "a deep recursion": "def f(): f()\ntry:\n    f()\nexcept RecursionError:\n    pass",
    "a generator that is left": "def f():\n    try:\n        yield 1\n    finally:\n        print(2)\nx = f()\nnext(x)",
    "an open task": "import asyncio\nx = asyncio.ensure_future(asyncio.sleep(0))\n1",
    "an environment": "import os, time\nos.environ['A'] = 'b'\ntime.tzset()",
    "interned words": "import sys\n[sys.intern(f'word{n}') for n in range(2000)][-1]",
    "a deep stack": """\
class Nested:
    def __init__(self, inner): self.inner = inner
    def __repr__(self): return '\\xe9 secret'.encode().decode() + repr(self.inner)
nested = None
for _ in range(300): nested = Nested(nested)
len(repr(nested))""",
}


class Guest:
    """An engine in this process, with what was learned about its memory."""

    def __init__(self, compiled: str) -> None:
        self.host = RunHost()
        self.engine = GuestEngine(compiled, self.host)
        self.memory = self.engine.memory
        learn_memory(self.engine, self.host)

    def run(self, instance: GuestInstance, script: str) -> bytes:
        self.host.begin(RunStart(10, 256 << 20, 1 << 16, 1 << 16, 1 << 16), None)
        prepared = instance.call("prepare", script.encode(), b"", most=1 << 16)
        if b'"error"' in prepared:
            return prepared
        return instance.call("execute", SETTINGS, most=1 << 16)

    def content(self) -> bytes:
        return ctypes.string_at(self.memory._start, self.memory._size)


@pytest.fixture(scope="module")
def guest(compiled: str) -> Guest:
    return Guest(compiled)


@pytest.fixture
def instance(guest: Guest) -> Iterator[GuestInstance]:
    instance = guest.engine.instantiate()
    guest.memory.check_content()
    yield instance
    instance.close()


@pytest.mark.parametrize("name", SCRIPTS)
def test_memory_is_that_of_a_new_instance(guest: Guest, instance: GuestInstance, name: str) -> None:
    new = guest.content()
    answer = guest.run(instance, SCRIPTS[name])
    assert guest.content() != new
    assert guest.memory.restore()
    assert guest.content() == new
    assert guest.run(instance, SCRIPTS[name]) == answer


def test_the_memory_is_known_from_its_first_page_to_its_last(guest: Guest, instance: GuestInstance) -> None:
    start, end = guest.memory._start, guest.memory._start + guest.memory._size
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    access = {
        part: line[1] for line in lines for part in zip(("from", "to"), line[0].split("-"), strict=True)
    }
    assert (access["to", f"{start:x}"], access["from", f"{end:x}"]) == ("---p", "---p")
    assert (end - start) % (1 << 16) == 0


def test_instance_whose_handles_may_be_many_is_not_used_again(guest: Guest) -> None:
    gc.collect()  # else it might free as much as is held here
    instance = guest.engine.instantiate()
    assert instance.may_be_used_again()
    held = [ctypes.create_string_buffer(600) for _ in range(1000)]
    assert not instance.may_be_used_again()
    held.clear()
    assert instance.may_be_used_again()
    instance.close()


@pytest.mark.parametrize("script", ["x = bytes(8 << 20)", "import os\nos.abort()"])
def test_instance_that_has_grown_or_trapped_is_not_used_again(guest: Guest, script: str) -> None:
    instance = guest.engine.instantiate()
    try:
        guest.run(instance, script)
    except WasmtimeError:
        assert "abort" in script
    other = guest.engine.renewed(instance)
    assert other is not instance
    assert guest.engine.renewed(other) is other
    other.close()


def test_new_instance_with_another_content_is_not_used_again(guest: Guest, instance: GuestInstance) -> None:
    assert guest.memory.restore()
    learned = guest.memory._content
    assert learned is not None
    learned[100] = bytes([learned[100][0] ^ 1])
    guest.memory.check_content()
    assert not guest.memory.restore()
    learned[100] = bytes([learned[100][0] ^ 1])
    guest.memory._content = learned


def test_pages_that_were_written_are_known_by_their_flags() -> None:
    present, swapped, of_file, others = 1 << 7, 1 << 6, 1 << 5, 0b11111
    assert IS_OWN[present] == IS_OWN[swapped] == IS_OWN[swapped | of_file] == IS_OWN[present | others] == 1
    assert IS_OWN[0] == IS_OWN[present | of_file] == IS_OWN[of_file] == IS_OWN[others] == 0


def faults_of_a_script(engine: GuestEngine) -> int:
    instance = engine.instantiate()
    try:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        instance.call("prepare", b"sum(row['a'] for row in [{'a': i} for i in range(10)])", b"", most=1000)
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
    assert not engine.memory.restore()  # no instance is alive
    assert max(faults_of_a_script(engine) for _ in range(3)) < untouched / 2


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


async def test_workers_use_their_instances_again(sandbox: Sandbox) -> None:
    """A new instance costs hundreds of page faults."""
    last: dict[int | None, int] = {}
    few = 0
    for _ in range(100):
        async with sandbox.run(Limits(), where) as one:
            await one.prepare("1 + 1", {})
            faults = page_faults(one.worker_pid)
        few += faults - last.get(one.worker_pid, -1000) < 150
        last[one.worker_pid] = faults
    assert few > 50


def page_faults(pid: int | None) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])


async def test_stack_is_as_deep_after_many_runs(run: Runner) -> None:
    script = (
        "def f(n):\n    try:\n        return f(n + 1)\n    except RecursionError:\n        return n\nf(0)"
    )
    assert len({await run.value(script) for _ in range(40)}) == 1


@pytest.mark.servers
def test_nothing_but_its_memory_changes_in_an_instance(tmp_path: Path) -> None:
    """No code changes a table, or a global but the stack pointer, which each function sets back.

    Except for the start function of one module, and an adapter that is only used while the component is built.
    """
    setters: dict[str, set[str]] = {}
    sections = _sections(guest_component().read_bytes())
    for number, module in enumerate(content for kind, content in sections if kind == _CORE_MODULE):
        path = tmp_path / f"{number}.wasm"
        path.write_bytes(module)
        # In Python, a look at each of its millions of lines would take ten seconds.
        command = f"wasm-objdump -d {path} | grep -E 'func\\[|global\\.set|table\\.|elem\\.drop'"
        listing = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        function = ""
        for line in listing.stdout.splitlines():
            if found := re.match(r"[0-9a-f]+ func\[\d+\] ?(.*):", line):
                function = f"{number} {found[1]}"
            elif found := re.search(
                r"\| (global\.set|table\.(?!get|size)|elem\.drop)\S*(?: \d+)* ?(.*)", line
            ):
                setters.setdefault(found[2] if found[1] == "global.set" else line, set()).add(function)
    assert len(setters.pop("<__stack_pointer>")) > 1000
    assert setters.pop("<internal_state_ptr>") and setters.pop("<allocation_state>")
    [start_function] = set[str]().union(*setters.values())
    assert all(name.startswith("<env.") for name in setters), start_function
