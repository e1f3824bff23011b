"""Python names for what MCP names freely: upstreams, tools, and the properties of their arguments.

One rule for all three. Characters outside `[A-Za-z0-9_]` become `_` (so names are ASCII, and Python's own
normalisation of identifiers never makes two of them one), a leading digit gets `_` in front, and a Python
keyword gets `_` behind. So does a name like `__init__` or `__class__`: Python gives such names a meaning,
and a tool may not take it over. Private names (`_x`, `__x`) stay as they are.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from manifests.reserved import KEYWORDS, NAMESPACES

LONGEST_NAME = 200
"""A longer name is cut and ends in its hash. MCP asks for at most 128 characters, but nothing enforces it."""

_FOREIGN = re.compile(r"[^A-Za-z0-9_]")
_DUNDER = re.compile(r"__[^_](.*[^_])?__")
_DIGITS = 4
_MOST_DIGITS = 64

SUFFIX = re.compile(rf"_([0-9a-f]{{{_DIGITS}}})")
"""How the end of a name begins that another tool took; the group is the tool's `name_hash`."""


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
    """A Python name of its own for each tool of one upstream, whatever their order.

    On a collision the tool whose name needed no change keeps it; the others get `_` and the first four hex
    digits of their own name's SHA-256, or as many more as it takes to be alone. So a name changes when tools
    are added only if a newcomer would get the very same one.
    """
    plain = {tool: identifier(tool) for tool in dict.fromkeys(tools)}
    shared = Counter(plain.values())
    settled = {tool: name for tool, name in plain.items() if shared[name] == 1 or tool == name}
    return {**plain, **settled, **_apart({t: n for t, n in plain.items() if t not in settled}, set(shared))}


def suffixed_names(tool: str) -> Iterator[str]:
    """Every name that `function_names` may give a tool whose own one another tool takes, the shortest first.

    Left out are suffixes of more than 64 digits, for which an upstream has to occupy sixteen shorter ones.
    """
    name, digits = identifier(tool), _digest(tool, _MOST_DIGITS)
    for length in range(_DIGITS, _MOST_DIGITS + 1, _DIGITS):
        yield f"{name}_{digits[:length]}"


def name_hash(tool: str) -> str:
    """The digits with which each of these suffixes begins."""
    return _digest(tool)


def parameter_names(properties: Sequence[str]) -> dict[str, str]:
    """A Python name of its own for each property of a tool's arguments, by the rule of `function_names`."""
    return function_names(properties)


def _apart(colliding: dict[str, str], taken: set[str]) -> dict[str, str]:
    """Give each colliding name the shortest suffix of its hash that no other name has.

    Suffixes of different lengths never meet: the `_` before them stands at different places. And since every
    name that meets another one at some length goes on to the next, the answer does not depend on the order.
    """
    settled: dict[str, str] = {}
    for length in _lengths():
        if not colliding:
            break
        candidates = {text: f"{name}_{_digest(text, length)}" for text, name in colliding.items()}
        seen = Counter(candidates.values())
        alone = {t: name for t, name in candidates.items() if seen[name] == 1 and name not in taken}
        settled.update(alone)
        colliding = {text: name for text, name in colliding.items() if text not in alone}
    return settled


def _lengths() -> Iterator[int]:
    """Without end: upstreams choose names, so they could occupy every suffix up to any length."""
    length = _DIGITS
    while True:
        yield length
        length += _DIGITS


def _digest(text: str, length: int = _DIGITS) -> str:
    """The first hex digits of the text's SHA-256; beyond its 64, those of the hash hashed again, and on."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    while len(digest) < length:
        digest += hashlib.sha256(digest.encode()).hexdigest()
    return digest[:length]
