"""Rules that say nothing of the tools that are there: often a slip, as in `file.write_*` for `files.write_*`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from manifests.errors import Problem
from manifests.manifest import Manifest
from manifests.names import ToolNames
from manifests.rules import Rule, ToolSection
from manifests.tool_rules import Hints
from manifests.yaml_source import KeyPath

_OPEN_END = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]+")
_HINT = (
    "A pattern is compared with the tool's name, the function's name, upstream.tool and namespace.function."
)


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool of an upstream; `arguments` are the names that its schema knows, None if it takes others, too."""

    tool: str
    function: str
    hints: Hints
    arguments: frozenset[str] | None


_Listed: TypeAlias = Mapping[str, Sequence[ListedTool]]
_Slip: TypeAlias = tuple[KeyPath, str, str]
"""Where it is, what it is, and what to do."""


def unmatched_rules(manifest: Manifest, tools: _Listed) -> list[Problem]:
    """Rules of the file that mean none of the tools, and conditions on arguments that none of theirs has.

    `tools` has those of each upstream that has listed its tools. As long as one has not, nothing is told of patterns
    that may mean a tool of it: those that do not begin with the name of one that has.
    """
    found: list[_Slip] = []
    for section in manifest.rules:
        names = [str(section.keys[1])] if section.keys[0] == "upstreams" else list(manifest.rules.upstreams)
        listed = {name: tools[name] for name in names if name in tools}
        starts = [f"{each}." for name in listed for each in (name, manifest.namespaces[name])]
        found += _unmatched(manifest, section, listed, ("",) if len(listed) == len(names) else tuple(starts))
        found += _unknown_arguments(manifest, section, listed)
        found += _open_ends(section)
    return [_problem(manifest, *slip) for slip in found]


def _unmatched(
    manifest: Manifest, section: ToolSection, listed: _Listed, starts: tuple[str, ...]
) -> Iterator[_Slip]:
    """`starts` are what a pattern begins with that can mean no other tools than these."""
    rules, is_of_portal = manifest.rules, section in manifest.rules.of_portal
    named = [
        (rules.names(upstream, each.tool, each.function), each.hints)
        for upstream, tools in listed.items()
        for each in tools
    ]
    for rule in (*section.allow, *section.deny):
        is_of_fetch = is_of_portal and rule.means_fetch and "deny" in rule.keys
        if (
            str(rule) != "*"
            and rule.glob.pattern.startswith(starts)
            and not is_of_fetch
            and not any(_means(rule, *each) for each in named)
        ):
            yield rule.keys, f"{str(rule)!r} matches no tool", _HINT
    for budget in section.budgets:
        is_met = any(budget.glob.restricts(names) for names, _ in named)
        is_of_fetch = is_of_portal and budget.glob.means_fetch
        if budget.pattern.startswith(starts) and not is_met and not is_of_fetch:
            yield budget.keys, f"{budget.pattern!r} matches no tool", _HINT


def _means(rule: Rule, names: ToolNames, hints: Hints) -> bool:
    is_restricting = rule.condition or "deny" in rule.keys
    return rule.restricts(names, hints) if is_restricting else rule.fits(names.granting, hints)


def _unknown_arguments(manifest: Manifest, section: ToolSection, listed: _Listed) -> Iterator[_Slip]:
    rules = manifest.rules
    for upstream, tool in ((name, tool) for name, tools in listed.items() for tool in tools):
        if tool.arguments is None or not any(rule.condition for rule in section.allow):
            continue
        names = rules.names(upstream, tool.tool, tool.function)
        allowing = rules.allowing(section, names, tool.hints)
        groups = section.conditions(names, tool.hints, allowing)
        for rule in dict.fromkeys(chain.from_iterable(groups)):
            for argument in rule.condition.where.keys() - tool.arguments if rule.condition else ():
                known = ", ".join(sorted(tool.arguments)) or "none"
                told = f"{upstream}.{tool.tool} has no argument {argument!r}, so it is never called; it has {known}"
                yield rule.keys, told, ""


def _open_ends(section: ToolSection) -> Iterator[_Slip]:
    """Prefixes that end within a URL's host: https://a.example lets https://a.example.evil through."""
    for rule in section.allow:
        for name, comparison in (rule.condition.where if rule.condition else {}).items():
            if comparison.prefix is not None and _OPEN_END.fullmatch(comparison.prefix):
                told = f"the prefix of {name!r} ends within the host, so that other hosts begin with it, too"
                yield rule.keys, told, "End it with /."


def _problem(manifest: Manifest, keys: KeyPath, message: str, hint: str) -> Problem:
    place = manifest.places.get(keys)
    line, column = (place.line, place.column) if place else (None, None)
    return Problem(message, line, column, hint, ".".join(map(str, keys[:-1])))
