"""The bounds of the engine itself, tried with modules that our guest does not hold; for it they are the same."""

import os

import pytest
from wasmtime import Instance, Module, Store, Trap, WasiConfig, WasmtimeError
from wasmtime.component import Component

from sandbox_runtime.aot import AotCache, default_cache, guest_component
from sandbox_runtime.worker.engine import bound, new_engine
from tests.sandbox_runtime.running import Runner
from tests.security.hostile import RAW_HOST

pytestmark = pytest.mark.anyio

MEBIBYTE = 1 << 20
# What the component imports from WASI: none of it leads out, because nothing is granted; a new one wants a look.
WASI = {
    "cli": {
        "environment",
        "exit",
        "stderr",
        "stdin",
        "stdout",
        "terminal-input",
        "terminal-output",
        "terminal-stderr",
        "terminal-stdin",
        "terminal-stdout",
    },
    "clocks": {"monotonic-clock", "wall-clock"},
    "filesystem": {"preopens", "types"},
    "io": {"error", "poll", "streams"},
    "random": {"random"},
    "sockets": {
        "instance-network",
        "ip-name-lookup",
        "network",
        "tcp",
        "tcp-create-socket",
        "udp",
        "udp-create-socket",
    },
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
(module
  (table 1 funcref)
  (func (export "f") (param i32) (result i32) ref.null func local.get 0 table.grow))
"""


@pytest.mark.parametrize("pages", [1024, 16_384, 65_535, -1])
def test_memory_does_not_grow_beyond_its_bound(pages: int) -> None:
    assert call(bounded(), GROWS_MEMORY, pages) == -1


@pytest.mark.parametrize("elements", [50_000, 10**8, -1])
def test_table_does_not_grow_beyond_its_bound(elements: int) -> None:
    """Without it, one instruction makes a table of a gigabyte, which no bound on memory covers."""
    assert call(bounded(), GROWS_TABLE, elements) == -1


def test_memory_and_table_grow_within_their_bounds() -> None:
    assert call(bounded(), GROWS_MEMORY, 1000) == 1
    assert call(bounded(), GROWS_TABLE, 49_999) == 1


@pytest.mark.parametrize(
    "module",
    [
        "(module (memory 2048))",
        "(module (table 60000 funcref))",
        "(module (memory 65536))",
        "(module (table 100000000 funcref))",
    ],
)
def test_module_that_begins_beyond_its_bounds_is_not_made(module: str) -> None:
    store = bounded()
    with pytest.raises(WasmtimeError):
        Instance(store, Module(store.engine, module), [])


@pytest.mark.parametrize(
    ("module", "most"), [("(module)", 40), ("(module (table 1 funcref))", 16), ("(module (memory 1))", 1)]
)
def test_no_more_instances_tables_and_memories_than_the_component_needs(module: str, most: int) -> None:
    store = bounded()
    compiled = Module(store.engine, module)
    for _ in range(most):
        Instance(store, compiled, [])
    with pytest.raises(WasmtimeError):
        Instance(store, compiled, [])


def test_endless_recursion_ends_at_the_bound_of_the_stack() -> None:
    with pytest.raises(Trap, match="call stack exhausted"):
        call(bounded(), '(module (func $f (export "f") (param i32) (result i32) local.get 0 call $f))', 1)


@pytest.mark.parametrize(
    "body", ["(loop br 0)", "(loop (memory.fill (i32.const 0) (i32.const 0) (i32.const 65536)) br 0)"]
)
def test_endless_loop_ends_with_the_epoch(body: str) -> None:
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
