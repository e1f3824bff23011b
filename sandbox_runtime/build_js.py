"""Builds the component of the JavaScript kernel: `python -m sandbox_runtime.build_js` makes `js.wasm`.

QuickJS-ng (its sdist on PyPI) and `guest_js/guest.c` are compiled by Zig (its wheel on PyPI), which takes up to two
minutes of CPU time. The module then runs once: it starts the engine and loads our JavaScript. Its memory afterwards
becomes the image that every instance starts with. A stamp beside `js.wasm` shows whether it is current.
"""

import importlib.util
import os
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from manifests.own_files import cache_folder, is_private, write_whole
from sandbox_runtime.build_guest import ComponentBuild, run_tool
from sandbox_runtime.errors import BakeError, BakeToolsError

REQUIREMENTS = ("pip>=25", "wasmtime==50.0.1", "ziglang==0.15.2")
"""The requirements of a build. pip gets the sdist, as its configuration says."""

_SDIST = "quickjs-ng==0.17.0.2"
_SDIST_SHA256 = "43d2e48272208721a7aaea8e3f02d4b9318f12ef20cc4f5421b59d9a470706ef"
_C_FILES = ("quickjs.c", "libregexp.c", "libunicode.c", "dtoa.c")
_COMPILE = (
    *("cc", "-target", "wasm32-wasi", "-O2", "-fno-sanitize=all", "-DNDEBUG", "-D_GNU_SOURCE", "-w"),
    *("-mexec-model=reactor", "-s", "-Wl,-z,stack-size=1048576"),
)
_LIBRARY = ("values.js", "builtins.js", "calls.js", "portal.js", "globals.js", "locale.js", "library.js")
"""The parts of one function, in this order."""

_ANALYSIS = (
    *("trees", "typescript", "names", "values", "awaits", "reachability", "absences", "usage"),
    *("repairs", "errors", "script"),
)
"""The parts of another function."""


class JsBuild(ComponentBuild):
    """The build of JavaScript's component."""

    name = "js"
    requirements = REQUIREMENTS

    def __init__(self, package: Path) -> None:
        super().__init__(package)
        self._sources = package / "guest_js"

    def sources(self) -> Iterable[Path]:
        own = (path for path in self._sources.rglob("*") if path.is_file())
        return (self.package / "build_guest.py", self.package / "build_js.py", *sorted(own))

    def built(self, display: Callable[[str], None]) -> bytes:
        _need("wasmtime")
        return component_around(make_image(self._core(display), self._analysis(), self._library()))

    def _library(self) -> str:
        parts = "".join((self._sources / name).read_text() for name in _LIBRARY)
        return f'(host, analysis) => {{"use strict";{parts}}}'

    def _analysis(self) -> str:
        """The parsers, of which one is an ES module, and our analysis over them, as one expression."""
        acorn, typescript = (
            (self._sources / f"vendor/{name}.js").read_text() for name in ("acorn", "acorn-typescript")
        )
        typescript = re.sub(r'import \* as (\w+) from "acorn";', r"const \1 = exports;", typescript)
        typescript = re.sub(r"export \{\s*tsPlugin\s*\};", "", typescript)
        ours = (self._sources / "builtins.js").read_text()
        ours += "".join((self._sources / "analysis" / f"{name}.js").read_text() for name in _ANALYSIS)
        parts = f"const exports = {{}}, module = {{}};\n{acorn}\n{typescript}"
        return f'(() => {{ {parts}\nreturn (() => {{"use strict";{ours}}})(); }})()'

    def _core(self, display: Callable[[str], None]) -> bytes:
        """The compiled module, without our JavaScript. It is kept, so that a change of that needs no compiler.

        The folder is trusted like for code that is compiled ahead of time (aot.py).
        """
        folder = cache_folder(os.environ)
        guest = self._sources / "guest.c"
        key = self.hashed([guest, guest.with_name("stack.h")], (_SDIST_SHA256, _COMPILE))
        kept = folder / f"guest-quickjs-{key[:32]}.wasm"
        if is_private(folder) and kept.is_file():
            return kept.read_bytes()
        display("compiling QuickJS for the JavaScript kernel (about a minute)")
        with tempfile.TemporaryDirectory() as scratch:
            core = compile_core(guest, Path(scratch))
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(kept, core, is_lasting=False)
        except OSError:
            display("the compiled QuickJS is not kept, because the cache folder cannot be written")
        return core


def compile_core(guest: Path, scratch: Path) -> bytes:
    """Compile QuickJS and `guest` to a core module, with a compiler for each core. Raises BakeError."""
    _need("pip", "ziglang")
    sources = fetch_sources(scratch)
    # Ours first: its clocks replace those of the C library.
    files = [guest, *(sources / name for name in _C_FILES)]
    options = ["-I", str(sources), "-include", str(guest.with_name("stack.h")), "-o", "core.wasm"]
    _run("ziglang", [*_COMPILE, *options, *map(str, files)], scratch)
    return (scratch / "core.wasm").read_bytes()


