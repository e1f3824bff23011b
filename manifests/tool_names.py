"""What a pattern may call a tool: its own name and its function's, alone or behind its upstream.

A function's name depends on what else the upstream lists: `delete-repo` is `delete_repo` until there is a tool that is
called just that, and `delete_repo_c449` from then on. So an upstream could take a name, and with it the rule that was
written for it, from one tool by adding another. What grants is therefore compared with the names of the moment, and
what restricts with every name that the tool could ever get.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from manifests.names import possible_names


@dataclass(frozen=True)
class ToolNames:
    """The names of one tool. `function` is that of the moment, without the `namespace`."""

    upstream: str
    namespace: str
    tool: str
    function: str

    @property
    def now(self) -> tuple[str, str, str, str]:
        """What a rule that grants is compared with: tool, function, `upstream.tool`, `namespace.function`."""
        return self._with(self.function)

    @cached_property
    def lists(self) -> Sequence[Sequence[str]]:
        """The same for each name that its function may have, whatever else the upstream lists; now first.

        A method like `resources/read` is no tool, and has its own name for ever.
        """
        if self.function == self.tool:
            return (self.now,)
        return [*map(self._with, dict.fromkeys((self.function, *possible_names(self.tool))))]

    @cached_property
    def ever(self) -> Sequence[str]:
        """What a rule that restricts is compared with: all of these."""
        return [*dict.fromkeys(name for names in self.lists for name in names)]

    def _with(self, function: str) -> tuple[str, str, str, str]:
        return self.tool, function, f"{self.upstream}.{self.tool}", f"{self.namespace}.{function}"
