"""Finds uses of what no script has: missing packages, keyboard input, and files without a grant."""

import ast
import difflib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Collection, Iterator, Set
from typing import Any

from sandbox_runtime.guest.analysis.names import PORTAL, PORTAL_NAMES, Names

NO_FILES = (
    "Scripts have no files, processes or network. Call upstream functions instead. "
    "Only the operator can grant a folder: ask them."
)
NO_SOCKETS = (
    "Scripts have no sockets. Call upstream functions, or portal.fetch if the operator grants network access."
)
NO_INPUT = "Write the value into the script, or ask with portal.approve."
_NOT_HERE = "The sandbox does not support this module of the standard library."
_HTTP_CLIENTS = {"aiohttp", "httpx", "requests", "urllib3"}
_VERY_NEAR = 0.75  # strict, because a missing module is more often a package than a namespace
_CONDITIONS = (ast.If, ast.IfExp, ast.BoolOp, ast.While, ast.Match)
_BUILTINS = {
    "input": ("not_there", "no one can answer input()", NO_INPUT),
    "open": ("no_files", "there are no files to open", NO_FILES),
}


def absences(names: Names, lines: Set[int], texts: Set[str]) -> Iterator[list[Any]]:
    """`[line, code, message, hint]` for each absence on these lines that no condition guards.

    A name that the script also uses in another way may be its own: `sys.modules["helpers"] = ...`, `sys.stdin = ...`.
    """
    told: set[str] = set()
    for alias in names.all_of(ast.alias):
        statement = names.parents[alias]
        module = (statement.module or "") if isinstance(statement, ast.ImportFrom) else alias.name
        root = module.partition(".")[0]
        is_own = root in names.known or root in texts or names.library_path((root,)) is not None
        is_told = root in told or alias.lineno not in lines or is_conditional(names, alias)
        if is_own or is_told or getattr(statement, "level", False) or _is_there(root):
            continue
        told.add(root)
        hint = missing_module(module, names.namespaces)
        yield [alias.lineno, "not_there", f"no module named {module!r}", hint]
    own = texts | {each.attr for each in names.all_of(ast.Attribute) if isinstance(each.ctx, ast.Store)}
    for member in names.all_of(ast.Attribute):
        if names.path(member) != (PORTAL, member.attr) or member.attr in PORTAL_NAMES:
            continue
        if member.lineno in lines and member.attr not in own and not member.attr.startswith("__"):
            near = difflib.get_close_matches(member.attr[:60], PORTAL_NAMES, len(PORTAL_NAMES), 0)
            yield [member.lineno, "not_there", f"portal has no {member.attr!r}", f"It has {', '.join(near)}."]
    called = [call for call in names.all_of(ast.Call) if getattr(call.func, "id", "") in _BUILTINS]
    replaced = texts | {node.attr for node in names.all_of(ast.Attribute)} if called else texts
    for call in called:
        is_own = names.is_bound(call.func) or not replaced.isdisjoint((call.func.id, "stdin"))
        if call.lineno in lines and not is_own and not is_conditional(names, call):
            yield [call.lineno, *_BUILTINS[call.func.id]]


def is_conditional(names: Names, node: ast.AST) -> bool:
    while not isinstance(node, (ast.Module, *_CONDITIONS)):
        node = names.parents[node]
    return not isinstance(node, ast.Module)


def _is_there(module: str) -> bool:
    return module in sys.modules or importlib.util.find_spec(module) is not None


def missing_module(name: str, namespaces: Collection[str]) -> str:
    name = name.removeprefix("tools.")
    if name.partition(".")[0] in _HTTP_CLIENTS:
        return NO_SOCKETS
    if name.partition(".")[0] in sys.stdlib_module_names:
        return _NOT_HERE
    near = difflib.get_close_matches(name, namespaces, 1, _VERY_NEAR)
    if near:
        return f"Did you mean the namespace {near[0]}? It needs no import."
    packages = ", ".join(sorted(package.name for package in importlib.metadata.distributions()))
    return f"Available are Python's standard library, {packages}, and the namespaces that docs_search shows."
