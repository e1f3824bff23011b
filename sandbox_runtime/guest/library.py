"""The names through which a script reaches upstream functions: `git`, `tools.git`, and their imports."""

import builtins
import difflib
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sandbox_runtime.guest.calls import Call, Calls, function_of

_DUNDER = "__"


class Library:
    """All namespaces of a run.

    They are found like builtins, so that a script's own variable of that name hides one, and are importable.
    A table, where the host sent one, is text: a line break, then for each function "name signature" and a
    line break. It is searched as text, because most runs ask for one function of hundreds.
    """

    def __init__(self, calls: Calls) -> None:
        self.namespaces: frozenset[str] = frozenset()
        self._calls = calls
        self._open: dict[str, Namespace] = {}
        self._shown: set[str] = set()
        sys.meta_path.insert(0, _NamespaceFinder(self))
        self._tools = _Tools(self)
        sys.modules["tools"] = self._tools
        builtins.tools = self._tools  # type: ignore[attr-defined]

    def offer(self, namespaces: frozenset[str]) -> None:
        """Set which namespaces there are."""
        if namespaces == self.namespaces:
            return
        for name in self.namespaces - namespaces:
            self._open.pop(name, None)
            sys.modules.pop(name, None)
            sys.modules.pop(f"tools.{name}", None)
            self._tools.__dict__.pop(name, None)
        self.namespaces = namespaces

    def show(self, names: Iterable[str], tables: Mapping[str, str]) -> None:
        """Make the namespaces a script mentions visible to it, with what is known of their functions."""
        for name in self._shown:
            builtins.__dict__.pop(name, None)
        self._shown = {name for name in {*names, *tables} if name in self.namespaces}
        for name in self._shown:
            namespace = self.namespace(name)
            namespace.tabulate(tables.get(name))
            builtins.__dict__[name] = namespace

    def namespace(self, name: str) -> "Namespace":
        namespace = self._open.get(name)
        if namespace is None:
            namespace = self._open[name] = Namespace(name, self._calls)
        return namespace


class Namespace(types.ModuleType):
    """One upstream's functions, as a module."""

    def __init__(self, name: str, calls: Calls) -> None:
        super().__init__(
            name, f"Functions of the upstream `{name}`; all are async and take keyword arguments."
        )
        self.__dict__["__calls"] = calls
        self.__dict__["__table"] = None
        self.__dict__["__made"] = {}

    def tabulate(self, table: str | None) -> None:
        hidden = self.__dict__
        if hidden["__table"] != table:
            hidden["__table"] = table
            for name in hidden["__made"]:
                hidden.pop(name, None)

    def __getattr__(self, name: str) -> Any:
        hidden = self.__dict__
        table: str | None = hidden["__table"]
        if name == "__all__" and table is not None:
            return _names(table)
        if name.startswith(_DUNDER) or not name.isidentifier():
            raise AttributeError(f"{self.__name__} has no attribute {name!r}")
        if table is not None and f"\n{name} " not in table:
            raise AttributeError(_missing_function(self.__name__, name, _names(table)))
        return self._make(name)

    def _make(self, name: str) -> Callable[..., Call]:
        hidden = self.__dict__
        function = function_of(
            hidden["__calls"], self.__name__, name, lambda: _signature(hidden["__table"], name)
        )
        function.__doc__ = _signature(hidden["__table"], name)
        hidden["__made"][name] = hidden[name] = function
        return function

    def __dir__(self) -> list[str]:
        return _names(self.__dict__["__table"] or "")

    def __repr__(self) -> str:
        table = self.__dict__["__table"]
        return (
            f"<namespace {self.__name__}>"
            if table is None
            else f"<namespace {self.__name__}: {len(_names(table))} functions>"
        )


class _Tools(types.ModuleType):
    """The package `tools`, which holds every namespace."""

    def __init__(self, library: Library) -> None:
        super().__init__("tools", "All namespaces; `from tools import NAMESPACE`.")
        self.__dict__["__library"] = library
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        library: Library = self.__dict__["__library"]
        if name in library.namespaces:
            return library.namespace(name)
        if name == "__all__":
            return sorted(library.namespaces)
        if name.startswith(_DUNDER):
            raise AttributeError(name)
        near = difflib.get_close_matches(name, library.namespaces, 3) or sorted(library.namespaces)[:3]
        raise AttributeError(
            f"tools has no namespace {name!r}; nearest: {', '.join(near) or 'there are none'}"
        )

    def __dir__(self) -> list[str]:
        return sorted(self.__dict__["__library"].namespaces)


class _NamespaceFinder:
    """Makes `import git`, `import tools.git` and `from tools.git import git_log` find the namespace."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.removeprefix("tools.") not in self._library.namespaces:
            return None
        return importlib.machinery.ModuleSpec(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return self._library.namespace(spec.name.removeprefix("tools."))

    def exec_module(self, module: types.ModuleType) -> None:
        # `import tools.git` names the module so; its functions are called git.git_log in every message.
        module.__name__ = module.__name__.removeprefix("tools.")


def _names(table: str) -> list[str]:
    return [line.partition(" ")[0] for line in table.split("\n") if line]


def _signature(table: str | None, name: str) -> str:
    if table is None:
        return ""
    _, _, rest = table.partition(f"\n{name} ")
    return rest.partition("\n")[0]


def _missing_function(namespace: str, name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, 3, 0.5) or names[:3]
    nearest = f"; nearest: {', '.join(f'{namespace}.{other}' for other in near)}" if near else ""
    return f"{namespace} has no function {name!r}{nearest} ({namespace} has {len(names)} functions)"
