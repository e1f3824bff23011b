"""Imports the standard library, the packages and time zones from memory.

The files are mounted only while the component is built; an instance has no files. So all modules are compiled and
stored here. Common modules are imported before the image is taken, which makes their import free; unpacking one costs
milliseconds.
"""

import errno
import importlib
import importlib.machinery
import importlib.metadata
import io
import marshal
import os
import re
import sys
import types
import zipfile
import zlib
import zoneinfo
from collections.abc import Collection, Iterator, Sequence
from typing import Any, BinaryIO

_LIBRARY = "/python"
_PACKAGES = "/packages"  # the apparent folder of the packages
_TZDATA = f"{_PACKAGES}/tzdata"
_DIST_INFO = ".dist-info"
# tkinter and curses, which need C libraries; CPython's own tests; and files of the build.
_LEFT_OUT = """
    __pycache__ site-packages test tests idlelib tkinter turtledemo turtle.py curses _bundled
    __hello__.py __phello__ config-3.14-wasm32-wasi
""".split()  # noqa: SIM905
_IMPORTED_AHEAD = """
    abc argparse array ast asyncio base64 bisect binascii calendar cmath codecs collections collections.abc
    concurrent.futures configparser contextlib contextvars copy csv dataclasses datetime decimal difflib
    email.utils enum errno fnmatch fractions functools glob graphlib gzip hashlib heapq hmac html html.entities
    html.parser importlib inspect io ipaddress itertools json keyword linecache locale logging math numbers
    operator os pathlib pickle platform pprint queue random re secrets shlex shutil signal sqlite3 statistics
    string string.templatelib struct tempfile textwrap threading time timeit tokenize tomllib traceback types
    typing unicodedata urllib.parse uuid warnings weakref xml.etree.ElementTree zipfile zlib zoneinfo
    encodings.idna encodings.latin_1 encodings.ascii encodings.utf_16 importlib.metadata importlib.resources
    dateutil.parser dateutil.relativedelta dateutil.rrule dateutil.tz jinja2 jmespath more_itertools tabulate yaml
""".split()  # noqa: SIM905


def install() -> None:
    """Freeze the library and the packages. Runs while the component is built."""
    importer = FrozenImporter()
    sys.meta_path.insert(sys.meta_path.index(importlib.machinery.PathFinder), importer)
    importer.freeze(_LIBRARY, _LIBRARY, left_out=_LEFT_OUT)
    packages = os.path.join(os.path.dirname(__file__), os.pardir, os.pardir, "packages")
    importer.freeze(packages, _PACKAGES, with_files=True)
    for name in _IMPORTED_AHEAD:
        importlib.import_module(name)
    _install_time_zones(importer)


class FrozenImporter:
    """Finds modules, their data files and their distributions in memory."""

    def __init__(self) -> None:
        self._modules: dict[str, tuple[bool, str, bytes]] = {}
        self._files = zipfile.ZipFile(io.BytesIO(), "w", zipfile.ZIP_DEFLATED)
        self._files.filename = _PACKAGES

    def freeze(
        self, folder: str, path: str, *, left_out: Collection[str] = (), with_files: bool = False
    ) -> None:
        """Store the modules below `folder`, under the `path` for tracebacks and `__file__`.

        An existing name is kept, so no package replaces a part of the standard library.
        """
        for relative in _relative_paths(folder, left_out):
            is_module = relative.endswith(".py")
            if not (is_module or with_files):
                continue
            with open(f"{folder}/{relative}", "rb") as file:
                content = file.read()
            if not is_module:
                self._files.writestr(relative, content)
                continue
            shown = f"{path}/{relative}"
            parts = relative.removesuffix(".py").split("/")
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            if name not in self._modules:
                code = compile(content, shown, "exec", dont_inherit=True, optimize=0)
                self._modules[name] = (is_package, shown, zlib.compress(marshal.dumps(code), 9))

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        found = self._modules.get(name)
        if found is None:
            return None
        is_package, origin, _ = found
        spec = importlib.machinery.ModuleSpec(name, self, origin=origin, is_package=is_package)  # type: ignore[arg-type]
        spec.has_location = True
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(os.path.dirname(origin))
        return spec

    def find_distributions(self, context: Any) -> Iterator[importlib.metadata.Distribution]:
        """The distribution `context.name`, or all, for `importlib.metadata`."""
        wanted = None if context.name is None else re.sub(r"[-_.]+", "_", context.name).lower()
        for folder in zipfile.Path(self._files).iterdir():
            if folder.suffix == _DIST_INFO and wanted in (None, folder.name.partition("-")[0]):
                yield importlib.metadata.PathDistribution(folder)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        exec(self.get_code(module.__name__), module.__dict__)

    def get_code(self, name: str) -> types.CodeType:
        code: types.CodeType = marshal.loads(zlib.decompress(self._modules[name][2]))
        return code

    def get_data(self, path: str) -> bytes:
        """A data file beside the modules, for `pkgutil.get_data`. Raises FileNotFoundError."""
        try:
            return self._files.read(path.removeprefix(f"{_PACKAGES}/"))
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None

    def get_resource_reader(self, name: str) -> types.SimpleNamespace:
        """The data files of one package."""
        folder = os.path.dirname(self._modules[name][1]).removeprefix(f"{_PACKAGES}/")
        return types.SimpleNamespace(files=lambda: zipfile.Path(self._files, f"{folder}/"))


def _install_time_zones(importer: FrozenImporter) -> None:
    """Let `zoneinfo` find every zone of the tzdata package without importing its folders."""
    names = frozenset(importer.get_data(f"{_TZDATA}/zones").decode().split())

    def load_tzdata(key: str) -> BinaryIO:
        if key not in names:
            raise zoneinfo.ZoneInfoNotFoundError(f"No time zone found with key {key}")
        return io.BytesIO(importer.get_data(f"{_TZDATA}/zoneinfo/{key}"))

    common: Any = zoneinfo._common  # used by both implementations
    common.load_tzdata = load_tzdata
    zoneinfo.available_timezones = lambda: set(names)


def _relative_paths(folder: str, left_out: Collection[str]) -> Iterator[str]:
    """The path of every file below `folder`, without the names in `left_out`."""
    for entry in sorted(os.listdir(folder)):
        if entry in left_out:
            continue
        if os.path.isdir(f"{folder}/{entry}"):
            yield from (f"{entry}/{path}" for path in _relative_paths(f"{folder}/{entry}", left_out))
        else:
            yield entry
