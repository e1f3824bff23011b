"""What the names of functions meant earlier in a session."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from portal.library.function import Function
from portal.library.library import Library, Namespace
from sandbox_runtime.call_port import CallError

_MAX_CHARACTERS: Final = 100
"""A message shows at most this much of a tool's name."""


@dataclass(eq=False)
class SessionHistory:
    """What earlier runs of a session may have left in its variables: results and imported functions.

    A kept function calls its tool by name. If the upstream later lists a tool of that very name, the name means another
    tool. So the history holds the tool that each name meant first.
    """

    sources: set[str] = field(default_factory=set)
    """The upstreams that were called, by key, and NETWORK: their results may be in variables."""
    _tools: dict[str, str] = field(default_factory=dict)
    _known: dict[str, Namespace] = field(default_factory=dict)

    def record_namespaces(self, library: Library, namespaces: Iterable[str]) -> None:
        """Record the tools of the namespaces from which a run may import."""
        for name in namespaces:
            namespace = library.namespaces.get(name)
            if namespace is not None and self._known.get(name) is not namespace:
                self._known[name] = namespace
                for function in namespace.functions.values():
                    self._tools.setdefault(function.qualified, function.tool)

    def tool_change(self, function: Function) -> CallError | None:
        """The error if the function's name meant another tool earlier in the session, else None."""
        before = self._tools.setdefault(function.qualified, function.tool)
        if before == function.tool:
            return None
        now, was = repr(function.tool[:_MAX_CHARACTERS]), repr(before[:_MAX_CHARACTERS])
        return CallError(
            "tool_changed",
            f"{function.qualified} now means the tool {now}; earlier in this session it meant {was}",
            'Nothing was sent. Variables of this session may refer to either tool. Start another with session="new".',
        )
