"""The wasm engine: its fixed configuration, what it links into the guest, and one live instance."""

import os
import sys
from ctypes import byref
from typing import TYPE_CHECKING, Any, Final, NoReturn

import wasmtime._ffi as ffi
from wasmtime import Config, Engine, ExitTrap, Store, WasiConfig, WasmtimeError
from wasmtime.component import Component, Linker

from sandbox_runtime import abi
from sandbox_runtime.lockdown import end_with_parent
from sandbox_runtime.memory import GuestMemory, HotPages

if TYPE_CHECKING:
    from sandbox_runtime.run_host import RunHost

_HOST = "portal:sandbox/host@0.1.0"
_MAX_WASM_STACK = 1 << 20
# What the component needs to exist at all: 366 pages, 30 core instances, 1 memory, 8 tables.
_BOUNDS = {"table_elements": 50_000, "instances": 40, "tables": 16, "memories": 1}

UNUSED_FEATURES = (
    "wasm_threads",
    "shared_memory",
    "wasm_tail_call",
    "wasm_simd",
    "wasm_relaxed_simd",
    "wasm_multi_value",
    "wasm_multi_memory",
    "wasm_memory64",
    "wasm_exceptions",
    "wasm_function_references",
    "wasm_gc",
    "gc_support",
    "wasm_wide_arithmetic",
    "wasm_custom_page_sizes",
    "wasm_stack_switching",
    "wasm_branch_hinting",
    "wasm_compact_imports",
    "wasm_component_model_map",
    "wasm_component_model_implements",
    "wasm_component_model_accessors",
    "wasm_component_model_canonical_names",
    "wasm_component_model_async",
    "wasm_component_model_async_stackful",
    "wasm_component_model_more_async_builtins",
    "concurrency_support",
)
"""What the engine could do and CPython does not need: most advisories are about one of these. The names are those of
the C interface, `wasmtime_config_NAME_set`. Some are on unless they are turned off."""

CONFIGURATION = f"cranelift epoch stack={_MAX_WASM_STACK} without {' '.join(UNUSED_FEATURES)}"
"""Names the configuration: code compiled under another one is not loaded."""


MONOTONIC_CLOCK = "wasi:clocks/monotonic-clock@0.2.9"
WALL_CLOCK = "wasi:clocks/wall-clock@0.2.9"
RANDOM = "wasi:random/random@0.2.9"
_MAX_RANDOM_BYTES = 1 << 16
_NS_PER_MS = 1_000_000
_NS_PER_SECOND = 1_000_000_000

NOT_WRITTEN: Final = 74
"""The status that says it compiled, but the disk did not take it; EX_IOERR of sysexits.h."""


def new_engine() -> Engine:
    """An engine with the one configuration. Its values are fixed: some, like a larger stack, abort the process."""
    config = Config()
    config.strategy = "cranelift"
    config.epoch_interruption = True
    config.max_wasm_stack = _MAX_WASM_STACK
    for feature in UNUSED_FEATURES:
        getattr(ffi, f"wasmtime_config_{feature}_set")(config.ptr(), False)
    return Engine(config)


class GuestEngine:
    """The engine with the guest component loaded and linked."""

    def __init__(self, compiled: str, host: "RunHost") -> None:
        """Load a file that `compile_file` made: native code, so it must come from a private place.

        Raises:
            WasmtimeError: The file is damaged, or made by another engine.
        """
        self.engine = new_engine()
        self._component = Component.deserialize_file(self.engine, compiled)
        self._linker = Linker(self.engine)
        self._linker.add_wasip2()
        self._linker.allow_shadowing = True
        interfaces = {_HOST: _host(host), **_wasi(host)}
        self._kept = [abi.link(self._linker, name, functions) for name, functions in interfaces.items()]
        self._exports = {name: _export(self._component, name) for name in ("wake", "prepare", "execute")}
        self.memory = GuestMemory(compiled)
        self.hot_pages = HotPages(self.memory)

    def instantiate(self) -> "GuestInstance":
        """A new instance, ready for a script. The one before must be closed: there is one at a time."""
        instance = self.new_instance()
        self.hot_pages.touch()
        instance.wake()
        return instance

    def new_instance(self) -> "GuestInstance":
        """One that has not woken yet."""
        return GuestInstance(self.engine, self._linker, self._component, self._exports)