def fetch_sources(scratch: Path) -> Path:
    """Download the sdist of QuickJS-ng, check its hash, and unpack its sources. Raises BakeError."""
    options = ("--no-deps", "--no-binary", "quickjs-ng", "--require-hashes", "-r", "requirements.txt")
    (scratch / "requirements.txt").write_text(f"{_SDIST} --hash=sha256:{_SDIST_SHA256}\n")
    hint = f"\nWithout network: put the sdist of {_SDIST} in a folder and its path in PIP_FIND_LINKS, or use a wheel."
    _run("pip", ["--disable-pip-version-check", "--no-input", "download", *options], scratch, hint)
    with tarfile.open(next(scratch.glob("quickjs_ng-*.tar.gz"))) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python before 3.11.4 has none
        archive.extractall(scratch)
    return next(scratch.glob("quickjs_ng-*/upstream-quickjs"))


def _need(*tools: str) -> None:
    for tool in tools:
        if importlib.util.find_spec(tool) is None:
            needs = " ".join(REQUIREMENTS)
            raise BakeToolsError(
                f"the JavaScript kernel cannot be built: {tool} is not installed. It needs: {needs}"
            )


def _run(module: str, arguments: list[str], folder: Path, hint: str = "") -> None:
    start = f"import runpy; runpy.run_module({module!r}, run_name='__main__')"
    run_tool(f"the JavaScript kernel was not built: {module}", start, arguments, folder, hint=hint)


def make_image(core: bytes, analysis: str, library: str) -> bytes:
    """The module with the memory that it has after the engine started and loaded our JavaScript."""
    from wasmtime import Engine, Func, Linker, Module, Store

    store = Store(engine := Engine())
    module, linker = Module(engine, core), Linker(engine)
    for needed in module.imports:

        def refuse(*given: int, name: str = needed.name or "") -> None:
            what = (
                memory.read(store, given[0], sum(given[:2])).decode()
                if name == "print"
                else f"it uses {name}"
            )
            raise BakeError(f"the JavaScript of the kernel does not load: {what}")

        linker.define(store, needed.module, needed.name or "", Func(store, needed.type, refuse))  # type: ignore[arg-type]
    exports: Any = linker.instantiate(store, module).exports(store)
    memory = exports["memory"]

    def load(name: str, source: str) -> None:
        content = source.encode()
        at = exports["cabi_realloc"](store, 0, 0, 1, len(content) + 1)
        memory.write(store, content + b"\0", at)
        exports[name](store, at, len(content))

    exports["_initialize"](store)
    exports["image_begin"](store)
    load("image_analysis", analysis)
    load("image_library", library)
    exports["image_end"](store)
    return with_memory(core, bytes(memory.read(store, 0, memory.data_len(store))))


_CUSTOM, _MEMORY, _EXPORTS, _START, _DATA, _DATA_COUNT = 0, 5, 7, 8, 11, 12
_CORE_MODULE = 1
_BUILD_ONLY = re.compile(rb"_initialize|image_\w+")
_GAP = 64
_PAGE_BYTES = 1 << 16


