"""What a pattern may call a tool: its own name and its function's, alone or behind its upstream.

A function's name depends on what else the upstream lists: `delete-repo` is `delete_repo` until there is a tool that is
called just that, and `delete_repo_c449` from then on. So an upstream could take a name, and with it the rule that was
written for it, from one tool by adding another. What grants is therefore compared with the names of the moment, and
what restricts with the plain one, too, whoever has it. `delete_repo_*` was written for other tools: the suffix that the
function could get counts only where the pattern spells it.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property, lru_cache
from typing import TypeAlias

from manifests.names import identifier, name_hash

Names: TypeAlias = tuple[str, str, str, str]
"""Tool, function, `upstream.tool`, `namespace.function`."""


@dataclass(frozen=True)
class ToolNames:
    """The names of one tool. `function` is that of the moment, without the `namespace`."""

    upstream: str
    namespace: str
    tool: str
    function: str

    @cached_property
    def now(self) -> Names:
        """What a rule that grants is compared with."""
        return self._with(self.function)

    @cached_property
    def plain(self) -> Names:
        """The same with the name that the function has beside tools that do not take it."""
        plain = self.function if self._is_method else identifier(self.tool)
        return self.now if plain == self.function else self._with(plain)

    @cached_property
    def lasting(self) -> Sequence[str]:
        """What a rule that restricts is compared with: both."""
        return self.now if self.plain is self.now else [*dict.fromkeys((*self.now, *self.plain))]

    @property
    def granting(self) -> Sequence[str]:
        return granting(self.now)

    @cached_property
    def suffix(self) -> str:
        """What the function's name ends in where another tool takes the plain one; "" if none can."""
        return "" if self._is_method or self.plain[1] == self.tool else f"_{name_hash(self.tool)}"

    @cached_property
    def suffixed(self) -> Names:
        """The names with that end."""
        return self._with(self.plain[1] + self.suffix)

    @property
    def _is_method(self) -> bool:
        """One like `resources/read` is no tool, and has its own name for ever."""
        return _is_method(self.now)

    def _with(self, function: str) -> Names:
        return self.tool, function, f"{self.upstream}.{self.tool}", f"{self.namespace}.{function}"


def granting(names: Names) -> Sequence[str]:
    """Those under which a rule may grant a tool: rules for `resources/read` and `prompts/*` were written for the
    methods, whatever an upstream calls its tools.
    """
    return names[1::2] if is_named_as_method(names[0]) and not _is_method(names) else names


def is_named_as_method(tool: str) -> bool:
    """Whether a tool's own name may be taken for a method's."""
    return "resources/" in tool or "prompts/" in tool


def _is_method(names: Names) -> bool:
    return not names[1].isidentifier()


@dataclass(frozen=True, slots=True)
class Glob:
    """A pattern of a rule, with `*`, `?` and `[...]`."""

    pattern: str
    match: Callable[[str], object]

    @classmethod
    @lru_cache(maxsize=4096)
    def of(cls, pattern: str) -> "Glob":
        return cls(pattern, re.compile(translate(pattern)).match)

    def fits(self, names: Iterable[str]) -> bool:
        """Whether it means the tool that is called so."""
        return any(map(self.match, names))

    def spells(self, names: ToolNames) -> bool:
        """Whether it has the suffix in it that the tool's function could get."""
        return bool(names.suffix) and names.suffix in self.pattern

    def restricts(self, names: ToolNames) -> bool:
        """Whether it means a tool as what restricts does."""
        return self.fits(names.lasting) or (self.spells(names) and self.fits(names.suffixed))
