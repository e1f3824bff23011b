"""Python names for upstreams, tools and properties, and the names by which a pattern matches a tool.

Reserved words are those of CPython 3.14, on which scripts run. The portal may run on an older Python, so the changes
from 3.12 to 3.14 are listed here.

A function's name depends on the upstream's other tools: `delete-repo` is `delete_repo`, but `delete_repo_c449` once a
tool named `delete_repo` exists. So an upstream could escape a rule by adding a tool. Therefore `allow` rules match the
current names, while `deny` rules also match the default name. The suffix that a function could get counts only if
the pattern contains it: `delete_repo_*` was written for other tools.

Names once had ASCII letters only: `größe` was `gr__e`. Patterns, scripts and parked runs may have those former names,
so they match and are accepted, too.
"""

import builtins
import hashlib
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property, lru_cache
from keyword import iskeyword
from typing import TypeAlias


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NOT_IN_3_14 = _words(
    """
    aifc asynchat asyncore audioop cgi cgitb chunk crypt distutils imghdr imp lib2to3 mailcap msilib nis nntplib
    ossaudiodev pipes profiling smtpd sndhdr spwd sunau telnetlib uu xdrlib
    """
)
"""Modules of Python 3.11 to 3.15 that 3.14, which scripts run in, lacks."""

STANDARD_LIBRARY = frozenset(
    {name for name in sys.stdlib_module_names if not name.startswith("_")} - _NOT_IN_3_14
    | {"annotationlib", "compression", "sre_compile", "sre_constants", "sre_parse"}
)

BUILTINS = frozenset(
    {name for name in dir(builtins) if not name.startswith("_")}
    - {"ImportCycleError", "frozendict", "sentinel"}
    | {"PythonFinalizationError"}
)

PORTAL_MODULES = frozenset({"tools", "portal"})
"""Modules that the portal provides: `from tools import github`, `import portal`."""

PACKAGES = _words("dateutil jinja2 jmespath markupsafe more_itertools tabulate tzdata yaml")
"""Import names of the packages in every sandbox."""

NAMESPACES = STANDARD_LIBRARY | BUILTINS | PORTAL_MODULES | PACKAGES
"""Names that are reserved, besides keywords: no namespace may be one of them."""


LONGEST_NAME = 200
"""A longer name is cut and ends in its hash. MCP asks for at most 128 characters, but nothing enforces it."""

LONGEST_NORMALIZED = 1_000

_FOREIGN = re.compile(r"[^A-Za-z0-9_]")
# Python accepts these in an identifier, but they are invisible: fillers and variation selectors.
_UNSEEN = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_DUNDER = re.compile(r"__[^_](.*[^_])?__")
_DIGITS = 4


class PythonName(str):
    """A name with its `former` form, from when names had ASCII letters only."""

    former: str


def former_of(name: str) -> str:
    """A name from `function_names` in its form from when names had ASCII letters only."""
    return getattr(name, "former", name)


def normalized(name: str) -> str:
    """A name as Python normalises it (NFKC), or a very long one as it is.

    The time to sort combining marks grows with the square of their number.
    """
    return unicodedata.normalize("NFKC", name) if len(name) <= LONGEST_NORMALIZED else name


def identifier(text: str, *, is_ascii: bool = False) -> str:
    """A name's Python identifier: `größe` -> `größe`, `echo-it` -> `echo_it`, `class` -> `class_`, `2fa` -> `_2fa`.

    An identifier keeps its letters, normalised as Python does (NFKC). In other names, and in former ones, each
    character outside of ASCII letters, digits and `_` becomes `_`.
    """
    name = normalized(text)
    if is_ascii or not name.isidentifier() or _UNSEEN.search(name):
        name = _FOREIGN.sub("_", text)
    if len(name) > LONGEST_NAME:
        name = f"{name[: LONGEST_NAME - _DIGITS - 1]}_{_digest(text)[:_DIGITS]}"
    if not name or name[0].isdigit():
        name = f"_{name}"
    if iskeyword(name) or _DUNDER.fullmatch(name):
        name = f"{name}_"
    return name


def namespace_of(upstream: str, *, is_former: bool = False) -> str:
    """An upstream's namespace: its identifier, with `_` if it is reserved: `time` -> `time_`."""
    name = identifier(upstream, is_ascii=is_former)
    return f"{name}_" if name in NAMESPACES else name


