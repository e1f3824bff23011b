"""The wasm engine: its fixed configuration, what it links into the guest, one live instance, and its memory.

Values and calls cross its border through wasmtime's C bindings. The Python wrapper looks up the types of every call
anew (20 us each) and passes exceptions through a variable of the whole process; here a host function lets nothing out
but an error pointer, and text stays bytes.
"""

import ctypes
import mmap
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import byref
from functools import partial
from itertools import groupby
from struct import Struct
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias

import wasmtime._ffi as ffi
from wasmtime import Config, Engine, Store, WasiConfig, WasmtimeError
from wasmtime.component import Component, Linker

from sandbox_runtime.worker.lockdown import end_with_parent

if TYPE_CHECKING:
    from sandbox_runtime.worker.run_host import RunHost

HostFunction: TypeAlias = Callable[[Any, Any], None]
"""Takes the array of argument values and the array of result values."""

_MAX_WASM_STACK = 1 << 20
# What the component needs to exist at all: 366 pages, 30 core instances, 1 memory, 8 tables.
_BOUNDS = {"table_elements": 50_000, "instances": 40, "tables": 16, "memories": 1}
_START_MEMORY_BYTES = 64 << 20
_EXPORTS = ("wake", "prepare", "execute")

NEEDED_FEATURES = ("wasm_bulk_memory", "wasm_component_model", "wasm_reference_types")
"""What CPython needs of WebAssembly. All else that the engine could do is off: most advisories are about that."""

CONFIGURATION = f"cranelift epoch stack={_MAX_WASM_STACK} {' '.join(NEEDED_FEATURES)}"
"""Names the configuration: code compiled under another one is not loaded."""

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
    offered = {name[len("wasmtime_config_") : -len("_set")] for name in dir(ffi) if name.endswith("_set")}
    features = {name for name in offered if name.startswith("wasm_")}
    for feature in (features - {*NEEDED_FEATURES}) | {"shared_memory", "gc_support", "concurrency_support"}:
        getattr(ffi, f"wasmtime_config_{feature}_set")(config.ptr(), False)
    return Engine(config)


def bound(store: Store, memory_bytes: int) -> None:
    """Let what runs in a store have no more than this, and end with the next tick of the engine's epoch."""
    store.set_limits(memory_size=memory_bytes, **_BOUNDS)
    store.set_epoch_deadline(1)


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


class GuestEngine:
    """The engine with the guest component loaded and linked."""

    def __init__(self, compiled: str, host: "RunHost") -> None:
        """Load a file that `compile_file` made: native code, so it comes from a private place. Raises WasmtimeError."""
        self.engine = new_engine()
        self.component = Component.deserialize_file(self.engine, compiled)
        self.linker = Linker(self.engine)
        self.linker.add_wasip2()
        self.linker.allow_shadowing = True
        self._kept = [_link(self.linker, name, functions) for name, functions in _interfaces(host).items()]
        self.exports = {name: self.component.get_export_index(name) for name in _EXPORTS}
        self.memory = GuestMemory(compiled)

    def instantiate(self) -> "GuestInstance":
        """A new instance, ready for a script. The one before must be closed: there is one at a time."""
        instance = GuestInstance(self)
        self.memory.touch_hot_pages()
        instance.call("wake")
        return instance


