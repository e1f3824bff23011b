"""Python names for upstreams, tools and properties, and what a pattern may call a tool.

Reserved words are those of CPython 3.14, on which scripts run, whatever Python the portal runs on: what 3.12 to 3.14
added and removed is written out.

A function's name depends on what else the upstream lists: `delete-repo` is `delete_repo` until there is a tool that is
called just that, and `delete_repo_c449` from then on. So an upstream could take a name, and with it the rule that was
written for it, from one tool by adding another. What grants is therefore compared with the names of the moment, and
what restricts with the plain one, too, whoever has it. `delete_repo_*` was written for other tools: the suffix that the
function could get counts only where the pattern spells it.
"""

import builtins
import hashlib
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property, lru_cache
from keyword import kwlist
from typing import TypeAlias


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


KEYWORDS = frozenset(kwlist)

_REMOVED = _words(
    """
    aifc asynchat asyncore audioop cgi cgitb chunk crypt distutils imghdr imp lib2to3 mailcap msilib nis nntplib
    ossaudiodev pipes smtpd sndhdr spwd sunau telnetlib uu xdrlib
    """
)
"""Modules of Python 3.11 that 3.14 has no longer."""

STANDARD_LIBRARY = frozenset(
    {name for name in sys.stdlib_module_names if not name.startswith("_")} - _REMOVED
    | {"annotationlib", "compression"}
)

BUILTINS = frozenset(
    {name for name in dir(builtins) if not name.startswith("_")} | {"PythonFinalizationError"}
)

PORTAL_MODULES = frozenset({"tools", "portal"})
"""What scripts import from us: `from tools import github`, `import portal`."""

PACKAGES = _words("dateutil jinja2 jmespath markupsafe more_itertools tabulate tzdata yaml")
"""What scripts import from the packages that every sandbox has."""

NAMESPACES = STANDARD_LIBRARY | BUILTINS | PORTAL_MODULES | PACKAGES
"""What no upstream's namespace may be, beside a keyword."""


LONGEST_NAME = 200
"""A longer name is cut and ends in its hash. MCP asks for at most 128 characters, but nothing enforces it."""

_FOREIGN = re.compile(r"[^A-Za-z0-9_]")
_DUNDER = re.compile(r"__[^_](.*[^_])?__")
_DIGITS = 4


def identifier(text: str) -> str:
    """A name's Python identifier: `echo-it` -> `echo_it`, `class` -> `class_`, `2fa` -> `_2fa`, "" -> `_`."""
    name = _FOREIGN.sub("_", text)
    if len(name) > LONGEST_NAME:
        name = f"{name[: LONGEST_NAME - _DIGITS - 1]}_{_digest(text)[:_DIGITS]}"
    if not name or name[0].isdigit():
        name = f"_{name}"
    if name in KEYWORDS or _DUNDER.fullmatch(name):
        name = f"{name}_"
    return name


def namespace_of(upstream: str) -> str:
    """An upstream's namespace: its identifier, kept apart from modules and builtins: `time` -> `time_`."""
    name = identifier(upstream)
    return f"{name}_" if name in NAMESPACES else name


def function_names(tools: Sequence[str]) -> dict[str, str]:
    """A Python name of its own for each tool of one upstream, or property of a tool, whatever their order.

    On a collision the tool whose name needed no change keeps it; the others get `_` and the first four hex
    digits of their own name's SHA-256, or as many more as it takes to be alone. So a name changes when tools
    are added only if a newcomer would get the very same one.
    """
    names = {tool: identifier(tool) for tool in dict.fromkeys(tools)}
    shared = Counter(names.values())
    colliding = {tool: name for tool, name in names.items() if shared[name] > 1 and tool != name}
    length = _DIGITS
    # Suffixes of different lengths never meet: the `_` before them stands at different places. And since every name
    # that meets another one goes on to the next length, the order does not matter. Upstreams could occupy any length.
    while colliding:
        longer = {tool: f"{name}_{_digest(tool, length)}" for tool, name in colliding.items()}
        seen = Counter(longer.values())
        alone = {tool: name for tool, name in longer.items() if seen[name] == 1 and name not in shared}
        names |= alone
        colliding = {tool: name for tool, name in colliding.items() if tool not in alone}
        length += _DIGITS
    return names


def _digest(text: str, length: int = _DIGITS) -> str:
    """The first hex digits of the text's SHA-256; beyond its 64, they come again."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return (digest * (length // len(digest) + 1))[:length]


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
        """Those under which a rule may grant it: rules for `resources/read` and `prompts/*` were written for the
        methods, whatever an upstream calls its tools.
        """
        return self.now[1::2] if is_named_as_method(self.tool) and not self._is_method else self.now

    @cached_property
    def suffix(self) -> str:
        """What the function's name ends in where another tool takes the plain one; "" if none can."""
        return "" if self._is_method or self.plain[1] == self.tool else f"_{_digest(self.tool)}"

    @cached_property
    def suffixed(self) -> Names:
        """The names with that end."""
        return self._with(self.plain[1] + self.suffix)

    @property
    def _is_method(self) -> bool:
        """One like `resources/read` is no tool, and has its own name for ever."""
        return not self.function.isidentifier()

    def _with(self, function: str) -> Names:
        return self.tool, function, f"{self.upstream}.{self.tool}", f"{self.namespace}.{function}"


def is_named_as_method(tool: str) -> bool:
    """Whether a tool's own name may be taken for a method's."""
    return "resources/" in tool or "prompts/" in tool


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

    @property
    def means_fetch(self) -> bool:
        """Whether it speaks of `portal.fetch`: by the portal's name, because `*` is of tools alone."""
        return self.pattern.startswith("portal.") and self.fits(("portal.fetch",))

    def spells(self, names: ToolNames) -> bool:
        """Whether it has the suffix in it that the tool's function could get."""
        return bool(names.suffix) and names.suffix in self.pattern

    def restricts(self, names: ToolNames) -> bool:
        """Whether it means a tool as what restricts does."""
        return self.fits(names.lasting) or (self.spells(names) and self.fits(names.suffixed))
