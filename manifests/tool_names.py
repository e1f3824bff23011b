"""What a pattern may call a tool: its own name and its function's, alone or behind its upstream.

A function's name depends on what else the upstream lists: `delete-repo` is `delete_repo` until there is a tool that is
called just that, and `delete_repo_c449` from then on. So an upstream could take a name, and with it the rule that was
written for it, from one tool by adding another. What grants is therefore compared with the names of the moment, and
what restricts with the plain one, too, whoever has it. `delete_repo_*` was written for other tools: a suffix that the
function could get counts only where the pattern spells it.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property, lru_cache
from typing import TypeAlias

from manifests.names import SUFFIX, identifier, name_hash, suffixed_names

Names: TypeAlias = tuple[str, str, str, str]
"""Tool, function, `upstream.tool`, `namespace.function`."""

_START = re.compile(r"[^*?\[]*")
_WILDCARD = re.compile(r"\*|\?|\[!?\]?[^\]]*\]")


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
        """Those of the moment under which a rule may grant it: rules for `resources/read` and `prompts/*` were written
        for the methods, whatever an upstream calls its tools.
        """
        return granting(self.now)

    @cached_property
    def hash(self) -> str:
        """The digits that the function's name ends in where another tool takes the plain one; "" if none can."""
        return "" if self._is_method or self.plain[1] == self.tool else name_hash(self.tool)

    @cached_property
    def suffixed(self) -> Sequence[Names]:
        """The names with each of these ends, the shortest first."""
        return [*map(self._with, suffixed_names(self.tool))] if self.hash else []

    @property
    def _is_method(self) -> bool:
        """One like `resources/read` is no tool, and has its own name for ever."""
        return _is_method(self.now)

    def _with(self, function: str) -> Names:
        return self.tool, function, f"{self.upstream}.{self.tool}", f"{self.namespace}.{function}"


def granting(names: Names) -> Sequence[str]:
    """The same of any of its names."""
    return names[1::2] if is_named_as_method(names[0]) and not _is_method(names) else names


def is_named_as_method(tool: str) -> bool:
    """Whether a tool's own name may be taken for a method's."""
    return "resources/" in tool or "prompts/" in tool


def _is_method(names: Names) -> bool:
    return not names[1].isidentifier()


@dataclass(frozen=True, slots=True)
class Glob:
    """A pattern of a rule: `start` is what stands before the first wildcard, `hashes` what it spells outside of all."""

    match: Callable[[str], object]
    start: str
    hashes: frozenset[str]

    @classmethod
    @lru_cache(maxsize=4096)
    def of(cls, pattern: str) -> "Glob":
        literal = _WILDCARD.sub("*", pattern)
        match, start = re.compile(translate(pattern)).match, _START.match(pattern)
        return cls(match, start[0] if start else "", frozenset(SUFFIX.findall(literal)))

    def fits(self, names: Iterable[str]) -> bool:
        """Whether it means the tool that is called so."""
        return any(map(self.match, names))

    def restricts(self, names: ToolNames) -> bool:
        """Whether it means a tool as what restricts does."""
        return self.fits(names.lasting) or self.fits_suffix(names)

    def fits_suffix(self, names: ToolNames) -> bool:
        """Whether it spells a name that the function could get."""
        return bool(self.hashes) and names.hash in self.hashes and any(map(self.fits, names.suffixed))
