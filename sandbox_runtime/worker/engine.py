"""The wasm engine: its fixed configuration, the host functions, and the live instance.

Values and calls use wasmtime's C bindings. The Python wrapper looks up the types of every call again (20 us) and passes
exceptions through a process-wide variable. Here a host function returns only an error pointer, and text stays bytes.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from ctypes import byref
from functools import partial
from typing import Any, TypeAlias

import wasmtime._ffi as ffi  # noqa: PLC2701
from wasmtime import Config, Engine, Store, WasiConfig, WasmtimeError
from wasmtime.component import Component, Linker

from sandbox_runtime.worker.configuration import MAX_WASM_STACK, NEEDED_FEATURES, NOT_WRITTEN
from sandbox_runtime.worker.lockdown import end_with_parent
from sandbox_runtime.worker.memory import GuestMemory
from sandbox_runtime.worker.run_host import RunHost, Text

HostFunction: TypeAlias = Callable[[Any, Any], None]
"""Called with the array of argument values and the array of result values."""

# The component itself needs 366 pages, 30 core instances, 1 memory and 8 tables.
_BOUNDS = {"table_elements": 50_000, "instances": 40, "tables": 16, "memories": 1}
# Applies until a script sets its own limit. The image alone may be large, with the operator's packages.
_START_MEMORY_BYTES = 1 << 30
_MAX_USES = 100
# Handles of WASI that scripts leave open live as long as the instance, on the heap of the process: some 160 bytes each.
_MAX_LEFT_BYTES = 256 << 10
_EXPORTS = ("wake", "prepare", "execute")

_MAX_RANDOM_BYTES = 1 << 16
_NS_PER_MS = 1_000_000
_NS_PER_SECOND = 1_000_000_000


def new_engine() -> Engine:
    """An engine with the fixed configuration. Other values, like a larger stack, may abort the process."""
    config = Config()
    config.strategy = "cranelift"
    config.epoch_interruption = True
    config.max_wasm_stack = MAX_WASM_STACK
    offered = {name[len("wasmtime_config_") : -len("_set")] for name in dir(ffi) if name.endswith("_set")}
    features = {name for name in offered if name.startswith("wasm_")}
    for feature in (features - {*NEEDED_FEATURES}) | {"shared_memory", "gc_support", "concurrency_support"}:
        getattr(ffi, f"wasmtime_config_{feature}_set")(config.ptr(), False)
    return Engine(config)


def bound(store: Store, memory_bytes: int) -> None:
    """Limit a store's memory and other resources, and end its code at the next tick of the engine's epoch."""
    store.set_limits(memory_size=memory_bytes, **_BOUNDS)
    store.set_epoch_deadline(1)


def compile_file(component: str, target: str, parent: str) -> None:
    """Compile a component, as the main function of a process. Takes 5 s and 350 MB. `target` is flushed to disk."""
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


class GuestEngine:
    """The engine with the guest component loaded and linked."""

    def __init__(self, compiled: str, host: RunHost) -> None:
        """Load a file from `compile_file`. It is native code, so its folder must be private. Raises WasmtimeError."""
        self.engine = new_engine()
        self.component = Component.deserialize_file(self.engine, compiled)
        self.linker = Linker(self.engine)
        self.linker.add_wasip2()
        self.linker.allow_shadowing = True
        self._kept = [_link(self.linker, name, functions) for name, functions in _interfaces(host).items()]
        self.exports = {name: self.component.get_export_index(name) for name in _EXPORTS}
        self.memory = GuestMemory(compiled)

    def renewed(self, instance: "GuestInstance") -> "GuestInstance":
        """An instance that is ready for the next script: this one, with the memory of a new one, or a new one."""
        if instance.may_be_used_again() and self.memory.restore():
            instance.uses += 1
            return instance
        instance.close()
        return self.instantiate()

    def instantiate(self) -> "GuestInstance":
        """Create an instance that is ready for a script. Close the previous one first."""
        instance = GuestInstance(self)
        self.memory.adopt()
        instance.call("wake")
        return instance


class GuestInstance:
    """One live guest, which is dead after a trap. To make one costs more than most scripts (benchmarks/sandbox)."""

    def __init__(self, engine: GuestEngine) -> None:
        """Create an instance that has not run `wake` yet."""
        self.is_dead = False
        self.uses = 1
        self._store = Store(engine.engine)
        # No arguments, environment, directories or sockets: WasiConfig grants nothing by default.
        self._store.set_wasi(WasiConfig())
        self.limit(_START_MEMORY_BYTES)
        instance = engine.linker.instantiate(self._store, engine.component)
        self._functions: dict[str, Any] = {}
        for name, export in engine.exports.items():
            self._functions[name] = function = ffi.wasmtime_component_func_t()
            found = export and ffi.wasmtime_component_instance_get_func(
                byref(instance._instance), self._store._context(), export.ptr(), byref(function)
            )
            if not found:
                raise WasmtimeError(f"the component does not export {name}")
        self._heap_bytes = _heap_bytes()

    def limit(self, memory_bytes: int) -> None:
        bound(self._store, memory_bytes)

    def call(self, name: str, *texts: bytes, most: int | None = None) -> bytes:
        """Call an export of wit/sandbox.wit. An answer longer than `most` bytes is cut to one byte more.

        Raises WasmtimeError: the guest trapped, or was stopped.
        """
        values, result = (ffi.wasmtime_component_val_t * len(texts))(), ffi.wasmtime_component_val_t()
        results, count = (None, 0) if most is None else (byref(result), 1)
        try:
            for value, text in zip(values, texts, strict=True):
                _set_text(value, text)
            error = ffi.wasmtime_component_func_call(
                byref(self._functions[name]), self._store._context(), values, len(texts), results, count
            )
            if error:
                self.is_dead = True
                raise WasmtimeError._from_ptr(error)
            return b"" if most is None else Text(result).read(most + 1)
        finally:
            for value in (*values, result):
                ffi.wasmtime_component_val_delete(byref(value))

    def may_be_used_again(self) -> bool:
        if self.is_dead or self.uses >= _MAX_USES or self._heap_bytes is None:
            return False
        return (_heap_bytes() or 0) - self._heap_bytes < _MAX_LEFT_BYTES

    def close(self) -> None:
        self._store.close()


class _HeapStatistics(ctypes.Structure):
    """glibc's struct mallinfo2: the bytes of large blocks, and those of others."""

    _fields_ = (
        ("_first", ctypes.c_size_t * 4),
        ("hblkhd", ctypes.c_size_t),
        ("_others", ctypes.c_size_t * 2),
        ("uordblks", ctypes.c_size_t),
        ("_last", ctypes.c_size_t * 2),
    )


