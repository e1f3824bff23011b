"""For which upstreams that are starting a script waits: those that it could reach."""

import ast
import re
from collections.abc import Collection, Iterator, Set
from typing import Final

from portal.check.script_tree import ScriptTree
from sandbox_runtime.guest.library_names import LIBRARY, Path

_RUN_CODE: Final = {("builtins", "eval"), ("builtins", "exec")}
_TAKE_NAMES: Final = {
    (LIBRARY,),
    *(("builtins", name) for name in ("__import__", "globals", "locals", "vars")),
}
_DOTTED: Final = re.compile(r"\w+(?:\.\w+)*")


def awaited_names(source: str, namespaces: Collection[str], mentioned: Set[str]) -> Set[str]:
    """Those of the namespaces that a script mentions which its code names, or a string that is nothing but names.

    `getattr(tools, "mail")` may reach one, and so may `"tools.mail files".split()`, but no word of `print("no mail")`.
    Of a script that runs strings as code, or that cannot be read here, all that it mentions are awaited.
    """
    script = ScriptTree.read(source, namespaces)
    if script is None or not script.is_as_written or not _RUN_CODE.isdisjoint(script.paths.values()):
        return mentioned
    names = {*_named(script)}
    if any(map(_takes_names, script.paths.values())):
        names |= {*_spelled(script, {*namespaces, LIBRARY})}
    return mentioned & names


def _takes_names(path: Path) -> bool:
    """Whether it may find a namespace by a string: `tools.__dict__` does, too."""
    of_library = path[0] == LIBRARY and path[-1].startswith("__")
    return of_library or path in _TAKE_NAMES or path[0] == "importlib"


def _named(script: ScriptTree) -> Iterator[str]:
    for node, path in script.paths.items():
        if isinstance(node, ast.Name):
            yield node.id
        if path[0] == LIBRARY:
            yield from path[1:2]
    for found in script.scopes.imports:
        yield from found.path[:2]


def _spelled(script: ScriptTree, names: Set[str]) -> Iterator[str]:
    for node in script.all_of(ast.Constant):
        if not isinstance(node.value, str):
            continue
        paths = [path.split(".") for path in _DOTTED.findall(node.value)]
        if all(path[0] in names for path in paths):
            yield from (part for path in paths for part in path[:2])
