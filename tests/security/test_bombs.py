"""Scripts that are work to read, many runs at once, and the bounds of the engine itself: no other script waits."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable

import pytest
from wasmtime import Instance, Module, Store, Trap, WasiConfig, WasmtimeError
from wasmtime.component import Component

from manifests.grants import Limits
from sandbox_runtime.aot import AotCache, default_cache, guest_component
from sandbox_runtime.fair_queue import QueueLimits
from sandbox_runtime.result import Prepared, RunResult
from sandbox_runtime.sandbox import Sandbox, open_sandbox
from sandbox_runtime.worker.engine import bound, new_engine
from tests.acceptance.hostile import REACHED
from tests.sandbox_runtime.running import NAMESPACES, EchoPort, Runner, where
from tests.security.hostile import MOST_SECONDS, RAW_HOST, watched, words

pytestmark = pytest.mark.anyio

TIGHT = Limits(cpu_seconds=0.2)
COMPUTED: dict[str, Callable[[int], str]] = {
    "calls": lambda n: "git.git_log()\n" * n,
    "calls_in_a_call": lambda n: "f(" + "*git.git_log()," * n + ")",
    "names": lambda n: "".join(f"é{i} = é{i + 1}\n" for i in range(n)),
    "values_that_flow": lambda n: "x = git.git_log()\n" + "if a:\n y = x\nelse:\n y = z\nx = y\n" * n,
    "values_that_fail": lambda n: (
        "x = git.git_log()\n" + "try:\n x = y\nexcept A:\n y = x\nfinally:\n z = x\n" * n
    ),
    "methods": lambda n: "".join(f"class A{i}:\n def m(self): return self.m(git.a())\n" for i in range(n)),
    "imports": lambda n: "from tools import *\n" * n,
}
DEEP: dict[str, Callable[[int], str]] = {
    "sum": lambda n: "1" + " + 1" * n,
    "calls_of_calls": lambda n: "f" + "()" * n,
    "brackets": lambda n: "(" * n + ")" * n,
    "signs": lambda n: "-" * n + "1",
}


async def prepared(run: Runner, script: str, limits: Limits) -> Prepared:
    async with asyncio.timeout(60), watched() as delay, run.sandbox.run(limits, where) as opened:
        told = await opened.prepare(script, NAMESPACES)
        if told.error is not None:
            result = await opened.execute({}, EchoPort())
            assert (result.error, result.stdout) == (told.error, "")
    assert delay.seconds < MOST_SECONDS
    return told


@pytest.mark.parametrize("name", COMPUTED)
async def test_script_that_is_long_work_to_read_ends_at_its_limit(run: Runner, name: str) -> None:
    told = await prepared(run, COMPUTED[name](12_000), TIGHT)
    assert told.error.code == "cpu_limit"
    assert where("cpu_seconds") in told.error.message
    assert await run.value("1") == 1


async def test_script_that_is_too_deep_is_refused(run: Runner) -> None:
    for deep in DEEP.values():
        told = await prepared(run, deep(50_000), Limits())
        assert told.error.code in ("script_error", "syntax_error")
        assert await run.value("1") == 1


async def test_script_that_fills_the_memory_is_told_so(run: Runner) -> None:
    told = await prepared(run, "a = b\n" * 150_000, Limits(memory_mib=64))
    assert told.error.code == "memory_limit"
    assert where("memory_mib") in told.error.message


async def test_short_script_of_the_kind_is_read(run: Runner) -> None:
    for name in [*COMPUTED, *DEEP]:
        assert (await prepared(run, (COMPUTED | DEEP)[name](3), Limits())).error is None


QUEUE = 10
BOMBS = {
    "computes": "while True: pass",
    "waits": "await git.hangs()",
    "sleeps": "import time\ntime.sleep(600)",
    "blocks": "import select\nselect.select([], [], [], 600)",
    "fills": "a = []\nwhile True: a.append('x' * 10 ** 5)",
    "crashes": "import os\nos.abort()",
    "cheats": "from wit_world.imports import host\nhost.exchange('x', 0)",
}


@pytest.fixture(scope="module")
async def sandbox(anyio_backend: str) -> AsyncIterator[Sandbox]:
    """Two workers and a short queue, so that everyone notices a bomb in each worker."""
    queue = QueueLimits(most=QUEUE, where=where)
    async with open_sandbox(workers=2, progress=print, queue=queue) as sandbox:
        yield sandbox


async def run(sandbox: Sandbox, script: str, caller: str, limits: Limits | None = None) -> RunResult:
    running = sandbox.run(limits or Limits(), where, caller=caller, script_bytes=len(script))
    async with asyncio.timeout(60), running as one:
        await one.prepare(script, ("git",))
        return await one.execute({}, EchoPort())


@pytest.mark.parametrize("bomb", BOMBS)
async def test_bombs_of_one_caller_do_not_keep_another_from_running(sandbox: Sandbox, bomb: str) -> None:
    limits = Limits(wall_seconds=0.5, cpu_seconds=0.1, memory_mib=64)
    script = f"print({REACHED!r})\n{BOMBS[bomb]}"
    bombs = [asyncio.create_task(run(sandbox, script, "bomber", limits)) for _ in range(6)]
    await asyncio.sleep(0)
    assert (await run(sandbox, "40 + 2", "neighbour")).value == 42
    for result in await asyncio.gather(*bombs):
        assert result.error is not None
        assert REACHED in result.stdout


async def test_flood_of_one_caller_does_not_shut_another_out(sandbox: Sandbox) -> None:
    limits = Limits(wall_seconds=0.3)
    flood = [asyncio.create_task(run(sandbox, "await git.hangs()", "bomber", limits)) for _ in range(50)]
    await asyncio.sleep(0)
    assert (await run(sandbox, "40 + 2", "neighbour")).value == 42
    await asyncio.gather(*flood)


async def test_long_scripts_do_not_pile_up(sandbox: Sandbox) -> None:
    """However many are sent, no more than a few are kept, and those of another caller are not among the lost."""
    long = "await git.hangs()" + " " * 1_000_000
    limits = Limits(wall_seconds=0.3)
    flood = [asyncio.create_task(run(sandbox, long, "bomber", limits)) for _ in range(50)]
    await asyncio.sleep(0)
    assert sandbox.waiting <= 1
    assert (await run(sandbox, "40 + 2", "neighbour")).value == 42
    codes = [result.error.code for result in await asyncio.gather(*flood) if result.error is not None]
    assert codes.count("sandbox_busy") >= 47


async def test_script_that_is_too_long_does_not_even_wait(sandbox: Sandbox) -> None:
    limits = Limits(wall_seconds=0.3)
    busy = [asyncio.create_task(run(sandbox, "await git.hangs()", "bomber", limits)) for _ in range(QUEUE)]
    await asyncio.sleep(0)
    waiting = sandbox.waiting
    refused = asyncio.create_task(run(sandbox, "1" + " " * 1_100_000, "neighbour"))
    await asyncio.sleep(0)
    assert sandbox.waiting == waiting
    error = (await refused).error
    assert error.code == "syntax_error"
    await asyncio.gather(*busy)


async def test_runs_that_are_given_up_leave_the_queue(sandbox: Sandbox) -> None:
    bombs = [asyncio.create_task(run(sandbox, "await git.hangs()", "bomber")) for _ in range(QUEUE)]
    await asyncio.sleep(0)
    for task in bombs:
        task.cancel()
    await asyncio.gather(*bombs, return_exceptions=True)
    scripts = (run(sandbox, f"{number}", "neighbour") for number in range(QUEUE))
    assert [result.value for result in await asyncio.gather(*scripts)] == list(range(QUEUE))


MEBIBYTE = 1 << 20
# What the component imports from WASI: none of it leads out, because nothing is granted; a new one wants a look.
WASI = {
    "cli": [
        *words("environment exit stderr stdin stdout"),
        *words("terminal-input terminal-output terminal-stderr terminal-stdin terminal-stdout"),
    ],
    "clocks": words("monotonic-clock wall-clock"),
    "filesystem": words("preopens types"),
    "io": words("error poll streams"),
    "random": words("random"),
    "sockets": words("instance-network ip-name-lookup network tcp tcp-create-socket udp udp-create-socket"),
}


def bounded(memory_mib: int = 64) -> Store:
    store = Store(new_engine())
    store.set_wasi(WasiConfig())
    bound(store, memory_mib * MEBIBYTE)
    return store


def call(store: Store, text: str, *arguments: int) -> object:
    instance = Instance(store, Module(store.engine, text), [])
    return instance.exports(store)["f"](store, *arguments)  # type: ignore[operator]


GROWS_MEMORY = '(module (memory 1) (func (export "f") (param i32) (result i32) local.get 0 memory.grow))'
GROWS_TABLE = """
(module (table 1 funcref) (func (export "f") (param i32) (result i32) ref.null func local.get 0 table.grow))
"""


def test_memory_and_table_grow_within_their_bounds_and_not_beyond() -> None:
    """Without one for tables, one instruction makes one of a gigabyte, which no bound on memory covers."""
    for pages in (1024, 16_384, 65_535, -1):
        assert call(bounded(), GROWS_MEMORY, pages) == -1
    for elements in (50_000, 10**8, -1):
        assert call(bounded(), GROWS_TABLE, elements) == -1
    assert call(bounded(), GROWS_MEMORY, 1000) == 1
    assert call(bounded(), GROWS_TABLE, 49_999) == 1


def test_module_that_begins_beyond_its_bounds_is_not_made() -> None:
    for begins in ("memory 2048", "table 60000 funcref", "memory 65536", "table 100000000 funcref"):
        store = bounded()
        with pytest.raises(WasmtimeError):
            Instance(store, Module(store.engine, f"(module ({begins}))"), [])


def test_no_more_instances_tables_and_memories_than_the_component_needs() -> None:
    for module, most in (("(module)", 40), ("(module (table 1 funcref))", 16), ("(module (memory 1))", 1)):
        store = bounded()
        compiled = Module(store.engine, module)
        for _ in range(most):
            Instance(store, compiled, [])
        with pytest.raises(WasmtimeError):
            Instance(store, compiled, [])


def test_endless_recursion_ends_at_the_bound_of_the_stack() -> None:
    with pytest.raises(Trap, match="call stack exhausted"):
        call(bounded(), '(module (func $f (export "f") (param i32) (result i32) local.get 0 call $f))', 1)


def test_endless_loop_ends_with_the_epoch() -> None:
    for body in ("(loop br 0)", "(loop (memory.fill (i32.const 0) (i32.const 0) (i32.const 65536)) br 0)"):
        store = bounded()
        store.engine.increment_epoch()
        with pytest.raises(Trap, match="interrupt"):
            call(store, f'(module (memory 1) (func (export "f") {body}))')


def test_component_imports_what_is_known_and_nothing_else() -> None:
    engine = new_engine()
    compiled = AotCache(default_cache(os.environ), print).compiled(guest_component())
    imports = Component.deserialize_file(engine, str(compiled)).type.imports(engine)
    found = {name.partition("@")[0] for name in imports}
    assert found == {
        "portal:sandbox/host",
        *(f"wasi:{package}/{name}" for package in WASI for name in WASI[package]),
    }


async def test_the_script_itself_meets_these_bounds(run: Runner) -> None:
    for script in ("bytes(10 ** 9)", "def f(): f()\nf()", RAW_HOST + "host.print('x' * 10 ** 9)"):
        assert (await run(script)).error is not None
    assert (await run("len(bytes(10 ** 8))")).value == 10**8
