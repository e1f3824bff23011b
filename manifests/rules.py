"""The allow and deny patterns of a manifest, compiled once so that a question to them costs microseconds."""

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import translate
from typing import Literal

from manifests.models import PortalManifest, ToolRules
from manifests.yaml_source import KeyPath

_LITERAL_START = re.compile(r"[^*?\[]*")


class PatternList:
    """One `allow` or `deny` list, and the keys under which the manifest has it."""

    def __init__(self, rules: ToolRules, side: Literal["allow", "deny"], *keys: str) -> None:
        self.patterns: tuple[str, ...] = getattr(rules, side)
        self.is_default = side not in rules.model_fields_set
        self.keys: KeyPath = (*keys, side)
        # By the text before the first wildcard, so that of a thousand patterns only a few are tried.
        self._by_start: dict[str, list[tuple[int, re.Pattern[str]]]] = {}
        for index, pattern in enumerate(self.patterns):
            start = _LITERAL_START.match(pattern)
            entry = (index, re.compile(translate(pattern)))
            self._by_start.setdefault(start[0] if start else "", []).append(entry)
        self._lengths = sorted({len(start) for start in self._by_start})

    def first_match(self, names: Sequence[str]) -> int | None:
        """The index of the first pattern of the list that matches any of a tool's names."""
        if self.patterns[:1] == ("*",):
            return 0 if names else None
        return min(self.matches(names), default=None) if self.patterns else None

    def matches(self, names: Sequence[str]) -> Iterator[int]:
        """The indices of all patterns that match, in no order."""
        for name in names:
            for length in self._lengths:
                for index, expression in self._by_start.get(name[:length], ()):
                    if expression.match(name):
                        yield index

    def unmatched(self, tools: Sequence[Sequence[str]]) -> list[int]:
        """The indices of the patterns, `*` and defaults apart, that match no name of any tool."""
        if self.is_default or not self.patterns:
            return []
        matched = {index for names in tools for index in self.matches(names)}
        return [i for i, pattern in enumerate(self.patterns) if i not in matched and pattern != "*"]


class ToolPatterns:
    """The two lists of one `tools` section."""

    def __init__(self, rules: ToolRules, *keys: str) -> None:
        self.allow = PatternList(rules, "allow", *keys, "tools")
        self.deny = PatternList(rules, "deny", *keys, "tools")


class Rules:
    """Every `tools` section of a manifest, and the names that its patterns may call a tool."""

    def __init__(self, portal: PortalManifest, namespaces: Mapping[str, str]) -> None:
        self.capabilities = ToolPatterns(portal.capabilities.tools, "capabilities")
        self.upstreams = {
            name: ToolPatterns(upstream.tools, "upstreams", name)
            for name, upstream in portal.upstreams.items()
        }
        self._namespaces = namespaces
        self._owners = {name: upstream for upstream, name in namespaces.items()}
        self._owners.update({upstream: upstream for upstream in namespaces})
        self._has_dotted_upstreams = any("." in upstream for upstream in namespaces)

    def __iter__(self) -> Iterator[PatternList]:
        for section in (self.capabilities, *self.upstreams.values()):
            yield section.allow
            yield section.deny

    def names(self, upstream: str, tool: str, function: str) -> tuple[str, ...]:
        """What a pattern may call a tool."""
        return tool, function, f"{upstream}.{tool}", f"{self._namespaces[upstream]}.{function}"

    def own_names(self, upstream: str, names: Sequence[str]) -> Sequence[str]:
        """Those of a tool's names under which it may be allowed.

        Upstreams choose the names of their tools. One that calls its tool `files.read` must not be let in by
        an `allow` for `files.*`, which speaks of the upstream `files`.
        """
        tool = names[0]
        if "." not in tool and not self._has_dotted_upstreams:
            return names
        return [name for name in names if self._owner(name) in (None, upstream)]

    def _owner(self, name: str) -> str | None:
        """The upstream whose name or namespace a dotted name begins with; the longest one, if several do."""
        end = name.rfind(".")
        while end > 0:
            if owner := self._owners.get(name[:end]):
                return owner
            end = name.rfind(".", 0, end)
        return None