_heap_statistics = getattr(ctypes.CDLL(None), "mallinfo2", None)  # since glibc 2.33
if _heap_statistics is not None:
    _heap_statistics.restype = _HeapStatistics


def _heap_bytes() -> int | None:
    """The bytes that are allocated on the process's heap; None if the C library does not report them."""
    if _heap_statistics is None:
        return None
    found = _heap_statistics()
    return int(found.uordblks) + int(found.hblkhd)


def _interfaces(host: RunHost) -> dict[str, dict[str, HostFunction]]:
    """The host functions by interface. Clocks and randomness belong to the run (docs/decisions/0006).

    Linking an interface replaces all functions that the engine has under its name.
    """

    def wait(_: Any, __: Any) -> None:
        # The engine's own timers use the real time and cannot be interrupted. The guest's Python waits in `exchange`.
        host.refuse_to_wait()

    def random_bytes(given: Any, out: Any) -> None:
        size = given[0].of.u64
        if size > _MAX_RANDOM_BYTES:
            raise WasmtimeError(f"too many random bytes: {size}")
        _set_bytes(out[0], host.random_bytes(size))

    return {
        "portal:sandbox/host@0.1.0": {
            "exchange": lambda given, out: _set_text(out[0], host.exchange(Text(given[0]), given[1].of.s64)),
            "print": lambda given, _: host.print(Text(given[0])),
            "emit": lambda given, _: host.emit(Text(given[0])),
        },
        "wasi:clocks/monotonic-clock@0.2.9": {
            "now": lambda _, out: _set_u64(out[0], host.monotonic_ns()),
            "resolution": lambda _, out: _set_u64(out[0], _NS_PER_MS),
            "subscribe-duration": wait,
            "subscribe-instant": wait,
        },
        "wasi:clocks/wall-clock@0.2.9": {
            "now": lambda _, out: _set_datetime(out[0], host.wall_ns()),
            "resolution": lambda _, out: _set_datetime(out[0], _NS_PER_MS),
        },
        "wasi:random/random@0.2.9": {
            "get-random-bytes": random_bytes,
            "get-random-u64": lambda _, out: _set_u64(out[0], int.from_bytes(host.random_bytes(8), "little")),
        },
    }


