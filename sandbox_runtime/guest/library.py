"""The namespaces of a script: `git`, `tools.git`, and their imports."""

import builtins
import difflib
import importlib.machinery
import inspect
import re
import sys
import types
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sandbox_runtime.guest.calls import Call, Calls
from sandbox_runtime.guest.values import NotSerializable

_DUNDER = "__"
_HEAD = re.compile(r"async def [\w.]+(?=\()")


class Library:
    """All namespaces of a run, which are builtins and importable. A script's own variables can shadow them.

    The host may send a table for a namespace, as text: a line break, then "name signature" and a line break for each
    function. Hidden functions have no signature. It is searched as text, because most runs need one function of
    hundreds.
    """

    def __init__(self, calls: Calls) -> None:
        self.namespaces: frozenset[str] = frozenset()
        self._calls = calls
        self._open: dict[str, Namespace] = {}
        self._shown: set[str] = set()
        sys.meta_path.insert(0, self)
        self._tools = _Tools(self)
        sys.modules["tools"] = self._tools
        builtins.tools = self._tools  # type: ignore[attr-defined]

    def set_namespaces(self, namespaces: frozenset[str]) -> None:
        """Set the available namespaces."""
        if namespaces == self.namespaces:
            return
        for name in self.namespaces - namespaces:
            if name in self._shown:
                self._shown.remove(name)
                builtins.__dict__.pop(name, None)
            self._open.pop(name, None)
            sys.modules.pop(name, None)
            sys.modules.pop(f"tools.{name}", None)
            self._tools.__dict__.pop(name, None)
        self.namespaces = namespaces

    def show(self, names: Iterable[str], tables: Mapping[str, str]) -> None:
        """Make the namespaces that a script mentions visible, with their tables.

        Namespaces of earlier scripts of the session stay visible: the script may call functions defined there.
        """
        for name in {*names, *tables} & self.namespaces:
            namespace = self.namespace(name)
            if namespace.__dict__[_TABLE] != tables.get(name):
                made = [key for key, value in vars(namespace).items() if isinstance(value, LibraryFunction)]
                for key in made:
                    del namespace.__dict__[key]
                namespace.__dict__[_TABLE] = tables.get(name)
            builtins.__dict__[name] = namespace
            self._shown.add(name)

    def is_itself(self, name: str, own: Mapping[str, object]) -> bool:
        """Whether the name still means the namespace: earlier scripts may have bound it among their `own`."""
        return name not in own or own[name] is self._open.get(name)

    def namespace(self, name: str) -> "Namespace":
        namespace = self._open.get(name)
        if namespace is None:
            namespace = self._open[name] = Namespace(name, self._calls)
        return namespace

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Let `import git`, `import tools.git` and `from tools.git import git_log` find the namespace."""
        if name.removeprefix("tools.") not in self.namespaces:
            return None
        return importlib.machinery.ModuleSpec(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return self.namespace(spec.name.removeprefix("tools."))

    def exec_module(self, module: types.ModuleType) -> None:
        # `import tools.git` sets that name, but messages call its functions `git.git_log`.
        module.__name__ = module.__name__.removeprefix("tools.")


_CALLS, _TABLE = " calls", " table"
"""Keys of a namespace's own attributes. They are not identifiers, because any identifier may be a tool."""


class Namespace(types.ModuleType):
    """One upstream's functions, as a module without attributes that could hide a tool."""

    def __init__(self, name: str, calls: Calls) -> None:
        super().__init__(
            name, f"Functions of the upstream `{name}`; all are async and take keyword arguments."
        )
        self.__dict__.update({_CALLS: calls, _TABLE: None})

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __getattr__(self, name: str) -> Any:
        table = self.__dict__[_TABLE]
        is_shown = table is not None and f"\n{name} " in table
        if not is_shown:
            if name == "__all__" and table is not None:
                return _names(table)
            # Python itself looks up such names. No function has one: `__init__` became `__init___`.
            if (name.startswith(_DUNDER) and name.endswith(_DUNDER)) or not name.isidentifier():
                raise AttributeError(f"{self.__name__} has no attribute {name!r}")
            if table is not None:
                own, names = self.__name__, _names(table)
                near = _nearest(name, names, f"{own}.")
                message = f"{own} has no function {name!r}{near} ({own} has {len(names)} functions)"
                raise AttributeError(message)
        signature = _signature(table, name)
        function = self.__dict__[name] = LibraryFunction(
            self.__dict__[_CALLS], self.__name__, name, signature
        )
        return function

    def __dir__(self) -> list[str]:
        return _names(self.__dict__[_TABLE] or "")

    def __repr__(self) -> str:
        return f"<namespace {self.__name__}>"


class LibraryFunction(NotSerializable):
    """Creates calls, which start when they are awaited.

    Its signature comes from the host, in one line: `async def git.git_log(*, count: int = 10) -> list[dict]`, or "".
    """

    def __init__(self, calls: Calls, namespace: str, name: str, signature: str) -> None:
        self.__name__ = name
        self.__qualname__ = f"{namespace}.{name}"
        self.__module__ = namespace
        self.__doc__ = (
            f'{signature}\n\nIts documentation: docs_search(query="{self.__qualname__}")'
            if signature
            else None
        )
        self._calls = calls
        self._signature = signature
        if sys.version_info >= (3, 12):
            inspect.markcoroutinefunction(self)

    def __call__(self, /, *positional: object, **arguments: object) -> Call:
        """Create a call. Positional arguments are sent as `*0`, `*1`, because only the host knows their names."""
        if positional:
            arguments = {f"*{index}": value for index, value in enumerate(positional)} | arguments
        return self._calls.create(self.__qualname__, arguments)

    __signature__ = inspect.Signature([inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD)])

    def __repr__(self) -> str:
        return f"<async function {self.__qualname__}{_HEAD.sub('', self._signature, count=1)}>"

    def advice(self) -> str:
        return f"it is {self!r}: call it"


class _Tools(types.ModuleType):
    """The package `tools`, which contains all namespaces."""

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
        raise AttributeError(f"tools has no namespace {name!r}{_nearest(name, library.namespaces)}")

    def __dir__(self) -> list[str]:
        return sorted(self.__dict__["__library"].namespaces)


def _names(table: str) -> list[str]:
    """The visible functions. A function without a signature can be called, but the host refuses it."""
    rows = (line.partition(" ") for line in table.split("\n"))
    return [name for name, _, signature in rows if signature]


def _signature(table: str | None, name: str) -> str:
    if table is None:
        return ""
    _, _, rest = table.partition(f"\n{name} ")
    return rest.partition("\n")[0]


def _nearest(name: str, names: Collection[str], prefix: str = "") -> str:
    """The names similar to a missing one, or how to search for it."""
    near = difflib.get_close_matches(name, names, 3)
    if near:
        return f"; nearest: {', '.join(prefix + each for each in near)}"
    return f'; look it up: docs_search(query="{" ".join(name[:60].split("_"))}")'
