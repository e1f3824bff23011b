"""The rules of a manifest about tools, compiled once so that a question to them costs microseconds."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from manifests.conditions import ArgumentCondition
from manifests.names import Glob, ToolNames
from manifests.portal_manifest import PortalManifest
from manifests.tool_rules import AllowRule, Annotation, DenyRule, FlowRule, Hints, ToolRules
from manifests.yaml_source import KeyPath

_SET = re.compile(r"\[!?\]?[^\]]*\]")


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One item of an `allow` or `deny` list. `keys` are those under which the manifest has it."""

    glob: Glob
    annotation: Annotation | None
    condition: ArgumentCondition | None
    keys: KeyPath

    @classmethod
    def of(cls, item: str | DenyRule, keys: KeyPath) -> "Rule":
        if isinstance(item, str):
            return cls(Glob.of(item), None, None, keys)
        condition = None
        if isinstance(item, AllowRule) and (item.where or item.schema_ is not None):
            condition = ArgumentCondition(item.where, item.schema_)
        return cls(Glob.of(item.tool), item.annotation, condition, keys)

    @property
    def is_naming(self) -> bool:
        """Whether it speaks of the tools that it matches, and not merely of all: by a letter or digit outside of
        wildcards, or by asking for destructive ones.
        """
        literal = _SET.sub("", self.glob.pattern)
        return self.annotation == "destructive" or any(map(str.isalnum, literal))

    @property
    def written(self) -> str:
        """As it may stand in the file, without its conditions."""
        if self.annotation is None:
            return f'"{self.glob.pattern}"'
        tool = "" if self.glob.pattern == "*" else f'tool: "{self.glob.pattern}", '
        return f"{{{tool}annotation: {self.annotation}}}"

    @property
    def means_fetch(self) -> bool:
        return self.annotation is None and self.glob.means_fetch

    def fits(self, names: Sequence[str], hints: Hints) -> bool:
        """Whether it means the tool that is called so and declares this."""
        return (self.annotation is None or hints.has(self.annotation)) and self.glob.fits(names)

    def restricts(self, names: ToolNames, hints: Hints) -> bool:
        """Whether it means a tool as what restricts does."""
        return (self.annotation is None or hints.has(self.annotation)) and self.glob.restricts(names)

    def __str__(self) -> str:
        if self.annotation is None:
            return self.glob.pattern
        return f"{self.annotation} tools" + (f" of {self.glob.pattern}" if self.glob.pattern != "*" else "")


@dataclass(frozen=True, slots=True)
class Budget:
    """How often tools may be called: `calls` in one run, `per_minute` by all of a portal; None is without limit."""

    glob: Glob
    calls: int | None
    per_minute: int | None
    keys: KeyPath

    @property
    def pattern(self) -> str:
        return self.glob.pattern

    @property
    def is_empty(self) -> bool:
        """Whether it has room for no call."""
        return 0 in (self.calls, self.per_minute)


class ToolSection:
    """The lists of one `tools` section."""

    def __init__(self, section: ToolRules, *keys: str) -> None:
        self.keys: KeyPath = (*keys, "tools")
        self.destructive = section.destructive
        self.allow = [Rule.of(each, (*self.keys, "allow", n)) for n, each in enumerate(section.allow)]
        self.deny = [Rule.of(each, (*self.keys, "deny", n)) for n, each in enumerate(section.deny)]
        self.budgets = [
            Budget(Glob.of(each.tool), each.calls, each.per_minute, (*self.keys, "budgets", n))
            for n, each in enumerate(section.budgets)
        ]

    def conditions(
        self, names: ToolNames, hints: Hints, allowing: Sequence[Rule]
    ) -> Iterator[tuple[Rule, ...]]:
        """The groups of rules that put a tool under a condition: one rule of each group must be met.

        `allowing` are those that allow it now. The rules that mean the tool by one name of its function are one group.
        One for another name is no way around them: what an upstream gains by giving the name to another tool would be
        just that.
        """
        rules = [rule for rule in self.allow if rule.condition]
        called = [names.now, names.plain]
        if any(rule.glob.spells(names) for rule in rules):
            called.append(names.suffixed)
        found = (tuple(rule for rule in rules if rule.fits(each, hints)) for each in called)
        own = tuple(rule for rule in allowing if rule.condition)
        yield from (group for group in dict.fromkeys((own, *found)) if group)


class Rules:
    """Every `tools` section that binds a caller, and the names that its patterns may call a tool."""

    def __init__(
        self, portal: PortalManifest, namespaces: Mapping[str, str], profile: str | None = None
    ) -> None:
        self.capabilities = ToolSection(portal.capabilities.tools, "capabilities")
        self.upstreams = {
            name: ToolSection(upstream.tools, "upstreams", name)
            for name, upstream in portal.upstreams.items()
        }
        self.profile: list[ToolSection] = []
        self.flows = _flows(portal.capabilities.flows, "capabilities")
        if profile is not None:
            own = portal.profiles[profile]
            self.profile.append(ToolSection(own.tools, "profiles", profile))
            self.flows += _flows(own.flows, "profiles", profile)
        self._namespaces = namespaces
        self._owners = {name: upstream for upstream, name in namespaces.items()}
        self._owners.update({upstream: upstream for upstream in namespaces})

    def __iter__(self) -> Iterator[ToolSection]:
        yield from (self.capabilities, *self.upstreams.values(), *self.profile)

    @property
    def of_portal(self) -> list[ToolSection]:
        """Those that mean what is no upstream's, too."""
        return [self.capabilities, *self.profile]

    def sections(self, upstream: str) -> list[ToolSection]:
        """Those that a tool of an upstream must pass."""
        return [self.capabilities, self.upstreams[upstream], *self.profile]

    def names(self, upstream: str, tool: str, function: str) -> ToolNames:
        """What a pattern may call a tool."""
        return ToolNames(upstream, self._namespaces[upstream], tool, function)

    def allowing(self, section: ToolSection, names: ToolNames, hints: Hints) -> list[Rule]:
        """The section's rules that allow a tool.

        Upstreams choose the names of their tools. One that calls its tool `files.read` must not be let in by
        an `allow` for `files.*`, which speaks of the upstream `files`.
        """
        own = [name for name in names.granting if self._owner(name) in (None, names.upstream)]
        return [rule for rule in section.allow if rule.fits(own, hints)]

    def flow_against(self, sources: Collection[str], destination: str) -> tuple[KeyPath, str] | None:
        """The first rule against a call there after calls to `sources`, and the first of these that it means."""
        for rule, keys in self.flows:
            if meant := [source for source in sources if rule.forbids(source, destination)]:
                return keys, min(meant)
        return None

    def _owner(self, name: str) -> str | None:
        """The upstream whose name or namespace a dotted name begins with; the longest one, if several do."""
        while (end := name.rfind(".")) > 0:
            name = name[:end]
            if owner := self._owners.get(name):
                return owner
        return None


def _flows(flows: Sequence[FlowRule], *keys: str) -> list[tuple[FlowRule, KeyPath]]:
    return [(rule, (*keys, "flows", index)) for index, rule in enumerate(flows)]