def _link(linker: Linker, instance: str, functions: dict[str, HostFunction]) -> list[Any]:
    """Link functions as an instance. The returned callbacks must live as long as the linker."""
    kept = []
    with linker.root() as root, root.add_instance(instance) as target:
        for name, function in functions.items():
            callback = ffi.wasmtime_component_func_callback_t(partial(_enter, function))
            text = name.encode()
            error = ffi.wasmtime_component_linker_instance_add_func(
                target.ptr(), ctypes.create_string_buffer(text), len(text), callback, None, _NO_FINALIZER
            )
            if error:
                raise WasmtimeError._from_ptr(error)
            kept.append(callback)
    return kept


_NO_FINALIZER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)


def _enter(
    function: HostFunction, _data: Any, _context: Any, _type: Any, given: Any, _n: Any, out: Any, _m: Any
) -> int:
    try:
        function(given, out)
    except BaseException as error:  # noqa: BLE001  # an exception must not unwind through native frames
        if not isinstance(error, WasmtimeError):
            error = WasmtimeError(f"host function failed: {type(error).__name__}")
        return ctypes.cast(error._consume(), ctypes.c_void_p).value or 0
    return 0


_VALUE_BYTES = ctypes.sizeof(ffi.wasmtime_component_val_t)
_CONTENT_OFFSET: int = ffi.wasmtime_component_val_t.of.offset


def _set_text(value: Any, text: bytes) -> None:
    vector = ffi.wasm_byte_vec_t()
    source = ctypes.cast(ctypes.c_char_p(text), ctypes.POINTER(ffi.wasm_byte_t))
    ffi.wasm_byte_vec_new(byref(vector), len(text), source)
    value.of.string = vector
    value.kind = ffi.WASMTIME_COMPONENT_STRING.value


def _set_u64(value: Any, number: int) -> None:
    value.of.u64 = number
    value.kind = ffi.WASMTIME_COMPONENT_U64.value


def _set_bytes(value: Any, content: bytes) -> None:
    """Set a `list<u8>`. Each byte becomes a value of 32 bytes, so keep it short."""
    ffi.wasmtime_component_vallist_new_uninit(byref(value.of.list), len(content))
    layout = bytearray(len(content) * _VALUE_BYTES)
    layout[::_VALUE_BYTES] = bytes([ffi.WASMTIME_COMPONENT_U8.value]) * len(content)
    layout[_CONTENT_OFFSET::_VALUE_BYTES] = content
    ctypes.memmove(value.of.list.data, bytes(layout), len(layout))
    value.kind = ffi.WASMTIME_COMPONENT_LIST.value


def _set_datetime(value: Any, ns: int) -> None:
    """Set WASI's record of seconds and nanoseconds."""
    fields = value.of.record
    ffi.wasmtime_component_valrecord_new_uninit(byref(fields), 2)
    value.kind = ffi.WASMTIME_COMPONENT_RECORD.value
    seconds, nanoseconds = fields.data[0], fields.data[1]
    seconds.name, nanoseconds.name = ffi.str_to_capi("seconds"), ffi.str_to_capi("nanoseconds")
    _set_u64(seconds.val, ns // _NS_PER_SECOND)
    nanoseconds.val.of.u32 = ns % _NS_PER_SECOND
    nanoseconds.val.kind = ffi.WASMTIME_COMPONENT_U32.value