class GuestInstance:
    """One live guest: some 0.8 ms to make, 4 MB of its own (benchmarks/sandbox), dead after any trap."""

    def __init__(self, engine: GuestEngine) -> None:
        """One that has not woken yet."""
        self._store = Store(engine.engine)
        # No arguments, environment, directories or sockets: WasiConfig grants nothing that is not asked for.
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

    def limit(self, memory_bytes: int) -> None:
        """Bound the memory from here on, and let the next tick of the engine's epoch end what runs."""
        bound(self._store, memory_bytes)

    def call(self, name: str, *texts: bytes, most: int | None = None) -> bytes:
        """Call an export of wit/sandbox.wit; of an answer longer than `most` bytes, one byte more comes back.

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
                raise WasmtimeError._from_ptr(error)
            return b"" if most is None else Text(result).read(most + 1)
        finally:
            for value in (*values, result):
                ffi.wasmtime_component_val_delete(byref(value))

    def close(self) -> None:
        self._store.close()


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


def _interfaces(host: "RunHost") -> dict[str, dict[str, HostFunction]]:
    """What guests can call. The clocks and the randomness belong to a run, not to the machine (docs/decisions/0006).

    Whole interfaces: what is linked under a name takes the place of all that the engine has under it.
    """

    def wait(_: Any, __: Any) -> None:
        # The engine's own timers know another time, and nothing ends them. The guest's Python waits in `exchange`.
        host.refuse_to_wait()

    def random_bytes(given: Any, out: Any) -> None:
        size = given[0].of.u64
        if size > _MAX_RANDOM_BYTES:
            raise WasmtimeError(f"{size} random bytes at once")
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
    """Offer functions to guests as an instance. What is returned must live as long as the linker."""
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
    """Set a `list<u8>`: each byte is a value of its own, 32 bytes wide, so keep it short."""
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


_MAPS_BYTES = 1 << 20
_PAGE_BYTES = mmap.PAGESIZE
_ENTRY = Struct("<Q")  # of /proc/self/pagemap, one for each page
_PRESENT, _OF_FILE = 1 << 63, 1 << 61
_POPULATE_WRITE = 23  # since Linux 5.14; an older one refuses, and pages fault as ever


class GuestMemory:
    """The memory of the one live instance, looked for in what the kernel tells of this process (Linux).

    It is a private mapping of the compiled component. The first write to each page is a fault that copies it: some
    600 of them in a script with a few calls, at 2.6 us each. Which pages these are hardly depends on the script. They
    are learned once, and then asked for in one go: at half the price, and before a script waits
    (`python -m benchmarks.sandbox`).
    """

    def __init__(self, compiled: str) -> None:
        self._inode = str(os.stat(compiled).st_ino).encode()
        self._maps: BinaryIO | None = None
        self._hot_ranges: Sequence[tuple[int, int]] = ()
        """Offset and size of each, in bytes from the start of the memory."""
        self._start = 0
        self._madvise = ctypes.CDLL(None).madvise
        self._madvise.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]

    def open(self) -> None:
        """Open what tells where the memory lies. Comes after a fork, and before files are given up."""
        with suppress(OSError):  # other systems have no such file
            self._maps = open("/proc/self/maps", "rb", buffering=0)  # noqa: SIM115  # stays open

    def size_bytes(self) -> int:
        """How much the instance has by now, from its image on; 0 where that cannot be seen.

        What it may still grow into lies behind that and is not writable, so nothing else lies side by side with it.
        """
        mappings = self._writable()
        first, last = self._image(mappings)
        for start, end, _ in mappings:
            if start == last:
                last = end
        return last - first

    def learn_hot_pages(self) -> None:
        """Take the pages that were written to in the one instance that is alive: those no longer the file's."""
        self.open()
        start, end = self._image(self._writable())
        with suppress(OSError), open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
            pagemap.seek(start // _PAGE_BYTES * _ENTRY.size)
            entries = _ENTRY.iter_unpack(pagemap.read((end - start) // _PAGE_BYTES * _ENTRY.size))
            ranges, offset = [], 0
            for is_own, pages in groupby(entries, lambda entry: entry[0] & (_PRESENT | _OF_FILE) == _PRESENT):
                size = sum(1 for _ in pages) * _PAGE_BYTES
                if is_own:
                    ranges.append((offset, size))
                offset += size
            self._hot_ranges = ranges

    def touch_hot_pages(self) -> None:
        """Have them copied in the one instance that is alive, and new. Where they cannot be, only time is lost."""
        if not self._touch():
            # The memory of this instance lies elsewhere than that of the one before.
            self._start, _ = self._image(self._writable())
            if not self._touch():
                self._hot_ranges = ()  # a kernel that does not know how

    def _touch(self) -> bool:
        madvise, start = self._madvise, self._start
        return all(madvise(start + offset, size, _POPULATE_WRITE) == 0 for offset, size in self._hot_ranges)

    def _writable(self) -> list[tuple[int, int, bytes]]:
        """Where each writable mapping starts and ends, and the inode of its file; by address."""
        if self._maps is None:
            return []
        text = b""
        while more := os.pread(self._maps.fileno(), _MAPS_BYTES, len(text)):  # about a page at a time
            text += more
        found = []
        for line in text.splitlines():
            place, access, _, _, inode, *_ = line.split(maxsplit=5)
            if b"w" in access:
                start, _, end = place.partition(b"-")
                found.append((int(start, 16), int(end, 16), inode))
        return found

    def _image(self, mappings: Sequence[tuple[int, int, bytes]]) -> tuple[int, int]:
        """Where the part lies that the compiled component is the image of: its largest writable mapping."""
        images = ((start, end) for start, end, inode in mappings if inode == self._inode)
        return max(images, key=lambda place: place[1] - place[0], default=(0, 0))
