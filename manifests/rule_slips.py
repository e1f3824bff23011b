"""Rules that say nothing of the tools that are there: often a slip, as in `file.write_*` for `files.write_*`."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from manifests.errors import Problem
from manifests.manifest import Manifest
from manifests.names import Glob, is_named_as_method
from manifests.rules import Budget, Rule, ToolSection
from manifests.tool_rules import Hints
from manifests.yaml_source import KeyPath

_OPEN_END = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]+")
_HINT = (
    "A pattern is compared with the tool's name, the function's name, upstream.tool and namespace.function."
)
_METHOD_HINT = (
    "A name with resources/ or prompts/ in it means a method, and grants no tool that is called so: write "
    "namespace.function."
)


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool of an upstream; `arguments` are the names that its schema knows, None if it takes others, too."""

    tool: str
    function: str
    hints: Hints
    arguments: frozenset[str] | None


def unmatched_rules(manifest: Manifest, tools: Mapping[str, Sequence[ListedTool]]) -> list[Problem]:
    """Rules of the file that mean none of the tools, and conditions on arguments that none of theirs has.

    `tools` has those of each upstream that has listed its tools. As long as one has not, a rule that may mean a tool of
    it is left alone: all that does not begin with the name of one that has.
    """
    return [
        *(_problem(manifest, *slip) for slip in _Slips(manifest, tools)),
        *_retry_slips(manifest, tools),
        *_open_ends(manifest),
    ]


def _retry_slips(manifest: Manifest, tools: Mapping[str, Sequence[ListedTool]]) -> Iterator[Problem]:
    for upstream, listed in tools.items():
        retries = manifest.portal.upstreams[upstream].retries
        named = [manifest.rules.names(upstream, each.tool, each.function) for each in listed]
        for side, patterns in (("allow", retries.allow), ("deny", retries.deny)):
            for index, pattern in enumerate(patterns):
                glob = Glob.of(pattern)
                meant = (
                    glob.restricts(names) if side == "deny" else glob.fits(names.granting) for names in named
                )
                if pattern != "*" and not any(meant):
                    keys = ("upstreams", upstream, "retries", side, index)
                    yield _told(manifest, keys, f"{pattern!r} matches no tool", _hint(pattern, keys))


def _open_ends(manifest: Manifest) -> Iterator[Problem]:
    """Prefixes that end within a URL's host: https://a.example lets https://a.example.evil through."""
    for section in manifest.rules:
        for rule in section.allow.rules:
            for name, comparison in ({} if rule.condition is None else rule.condition.where).items():
                if comparison.prefix is not None and _OPEN_END.fullmatch(comparison.prefix):
                    told = (
                        f"the prefix of {name!r} ends within the host, so that other hosts begin with it, too"
                    )
                    yield _told(manifest, rule.keys, told, "End it with /.")


class _Slips:
    def __init__(self, manifest: Manifest, tools: Mapping[str, Sequence[ListedTool]]) -> None:
        self._rules = manifest.rules
        self._tools = tools
        self._silent = set(self._rules.upstreams) - set(tools)
        self._silent_prefixes = _prefixes(manifest, self._silent)
        self._listed_prefixes = _prefixes(manifest, tools)

    def __iter__(self) -> Iterator[tuple[Rule | Budget, str]]:
        for section in self._rules:
            if section.keys[0] == "upstreams" and section.keys[1] in self._silent:
                continue
            upstreams = [str(section.keys[1])] if section.keys[0] == "upstreams" else list(self._tools)
            listed = [(upstream, tool) for upstream in upstreams for tool in self._tools[upstream]]
            for slip in self._of(section, listed):
                if section.keys[0] == "upstreams" or self._is_known(slip[0]):
                    yield slip
            for upstream, tool in listed:
                yield from self._unknown_arguments(section, upstream, tool)

    def _is_known(self, rule: Rule | Budget) -> bool:
        """Whether every tool that it may mean is listed. One of `github.e*` may be of `github.enterprise`."""
        start = re.split(r"[*?\[]", rule.pattern, maxsplit=1)[0]
        if any(prefix.startswith(start) or start.startswith(prefix) for prefix in self._silent_prefixes):
            return False
        return not self._silent or start.startswith(self._listed_prefixes)

    def _of(
        self, section: ToolSection, listed: Sequence[tuple[str, ListedTool]]
    ) -> Iterator[tuple[Rule | Budget, str]]:
        named = [
            (self._rules.names(upstream, each.tool, each.function), each.hints) for upstream, each in listed
        ]
        is_of_portal = section in self._rules.of_portal
        for rules in (section.allow, section.deny):
            for rule in rules.unmatched(named):
                if not (rules is section.deny and rule.means_fetch and is_of_portal):
                    yield rule, f"{str(rule)!r} matches no tool"
        counting = {each.keys for names, _ in named for each in self._rules.budgets(section, names)}
        for budget in section.all_budgets:
            if budget.keys not in counting and not (budget.means_fetch and is_of_portal):
                yield budget, f"{budget.pattern!r} matches no tool"

    def _unknown_arguments(
        self, section: ToolSection, upstream: str, tool: ListedTool
    ) -> Iterator[tuple[Rule | Budget, str]]:
        if tool.arguments is None or not section.allow.has_conditions:
            return
        names = self._rules.names(upstream, tool.tool, tool.function)
        allowing = self._rules.allowing(section, upstream, names.now, tool.hints)
        groups = self._rules.conditions(section, names, tool.hints, allowing)
        for rule in dict.fromkeys(chain.from_iterable(groups)):
            if rule.condition is None:
                continue
            for argument in rule.condition.where.keys() - tool.arguments:
                known = ", ".join(sorted(tool.arguments)) or "none"
                yield (
                    rule,
                    f"{upstream}.{tool.tool} has no argument {argument!r}, so it is never called; it has {known}",
                )


def _prefixes(manifest: Manifest, upstreams: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{prefix}." for name in upstreams for prefix in (name, manifest.namespaces[name]))


def _problem(manifest: Manifest, rule: Rule | Budget, message: str) -> Problem:
    return _told(manifest, rule.keys, message, _hint(rule.pattern, rule.keys))


def _hint(pattern: str, keys: KeyPath) -> str:
    return _METHOD_HINT if "allow" in keys and is_named_as_method(pattern) else _HINT


def _told(manifest: Manifest, keys: KeyPath, message: str, hint: str) -> Problem:
    place = manifest.places.get(keys)
    line, column = (place.line, place.column) if place else (None, None)
    return Problem(message, line, column, hint, ".".join(map(str, keys[:-1])))
