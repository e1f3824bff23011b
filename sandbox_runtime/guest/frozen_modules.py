"""The modules carried inside the component: the standard library and packages.

While the component is built their files are mounted; an instance has no files at all. So every module is compiled
and kept here, and what scripts commonly import is imported before the image is taken: that makes an import free,
where unpacking one would cost milliseconds.
"""

import importlib.machinery
import marshal
import os
import sys
import types
import zlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from sandbox_runtime.guest.frozen_distribution import distributions
from sandbox_runtime.guest.frozen_files import FrozenFiles, FrozenReader, relative_paths


class FrozenModules:
    """Finds modules in memory, reads the data files beside them, and knows the distributions they came in."""

    def __init__(self) -> None:
        self.files = FrozenFiles()
        self._modules: dict[str, tuple[bool, str, bytes]] = {}

    @classmethod
    def install(cls) -> "FrozenModules":
        """Be asked before any file is looked for."""
        frozen = cls()
        sys.meta_path.insert(sys.meta_path.index(importlib.machinery.PathFinder), frozen)
        return frozen

    def freeze(self, folder: str, path: str, *, left_out: Collection[str] = ()) -> None:
        """Keep every module below `folder`, under the `path` that tracebacks and `__file__` are to show.

        A name that is taken stays as it is: no package replaces a part of the standard library.
        """
        for name, is_package, relative in _modules(folder, left_out):
            if name in self._modules:
                continue
            shown = f"{path}/{relative}"
            with open(f"{folder}/{relative}", "rb") as source:
                code = compile(source.read(), shown, "exec", dont_inherit=True, optimize=0)
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

    def find_distributions(self, context: Any) -> Iterator[Any]:
        """What `importlib.metadata` asks: the distribution `context.name`, or all of them."""
        return distributions(self.files, context.name)

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

    def get_data(self, path: str) -> bytes:
        return self.files.read(path)

    def get_resource_reader(self, name: str) -> FrozenReader:
        return FrozenReader(self.files, os.path.dirname(self._modules[name][1]))


def _modules(folder: str, left_out: Collection[str]) -> Iterator[tuple[str, bool, str]]:
    """Every module below a folder: its name, whether it is a package, and its path from there."""
    for relative in relative_paths(folder, left_out):
        if relative.endswith(".py"):
            parts = relative.removesuffix(".py").split("/")
            is_package = parts[-1] == "__init__"
            yield ".".join(parts[:-1] if is_package else parts), is_package, relative
