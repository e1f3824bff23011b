"""What a script uses and no script has: packages that are not there, somebody who types, and files without a grant."""

import ast
import difflib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Collection, Iterator
from typing import Any

from sandbox_runtime.guest.analysis.names import Names

NO_FILES = (
    "Scripts have no files, processes or network. Call upstream functions instead. "
    "Only the operator can grant a folder: ask them."
)
NO_SOCKETS = (
    "Scripts have no sockets. Call upstream functions, or portal.fetch if the operator grants network access."
)
_NOT_HERE = "The sandbox does not support this module of the standard library."
_HTTP_CLIENTS = {"aiohttp", "httpx", "requests", "urllib3"}
_VERY_NEAR = 0.75  # strict, because a missing module is more often a package than a namespace
_BUILTINS = {
    "input": (
        "not_there",
        "nobody can answer input()",
        "Write the value into the script, or ask with portal.approve.",
    ),
    "open": ("no_files", "there are no files to open", NO_FILES),
}


def absences(names: Names) -> Iterator[list[Any]]:
    """`[line, code, message, hint]` of each."""
    for alias in names.all_of(ast.alias):
        statement = names.parents[alias]
        module = (statement.module or "") if isinstance(statement, ast.ImportFrom) else alias.name
        root = module.partition(".")[0]
        is_own = root in names.known or names.library_path((root,)) is not None
        if not is_own and not getattr(statement, "level", 0) and not _is_there(root):
            yield [
                alias.lineno,
                "not_there",
                f"no module named {module!r}",
                missing_module(module, names.namespaces),
            ]
    for call in names.all_of(ast.Call):
        name = call.func.id if isinstance(call.func, ast.Name) and not names.is_bound(call.func) else ""
        if name in _BUILTINS:
            yield [call.lineno, *_BUILTINS[name]]


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
