"""Scripts that may change what names mean in ways that reading them does not show.

They run as well as others, so nothing that is found in them refuses them: `github.list_issues = fake` makes
another call of each `github.list_issues(...)`, and `exec` may bind any name.
"""

import ast
from collections.abc import Iterator
from typing import Final

from portal.check.script_tree import ScriptTree
from sandbox_runtime.guest.library_names import LIBRARY, Path

FIND_MODULES: Final = frozenset({"importlib", "pkgutil"})
"""Modules whose functions give any other module, by its name."""

_BUILTINS: Final = frozenset(
    {"__import__", "delattr", "eval", "exec", "globals", "locals", "setattr", "vars"}
)
# Modules that run texts and data as code, or know objects that nobody handed them.
_MODULES: Final = frozenset(
    {
        *(
            "__main__",
            "bdb",
            "builtins",
            "cProfile",
            "code",
            "codeop",
            "ctypes",
            "doctest",
            "gc",
            "marshal",
            "pdb",
        ),
        *("pickle", "profile", "runpy", "shelve", "timeit", "trace", "unittest"),
    }
)
_FUNCTIONS: Final = frozenset(
    {
        *(("sys", name) for name in ("modules", "_getframe", "settrace", "setprofile", "meta_path")),
        *(("inspect", name) for name in ("currentframe", "stack", "trace", "getmembers_static")),
        *(("types", name) for name in ("CodeType", "FunctionType")),
        *(("typing", name) for name in ("ForwardRef", "get_type_hints")),
    }
)
_COPY_ATTRIBUTES: Final = frozenset({("functools", "update_wrapper"), ("functools", "wraps")})
_TELL_ONLY: Final = frozenset(
    {
        *("__annotations__", "__cause__", "__context__", "__doc__", "__module__", "__name__", "__notes__"),
        *("__qualname__", "__suppress_context__", "__traceback__", "__wrapped__"),
    }
)
_ATTRIBUTES: Final = frozenset(
    {
        *("__builtins__", "__closure__", "__code__", "__delattr__", "__dict__", "__getattribute__"),
        *(
            "__globals__",
            "__import__",
            "__main__",
            "__setattr__",
            "__subclasses__",
            "builtins",
            "cell_contents",
        ),
        *("f_builtins", "f_globals", "f_locals", "tb_frame"),
    }
)


def may_tamper(script: ScriptTree) -> bool:
    """Whether the script has the means to change what its names mean, out of sight."""
    return (
        not script.is_whole
        or any(_is_means(path) for path in _paths(script))
        or "*" in script.scopes.module.bindings  # `import *` binds nobody knows what
        or any(_is_reflective(node) for node in _spelled(script))
        or _patches_modules(script)
    )


def _paths(script: ScriptTree) -> Iterator[Path]:
    yield from script.paths.values()
    yield from (found.path for found in script.scopes.imports)


def _is_means(path: Path) -> bool:
    if path[0] == "builtins":
        return len(path) == 1 or path[1] in _BUILTINS
    return path[0] in _MODULES or path[:2] in _FUNCTIONS


def _spelled(script: ScriptTree) -> Iterator[ast.AST]:
    """Where it spells the names of attributes; `if __name__ == "__main__":` spells none."""
    asked = {
        part
        for compare in script.all_of(ast.Compare)
        if isinstance(compare.left, ast.Name) and compare.left.id == "__name__"
        for part in compare.comparators
    }
    return (node for node in script.all_of(ast.Attribute, ast.Constant, ast.Name) if node not in asked)


def _is_reflective(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in _ATTRIBUTES
    if isinstance(node, ast.Name):
        return node.id in _ATTRIBUTES
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in _ATTRIBUTES


def _patches_modules(script: ScriptTree) -> bool:
    """Whether it assigns to an attribute that goes by the name of anything it means by a dotted name.

    Where the object comes from does not matter: `importlib.import_module("tools.github").list_issues = fake`. A special
    attribute may stand for all others, as a module's `__getattr__` does, and some functions copy those of any name.
    """
    meant = {part for path in script.paths.values() for part in path[1:]}
    stored = (node.attr for node in script.all_of(ast.Attribute) if not isinstance(node.ctx, ast.Load))
    changed = {name for name in stored if name in meant or (_is_special(name) and name not in _TELL_ONLY)}
    return bool(changed) or (
        any(path in _COPY_ATTRIBUTES for path in _paths(script)) and _holds_modules(script)
    )


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _holds_modules(script: ScriptTree) -> bool:
    """Whether a module itself is a value somewhere, not only the place where something is found."""
    aliased = {
        binding.value
        for bindings in script.scopes.module.bindings.values()
        for binding in bindings
        if len(bindings) == 1  # `gh = github`, which is followed
    }
    return any(
        path[0] in FIND_MODULES or (path[0] == LIBRARY and len(path) <= 2 and node not in aliased)
        for node, path in script.paths.items()
    )
