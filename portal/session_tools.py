"""Which tool each function's name means in a session: what it imported must not become another one."""

from collections.abc import Iterable
from typing import Final

from portal.library.function import Function
from portal.library.library import Library
from portal.library.namespace import Namespace
from sandbox_runtime.calls import CallError

MAX_CHARACTERS: Final = 100
"""Of a tool's name no more is told."""


class SessionTools:
    """The tools that names meant first, in the runs of one session.

    Functions that a session keeps call by name, and a name may become another tool's once the upstream lists one that
    is called just that.
    """

    def __init__(self) -> None:
        self._tools: dict[str, str] = {}
        self._known: dict[str, Namespace] = {}

    def note(self, library: Library, namespaces: Iterable[str]) -> None:
        """A run may import from these namespaces."""
        for name in namespaces:
            namespace = library.namespaces.get(name)
            if namespace is not None and self._known.get(name) is not namespace:
                self._known[name] = namespace
                for function in namespace.functions.values():
                    self._tools.setdefault(function.qualified, function.tool)

    def change(self, function: Function) -> CallError | None:
        """Why a function is not called by its name, which meant another tool before."""
        before = self._tools.setdefault(function.qualified, function.tool)
        if before == function.tool:
            return None
        told = (
            f"{function.qualified} is the tool {_shown(function.tool)} now, and was {_shown(before)} before"
        )
        hint = (
            'Nothing was sent. What the session kept may mean either: begin another one with session="new".'
        )
        return CallError("tool_changed", f"{told} in this session", hint)


def _shown(tool: str) -> str:
    return repr(tool[:MAX_CHARACTERS])
