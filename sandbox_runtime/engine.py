"""The wasm engine: its fixed configuration, what it links into the guest, and one live instance.

Host functions are registered through wasmtime's C bindings: the Python wrapper looks up the types of every
call anew (20 us each, benchmarks/sandbox.py) and passes exceptions through a variable of the whole process.
Nothing but an error pointer may leave such a function.
"""

import ctypes
from collections.abc import Callable
from ctypes import byref
from typing import Any, Protocol

import wasmtime._ffi as ffi
from wasmtime import Config, Engine, ExitTrap, Store, WasiConfig, WasmtimeError
from wasmtime.component import Component, Linker

_HOST = "portal:sandbox/host@0.1.0"
_STRING: int = ffi.WASMTIME_COMPONENT_STRING.value
_MAX_WASM_STACK = 1 << 20
_UNUSED_PROPOSALS = (
    "wasm_threads",
    "shared_memory",
    "wasm_tail_call",
    "wasm_multi_memory",
    "wasm_memory64",
    "wasm_relaxed_simd",
    "wasm_component_model_map",
    "wasm_component_model_implements",
    "wasm_exceptions",
    "wasm_function_references",
    "wasm_gc",
    "gc_support",
    "wasm_wide_arithmetic",
    "wasm_custom_page_sizes",
    "wasm_stack_switching",
)
# What the component needs to exist at all is 366 pages, 30 core instances, 1 memory, 8 tables.
_BOUNDS = {"table_elements": 50_000, "instances": 40, "tables": 16, "memories": 1}

CONFIGURATION = f"cranelift epoch stack={_MAX_WASM_STACK} without {' '.join(_UNUSED_PROPOSALS)}"
"""Names the configuration: code compiled under another one is not loaded."""


def new_engine() -> Engine:
    """An engine with the one configuration. Its values are fixed: some, like a larger stack, abort the process."""
    config = Config()
    config.strategy = "cranelift"
    config.epoch_interruption = True
    config.max_wasm_stack = _MAX_WASM_STACK
    for proposal in _UNUSED_PROPOSALS:
        setattr(config, proposal, False)
    return Engine(config)


class HostFunctions(Protocol):
    """What the guest may call; see wit/sandbox.wit. Anything raised but WasmtimeError is a bug."""

    def exchange(self, outbox: bytes, timeout_ms: int) -> bytes: ...
    def print(self, text: bytes) -> None: ...
    def emit(self, block: bytes) -> None: ...


class GuestEngine:
    """The engine with the guest component loaded and linked."""

    def __init__(self, compiled: str, host: HostFunctions) -> None:
        """Load a file that `compile_component` wrote: native code, so it must come from a private place.

        Raises:
            WasmtimeError: The file is damaged, or made by another engine.
        """
        self.engine = new_engine()
        self._component = Component.deserialize_file(self.engine, compiled)
        self._linker = Linker(self.engine)
        self._linker.add_wasip2()
        self._callbacks = _link(self._linker, host)
        self._exports = {name: _export(self._component, name) for name in ("wake", "prepare", "execute")}

    def instantiate(self) -> "GuestInstance":
        return GuestInstance(self.engine, self._linker, self._component, self._exports)


class GuestInstance:
    """One live guest: 0.7 ms to make, 3 MB of its own, dead after any trap."""

    START_MEMORY_BYTES = 64 << 20

    def __init__(self, engine: Engine, linker: Linker, component: Component, exports: dict[str, Any]) -> None:
        self._store = Store(engine)
        # No arguments, environment, directories or sockets: WasiConfig grants nothing that is not asked for.
        self._store.set_wasi(WasiConfig())
        self.limit(self.START_MEMORY_BYTES)
        self._instance = linker.instantiate(self._store, component)
        self._wake = self._function(exports["wake"])
        self._prepare = self._function(exports["prepare"])
        self._execute = self._function(exports["execute"])
        _call(self._wake, self._store)

    def limit(self, memory_bytes: int) -> None:
        """Bound the memory from here on, and end the next call at the next tick of the engine's epoch."""
        self._store.set_limits(memory_size=memory_bytes, **_BOUNDS)
        self._store.set_epoch_deadline(1)

    def prepare(self, script: bytes, namespaces: bytes) -> bytes:
        return _call_for_text(self._prepare, self._store, script, namespaces)

    def execute(self, settings: bytes) -> bytes:
        return _call_for_text(self._execute, self._store, settings)

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


