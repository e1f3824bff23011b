"""Values and calls across the engine's border, through wasmtime's C bindings.

The Python wrapper looks up the types of every call anew (20 us each) and passes exceptions through a variable
of the whole process; here a host function lets nothing out but an error pointer, and text stays bytes.
"""

import ctypes
from collections.abc import Callable
from ctypes import byref
from typing import Any, TypeAlias

import wasmtime._ffi as ffi
from wasmtime import Store, WasmtimeError
from wasmtime.component import Linker

HostFunction: TypeAlias = Callable[[Any, Any], None]
"""Takes the array of argument values and the array of result values."""

_STRING: int = ffi.WASMTIME_COMPONENT_STRING.value
_LIST: int = ffi.WASMTIME_COMPONENT_LIST.value
_U8: int = ffi.WASMTIME_COMPONENT_U8.value
_U32: int = ffi.WASMTIME_COMPONENT_U32.value
_U64: int = ffi.WASMTIME_COMPONENT_U64.value
_RECORD: int = ffi.WASMTIME_COMPONENT_RECORD.value
_VALUE_BYTES = ctypes.sizeof(ffi.wasmtime_component_val_t)
_CONTENT_OFFSET: int = ffi.wasmtime_component_val_t.of.offset


def call(function: Any, store: Store, *texts: bytes, results: Any = None) -> None:
    """Call an export that takes strings.

    Raises:
        WasmtimeError: The guest trapped, or was stopped.
    """
    values = (ffi.wasmtime_component_val_t * len(texts))()
    try:
        for value, text in zip(values, texts, strict=True):
            set_text(value, text)
        count = 0 if results is None else 1
        error = ffi.wasmtime_component_func_call(
            byref(function), store._context(), values, len(texts), results, count
        )
    finally:
        for value in values:
            ffi.wasmtime_component_val_delete(byref(value))
    if error:
        raise WasmtimeError._from_ptr(error)


def call_for_text(function: Any, store: Store, *texts: bytes, most: int) -> bytes:
    """Call an export that takes strings and returns one; of a longer one than `most` bytes, one byte more."""
    result = ffi.wasmtime_component_val_t()
    call(function, store, *texts, results=byref(result))
    try:
        return Text(result).read(most + 1)
    finally:
        ffi.wasmtime_component_val_delete(byref(result))


class Text:
    """A string of the guest, not copied yet: its size is looked at first. It lives as long as the call."""

    __slots__ = ("_vector", "size")

    def __init__(self, value: Any) -> None:
        self._vector = value.of.string
        self.size: int = self._vector.size

    def read(self, most: int) -> bytes:
        """Its first `most` bytes, UTF-8."""
        size = min(self.size, most)
        return ctypes.string_at(self._vector.data, size) if size else b""


def set_text(value: Any, text: bytes) -> None:
    vector = ffi.wasm_byte_vec_t()
    source = ctypes.cast(ctypes.c_char_p(text), ctypes.POINTER(ffi.wasm_byte_t))
    ffi.wasm_byte_vec_new(byref(vector), len(text), source)
    value.of.string = vector
    value.kind = _STRING


def set_u64(value: Any, number: int) -> None:
    value.of.u64 = number
    value.kind = _U64


def set_bytes(value: Any, content: bytes) -> None:
    """Set a `list<u8>`: each byte is a value of its own, 32 bytes wide, so keep it short."""
    ffi.wasmtime_component_vallist_new_uninit(byref(value.of.list), len(content))
    layout = bytearray(len(content) * _VALUE_BYTES)
    layout[::_VALUE_BYTES] = bytes([_U8]) * len(content)
    layout[_CONTENT_OFFSET::_VALUE_BYTES] = content
    ctypes.memmove(value.of.list.data, bytes(layout), len(layout))
    value.kind = _LIST


class Datetime:
    """WASI's record of seconds and nanoseconds: made once and copied, since building one is ten times the work."""

    def __init__(self) -> None:
        self._model = ffi.wasmtime_component_val_t()
        fields = self._model.of.record
        ffi.wasmtime_component_valrecord_new_uninit(byref(fields), 2)
        self._model.kind = _RECORD
        self._seconds, self._nanoseconds = fields.data[0].val, fields.data[1].val
        fields.data[0].name, fields.data[1].name = ffi.str_to_capi("seconds"), ffi.str_to_capi("nanoseconds")
        set_u64(self._seconds, 0)
        self._nanoseconds.kind = _U32
        self._source = byref(self._model)

    def set(self, value: Any, seconds: int, nanoseconds: int) -> None:
        self._seconds.of.u64 = seconds
        self._nanoseconds.of.u32 = nanoseconds
        ffi.wasmtime_component_val_clone(self._source, byref(value))


def link(linker: Linker, instance: str, functions: dict[str, HostFunction]) -> list[Any]:
    """Offer functions to guests as an instance. What is returned must live as long as the linker."""
    kept: list[Any] = [_NO_FINALIZER]
    with linker.root() as root, root.add_instance(instance) as target:
        for name, function in functions.items():
            callback = _callback(function)
            encoded = name.encode()
            error = ffi.wasmtime_component_linker_instance_add_func(
                target.ptr(),
                ctypes.create_string_buffer(encoded),
                len(encoded),
                callback,
                None,
                _NO_FINALIZER,
            )
            if error:
                raise WasmtimeError._from_ptr(error)
            kept.append(callback)
    return kept


_NO_FINALIZER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)


def _callback(function: HostFunction) -> Any:
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
