"""The standard library, carried inside the component.

While the component is built, CPython's library is mounted; an instance has no files at all. So every module is
compiled and kept here, and what scripts commonly import is imported before the image is taken: that makes an
import free, where unpacking one would cost milliseconds.
"""

import importlib
import importlib.machinery
import marshal
import os
import sys
import types
import zlib
from collections.abc import Iterator, Sequence

_ROOT = "/python"
_LEFT_OUT = """
    __pycache__ site-packages test tests idlelib tkinter turtledemo turtle.py ensurepip venv pydoc_data curses
    antigravity.py this.py __hello__.py __phello__ config-3.14-wasm32-wasi
"""
_IMPORTED_AHEAD = """
    abc argparse array ast asyncio base64 bisect binascii calendar cmath codecs collections collections.abc
    concurrent.futures configparser contextlib contextvars copy csv dataclasses datetime decimal difflib
    email.utils enum errno fnmatch fractions functools glob graphlib gzip hashlib heapq hmac html html.entities
    html.parser importlib inspect io ipaddress itertools json keyword linecache locale logging math numbers
    operator os pathlib pickle platform pprint queue random re secrets shlex shutil signal sqlite3 statistics
    string string.templatelib struct tempfile textwrap threading time timeit tokenize tomllib traceback types
    typing unicodedata urllib.parse uuid warnings weakref xml.etree.ElementTree zipfile zlib zoneinfo
    encodings.idna encodings.latin_1 encodings.ascii encodings.utf_16
"""


class FrozenStdlib:
    """Finds modules of the standard library in memory."""

    def __init__(self) -> None:
        self._modules: dict[str, tuple[bool, str, bytes]] = {}

    @classmethod
    def install(cls) -> None:
        """Freeze everything under /python; runs while the component is built."""
        frozen = cls()
        for name, is_package, path in _walk(_ROOT, ""):
            with open(path, "rb") as source:
                code = compile(source.read(), path, "exec", dont_inherit=True, optimize=0)
            frozen._modules[name] = (is_package, path, zlib.compress(marshal.dumps(code), 9))
        sys.meta_path.append(frozen)
        for name in _IMPORTED_AHEAD.split():
            importlib.import_module(name)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        found = self._modules.get(name)
        if found is None:
            return None
        is_package, origin, _ = found
        spec = importlib.machinery.ModuleSpec(name, self, origin=origin, is_package=is_package)  # type: ignore[arg-type]
        spec.has_location = True
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        exec(self.get_code(module.__name__), module.__dict__)

    def get_code(self, name: str) -> types.CodeType:
        code: types.CodeType = marshal.loads(zlib.decompress(self._modules[name][2]))
        return code

    def is_package(self, name: str) -> bool:
        return self._modules[name][0]

    def get_source(self, name: str) -> None:
        return None


def _walk(folder: str, package: str) -> Iterator[tuple[str, bool, str]]:
    for entry in sorted(set(os.listdir(folder)).difference(_LEFT_OUT.split())):
        path = f"{folder}/{entry}"
        if entry == "__init__.py":
            yield package[:-1], True, path
        elif entry.endswith(".py"):
            yield package + entry[:-3], False, path
        elif os.path.isdir(path) and os.path.exists(f"{path}/__init__.py"):
            yield from _walk(path, f"{package}{entry}.")