def compile_component(wasm: bytes) -> bytes:
    """Compile a component for this machine and this configuration; takes about 5 s and 350 MB.

    Raises:
        WasmtimeError: It is no component, or needs a feature that is off.
    """
    return bytes(Component(new_engine(), wasm).serialize())


def exit_status(error: WasmtimeError) -> int | None:
    """The status if the guest ended its process, else None."""
    return error.code if isinstance(error, ExitTrap) else None


def _export(component: Component, name: str) -> Any:
    index = component.get_export_index(name)
    if index is None:
        raise WasmtimeError(f"the component does not export {name}")
    return index


def _call(function: Any, store: Store, *texts: bytes, results: Any = None) -> None:
    values = (ffi.wasmtime_component_val_t * len(texts))()
    try:
        for value, text in zip(values, texts, strict=True):
            _set_text(value, text)
        count = 0 if results is None else 1
        error = ffi.wasmtime_component_func_call(
            byref(function), store._context(), values, len(texts), results, count
        )
    finally:
        for value in values:
            ffi.wasmtime_component_val_delete(byref(value))
    if error:
        raise WasmtimeError._from_ptr(error)


def _call_for_text(function: Any, store: Store, *texts: bytes) -> bytes:
    result = ffi.wasmtime_component_val_t()
    _call(function, store, *texts, results=byref(result))
    try:
        return _text(result)
    finally:
        ffi.wasmtime_component_val_delete(byref(result))


def _text(value: Any) -> bytes:
    vector = value.of.string
    return ctypes.string_at(vector.data, vector.size) if vector.size else b""


def _set_text(value: Any, text: bytes) -> None:
    vector = ffi.wasm_byte_vec_t()
    ffi.wasm_byte_vec_new(byref(vector), len(text), _byte_pointer(text))
    value.of.string = vector
    value.kind = _STRING


def _byte_pointer(text: bytes) -> Any:
    return ctypes.cast(ctypes.c_char_p(text), ctypes.POINTER(ffi.wasm_byte_t))


_FINALIZER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _link(linker: Linker, host: HostFunctions) -> tuple[Any, ...]:
    """Register the host functions. The returned callbacks must live as long as the linker."""

    def exchange(arguments: Any, results: Any) -> None:
        _set_text(results[0], host.exchange(_text(arguments[0]), arguments[1].of.s64))

    def print_text(arguments: Any, results: Any) -> None:
        host.print(_text(arguments[0]))

    def emit(arguments: Any, results: Any) -> None:
        host.emit(_text(arguments[0]))

    finalizer = _FINALIZER(lambda _: None)
    callbacks = [finalizer]
    with linker.root() as root, root.add_instance(_HOST) as instance:
        for name, function in ((b"exchange", exchange), (b"print", print_text), (b"emit", emit)):
            callback = _callback(function)
            buffer = ctypes.create_string_buffer(name)
            error = ffi.wasmtime_component_linker_instance_add_func(
                instance.ptr(), buffer, len(name), callback, None, finalizer
            )
            if error:
                raise WasmtimeError._from_ptr(error)
            callbacks.append(callback)
    return tuple(callbacks)


def _callback(function: Callable[[Any, Any], None]) -> Any:
    def enter(_data: Any, _context: Any, _type: Any, arguments: Any, _n: Any, results: Any, _m: Any) -> int:
        try:
            function(arguments, results)
        except WasmtimeError as error:
            return _error_pointer(error)
        except BaseException as error:  # noqa: BLE001  # an exception must not unwind through native frames
            return _error_pointer(WasmtimeError(f"host function failed: {type(error).__name__}"))
        return 0

    return ffi.wasmtime_component_func_callback_t(enter)


def _error_pointer(error: WasmtimeError) -> int:
    return ctypes.cast(error._consume(), ctypes.c_void_p).value or 0