class GuestInstance:
    """One live guest: some 0.8 ms to make, 4 MB of its own (benchmarks/sandbox), dead after any trap."""

    START_MEMORY_BYTES = 64 << 20

    def __init__(self, engine: Engine, linker: Linker, component: Component, exports: dict[str, Any]) -> None:
        self._store = Store(engine)
        # No arguments, environment, directories or sockets: WasiConfig grants nothing that is not asked for.
        self._store.set_wasi(WasiConfig())
        self.limit(self.START_MEMORY_BYTES)
        self._instance = linker.instantiate(self._store, component)
        self._prepare = self._function(exports["prepare"])
        self._execute = self._function(exports["execute"])
        self._wake = self._function(exports["wake"])

    def wake(self) -> None:
        """Make it an instance of its own, once."""
        abi.call(self._wake, self._store)

    def limit(self, memory_bytes: int) -> None:
        """Bound the memory from here on, and let the next tick of the engine's epoch end what runs."""
        bound(self._store, memory_bytes)

    def prepare(self, script: bytes, namespaces: bytes, *, most: int) -> bytes:
        """The guest's answer; of one longer than `most` bytes, one byte more."""
        return abi.call_for_text(self._prepare, self._store, script, namespaces, most=most)

    def execute(self, settings: bytes, *, most: int) -> bytes:
        """The guest's answer; of one longer than `most` bytes, one byte more."""
        return abi.call_for_text(self._execute, self._store, settings, most=most)

    def close(self) -> None:
        self._store.close()

    def _function(self, export: Any) -> Any:
        function = ffi.wasmtime_component_func_t()
        found = ffi.wasmtime_component_instance_get_func(
            byref(self._instance._instance), self._store._context(), export.ptr(), byref(function)
        )
        if not found:
            raise WasmtimeError("the component lacks an export")
        return function


def bound(store: Store, memory_bytes: int) -> None:
    """Let what runs in a store have no more than this, and end with the next tick of the engine's epoch."""
    store.set_limits(memory_size=memory_bytes, **_BOUNDS)
    store.set_epoch_deadline(1)


def exit_status(error: WasmtimeError) -> int | None:
    """The status if the guest ended its process, else None."""
    return error.code if isinstance(error, ExitTrap) else None


def _export(component: Component, name: str) -> Any:
    index = component.get_export_index(name)
    if index is None:
        raise WasmtimeError(f"the component does not export {name}")
    return index


def _host(host: "RunHost") -> dict[str, abi.HostFunction]:
    def exchange(arguments: Any, results: Any) -> None:
        abi.set_text(results[0], host.exchange(abi.Text(arguments[0]), arguments[1].of.s64))

    def print_text(arguments: Any, _: Any) -> None:
        host.print(abi.Text(arguments[0]))

    def emit(arguments: Any, _: Any) -> None:
        host.emit(abi.Text(arguments[0]))

    return {"exchange": exchange, "print": print_text, "emit": emit}


def _wasi(host: "RunHost") -> dict[str, dict[str, abi.HostFunction]]:
    """The clocks and the randomness belong to a run, not to the machine (docs/decisions/0006).

    Whole interfaces: what is linked under a name takes the place of all that the engine has under it.
    """
    instant = abi.Datetime()

    def monotonic_now(_: Any, results: Any) -> None:
        abi.set_u64(results[0], host.monotonic_ns())

    def wait(_: Any, __: Any) -> NoReturn:
        # The engine's own timers know another time, and nothing ends them. The guest's Python waits in `exchange`.
        host.refuse_to_wait()

    def wall_now(_: Any, results: Any) -> None:
        instant.set(results[0], *divmod(host.wall_ns(), _NS_PER_SECOND))

    def wall_resolution(_: Any, results: Any) -> None:
        instant.set(results[0], 0, _NS_PER_MS)

    def random_bytes(arguments: Any, results: Any) -> None:
        size = arguments[0].of.u64
        if size > _MAX_RANDOM_BYTES:
            raise WasmtimeError(f"{size} random bytes at once")
        abi.set_bytes(results[0], host.random_bytes(size))

    def random_u64(_: Any, results: Any) -> None:
        abi.set_u64(results[0], int.from_bytes(host.random_bytes(8), "little"))

    return {
        MONOTONIC_CLOCK: {
            "now": monotonic_now,
            "resolution": _resolution,
            "subscribe-duration": wait,
            "subscribe-instant": wait,
        },
        WALL_CLOCK: {"now": wall_now, "resolution": wall_resolution},
        RANDOM: {"get-random-bytes": random_bytes, "get-random-u64": random_u64},
    }


def _resolution(_: Any, results: Any) -> None:
    abi.set_u64(results[0], _NS_PER_MS)


def compile_file(component: str, target: str, parent: str) -> None:
    """Compile a component as a process of its own; `target` is complete on disk at the end. Takes 5 s and 350 MB."""
    end_with_parent(int(parent))
    with open(component, "rb") as source:
        compiled = bytes(Component(new_engine(), source.read()).serialize())
    try:
        with open(target, "wb") as file:
            file.write(compiled)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        sys.exit(NOT_WRITTEN)