def function_names(tools: Sequence[str]) -> dict[str, str]:
    """A unique Python name for each tool of an upstream, or property of a tool, independent of their order.

    On a collision the tool whose name needed no change keeps it. The others get `_` and the first four hex digits of
    their name's SHA-256, or more until they are unique. So adding a tool changes a name only on a collision.
    """
    names = _unique(tools)
    formers = names if all(map(str.isascii, names)) else _unique(tools, is_ascii=True)
    for tool, former in formers.items():
        if former != names[tool]:
            names[tool] = name = PythonName(names[tool])
            name.former = former
    return names


def _unique(tools: Sequence[str], *, is_ascii: bool = False) -> dict[str, str]:
    names = {tool: identifier(tool, is_ascii=is_ascii) for tool in dict.fromkeys(tools)}
    shared = Counter(names.values())
    colliding = {tool: name for tool, name in names.items() if shared[name] > 1 and tool != name}
    length = _DIGITS
    # Suffixes of different lengths cannot collide: their `_` is at different places. All colliding names get the next
    # length, so the order does not matter. An upstream could occupy any length.
    while colliding:
        longer = {tool: f"{name}_{_digest(tool, length)}" for tool, name in colliding.items()}
        seen = Counter(longer.values())
        alone = {tool: name for tool, name in longer.items() if seen[name] == 1 and name not in shared}
        names |= alone
        colliding = {tool: name for tool, name in colliding.items() if tool not in alone}
        length += _DIGITS
    return names


def _digest(text: str, length: int = _DIGITS) -> str:
    """The first hex digits of the text's SHA-256, repeated beyond its 64."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return (digest * (length // len(digest) + 1))[:length]


Names: TypeAlias = tuple[str, ...]
"""Tool, function, `upstream.tool`, `namespace.function`; once more with their former names, if there are any."""


@dataclass(frozen=True)
class ToolNames:
    """The names of one tool. `function` is the current one, without the `namespace`."""

    upstream: str
    namespace: str
    tool: str
    function: str

    @cached_property
    def current(self) -> Names:
        """The names that an `allow` rule is compared with."""
        return self._with(self.function, former_of(self.function))

    @cached_property
    def default(self) -> Names:
        """The same, with the name that the function has if no other tool takes it."""
        return self.current if self._is_method else self._with(identifier(self.tool), self._former)

    @cached_property
    def deny_names(self) -> Sequence[str]:
        """The names that a restriction is compared with: current and default."""
        return [*dict.fromkeys((*self.current, *self.default))]

    @property
    def allow_names(self) -> Sequence[str]:
        """The names under which a rule may grant it. An `allow` for `resources/read` or `prompts/*` means the method,
        not an upstream's tool with such a name.
        """
        return self.current[1::2] if is_named_as_method(self.tool) and not self._is_method else self.current

    @cached_property
    def suffix(self) -> str:
        """The suffix of the function's name if another tool takes the default name; "" if none can."""
        return "" if self._is_method or self._former == self.tool else f"_{_digest(self.tool)}"

    @cached_property
    def suffixed(self) -> Names:
        return self._with(identifier(self.tool) + self.suffix, self._former + self.suffix)

    @cached_property
    def _former(self) -> str:
        return identifier(self.tool, is_ascii=True)

    @property
    def _is_method(self) -> bool:
        """Whether it is a method like `resources/read`, whose name never changes."""
        return not self.function.isidentifier()

    def _with(self, function: str, former: str) -> Names:
        own = f"{self.upstream}.{self.tool}"
        names = (self.tool, function, own, f"{self.namespace}.{function}")
        if former == function and self.upstream.isascii():
            return names
        return (*names, self.tool, former, own, f"{namespace_of(self.upstream, is_former=True)}.{former}")


def is_named_as_method(tool: str) -> bool:
    """Whether a tool's own name could be mistaken for a method's."""
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
        return any(map(self.match, names))

    @property
    def means_fetch(self) -> bool:
        """Whether it matches `portal.fetch`: only with the prefix `portal.`, because `*` means tools."""
        return self.pattern.startswith("portal.") and self.fits(("portal.fetch",))

    def spells(self, names: ToolNames) -> bool:
        """Whether it contains the suffix that the tool's function could get."""
        return bool(names.suffix) and names.suffix in self.pattern

    def restricts(self, names: ToolNames) -> bool:
        return self.fits(names.deny_names) or (self.spells(names) and self.fits(names.suffixed))