def with_memory(module: bytes, memory: bytes) -> bytes:
    """A module that starts with this memory, and without what only the build needs."""
    runs = [match.span() for match in re.finditer(rb"[^\0](?:\0{0,%d}[^\0])*" % _GAP, memory, re.DOTALL)]
    contents = {
        _MEMORY: b"\x01\x00" + _number(len(memory) // _PAGE_BYTES),
        _DATA_COUNT: _number(len(runs)),
        _DATA: _number(len(runs))
        + b"".join(b"\0\x41%b\x0b%b%b" % (_signed(a), _number(b - a), memory[a:b]) for a, b in runs),
    }
    parts = [module[:8]]
    for kind, content in _sections(module):
        if kind in (_CUSTOM, _START):
            continue
        content = _lasting_exports(content) if kind == _EXPORTS else contents.get(kind, content)
        parts.append(bytes([kind]) + _number(len(content)) + content)
    return b"".join(parts)


def _lasting_exports(content: bytes) -> bytes:
    total, at = _read_number(content, 0)
    kept = []
    for _ in range(total):
        start = at
        size, at = _read_number(content, at)
        name = content[at : at + size]
        _, at = _read_number(content, at + size + 1)
        if not _BUILD_ONLY.fullmatch(name):
            kept.append(content[start:at])
    return _number(len(kept)) + b"".join(kept)


def _sections(module: bytes) -> Iterator[tuple[int, bytes]]:
    at = 8
    while at < len(module):
        size, start = _read_number(module, at + 1)
        yield module[at], module[start : start + size]
        at = start + size


def _read_number(source: bytes, at: int) -> tuple[int, int]:
    """An unsigned LEB128 number, and the place after it."""
    number = 0
    for shift in count(0, 7):
        number |= (source[at] & 0x7F) << shift
        at += 1
        if source[at - 1] < 0x80:
            break
    return number, at


def _number(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def _signed(number: int) -> bytes:
    """A non-negative number as signed LEB128: its seventh bit must not look like a sign."""
    encoded = _number(number)
    return encoded if encoded[-1] < 0x40 else encoded[:-1] + bytes([encoded[-1] | 0x80, 0])


_WORLD = """
(component
  (import "portal:sandbox/host@0.1.0" (instance $host
    (export "exchange" (func (param "outbox" string) (param "timeout-ms" s64) (result string)))
    (export "print" (func (param "text" string)))
    (export "emit" (func (param "block" string)))))
  (import "wasi:clocks/monotonic-clock@0.2.9" (instance $clock (export "now" (func (result u64)))))
  (import "wasi:clocks/wall-clock@0.2.9" (instance $wall
    (type $record (record (field "seconds" u64) (field "nanoseconds" u32)))
    (export "datetime" (type $datetime (eq $record)))
    (export "now" (func (result $datetime)))))
  (import "wasi:random/random@0.2.9" (instance $random (export "get-random-u64" (func (result u64)))))
  (core module $main)
  ;; The functions below need the memory of $main, which needs them as imports: so it calls them through a table.
  (core module $indirect
    (type $exchange (func (param i32 i32 i64 i32)))
    (type $text (func (param i32 i32)))
    (type $now (func (param i32)))
    (table (export "table") 4 4 funcref)
    (func (export "exchange") (type $exchange)
      local.get 0 local.get 1 local.get 2 local.get 3 i32.const 0 call_indirect (type $exchange))
    (func (export "print") (type $text) local.get 0 local.get 1 i32.const 1 call_indirect (type $text))
    (func (export "emit") (type $text) local.get 0 local.get 1 i32.const 2 call_indirect (type $text))
    (func (export "now") (type $now) local.get 0 i32.const 3 call_indirect (type $now)))
  (core module $filled
    (type $exchange (func (param i32 i32 i64 i32)))
    (type $text (func (param i32 i32)))
    (type $now (func (param i32)))
    (import "" "table" (table 4 4 funcref))
    (import "" "exchange" (func $0 (type $exchange)))
    (import "" "print" (func $1 (type $text)))
    (import "" "emit" (func $2 (type $text)))
    (import "" "now" (func $3 (type $now)))
    (elem (i32.const 0) func $0 $1 $2 $3))
  ;; There are no files: 8 is EBADF.
  (core module $no_files
    (func (export "fd_close") (param i32) (result i32) i32.const 8)
    (func (export "fd_fdstat_get") (param i32 i32) (result i32) i32.const 8)
    (func (export "fd_seek") (param i32 i64 i32 i32) (result i32) i32.const 8)
    (func (export "fd_write") (param i32 i32 i32 i32) (result i32) i32.const 8))
  (core instance $i (instantiate $indirect))
  (core instance $files (instantiate $no_files))
  (core func $monotonic (canon lower (func $clock "now")))
  (core func $get_random (canon lower (func $random "get-random-u64")))
  (core instance $m (instantiate $main
    (with "wasi_snapshot_preview1" (instance $files))
    (with "portal:sandbox/host@0.1.0" (instance
      (export "exchange" (func $i "exchange"))
      (export "print" (func $i "print"))
      (export "emit" (func $i "emit"))))
    (with "wasi:clocks/monotonic-clock@0.2.9" (instance (export "now" (func $monotonic))))
    (with "wasi:clocks/wall-clock@0.2.9" (instance (export "now" (func $i "now"))))
    (with "wasi:random/random@0.2.9" (instance (export "get-random-u64" (func $get_random))))))
  (alias core export $m "memory" (core memory $memory))
  (alias core export $m "cabi_realloc" (core func $realloc))
  (core func $0 (canon lower (func $host "exchange") (memory $memory) (realloc $realloc)))
  (core func $1 (canon lower (func $host "print") (memory $memory)))
  (core func $2 (canon lower (func $host "emit") (memory $memory)))
  (core func $3 (canon lower (func $wall "now") (memory $memory)))
  (core instance (instantiate $filled (with "" (instance
    (export "table" (table $i "table"))
    (export "exchange" (func $0))
    (export "print" (func $1))
    (export "emit" (func $2))
    (export "now" (func $3))))))
  (func (export "wake") (canon lift (core func $m "wake")))
  (func (export "prepare") (param "script" string) (param "namespaces" string) (result string)
    (canon lift (core func $m "prepare") (memory $memory) (realloc $realloc)
      (post-return (core func $m "cabi_post_prepare"))))
  (func (export "execute") (param "settings" string) (result string)
    (canon lift (core func $m "execute") (memory $memory) (realloc $realloc)
      (post-return (core func $m "cabi_post_execute")))))
"""
"""The world of wit/sandbox.wit around a core module. $main is empty: the module takes its place."""


def component_around(module: bytes) -> bytes:
    from wasmtime import wat2wasm

    empty = bytes(wat2wasm(_WORLD))
    parts, is_placed = [empty[:8]], False
    for kind, content in _sections(empty):
        if kind == _CORE_MODULE and not is_placed:
            content, is_placed = module, True
        parts.append(bytes([kind]) + _number(len(content)) + content)
    return b"".join(parts)


if __name__ == "__main__":
    JsBuild.main()
