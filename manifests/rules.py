"""The rules of a manifest about tools, compiled once so that a question to them costs microseconds."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from manifests.conditions import ArgumentCondition
from manifests.names import Glob, Names, ToolNames, granting
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

    @property
    def pattern(self) -> str:
        return self.glob.pattern

    @property
    def is_naming(self) -> bool:
        """Whether it speaks of the tools that it matches, and not merely of all: by a letter or digit outside of
        wildcards, or by asking for destructive ones.
        """
        literal = _SET.sub("", self.pattern)
        return self.annotation == "destructive" or any(map(str.isalnum, literal))

    @property
    def written(self) -> str:
        """As it may stand in the file, without its conditions."""
        if self.annotation is None:
            return f'"{self.pattern}"'
        tool = "" if self.pattern == "*" else f'tool: "{self.pattern}", '
        return f"{{{tool}annotation: {self.annotation}}}"

    @property
    def means_fetch(self) -> bool:
        return self.annotation is None and self.glob.means_fetch

    def applies(self, hints: Hints) -> bool:
        """Whether it may mean a tool that declares this."""
        return self.annotation is None or hints.has(self.annotation)

    def __str__(self) -> str:
        if self.annotation is None:
            return self.pattern
        return f"{self.annotation} tools" + (f" of {self.pattern}" if self.pattern != "*" else "")


class RuleList:
    """One `allow` or `deny` list."""

    def __init__(self, section: ToolRules, side: Literal["allow", "deny"], *keys: str) -> None:
        self.keys: KeyPath = (*keys, side)
        self.is_default = side not in section.model_fields_set
        items: Sequence[str | DenyRule] = getattr(section, side)
        self.rules = tuple(_rule(item, (*self.keys, index)) for index, item in enumerate(items))
        self.has_conditions = any(rule.condition for rule in self.rules)

    def matching(self, names: Iterable[str], hints: Hints) -> list[Rule]:
        """The rules that mean the tool which is called so, in the order of the list."""
        names = tuple(names)
        return [rule for rule in self.rules if rule.applies(hints) and rule.glob.fits(names)]

    def restricting(self, names: ToolNames, hints: Hints) -> list[Rule]:
        """The rules that mean a tool as what restricts does."""
        return [rule for rule in self.rules if rule.applies(hints) and rule.glob.restricts(names)]

    def unmatched(self, tools: Sequence[tuple[ToolNames, Hints]]) -> list[Rule]:
        """The rules, `*` and defaults apart, that mean none of the tools."""
        rules = [] if self.is_default else [rule for rule in self.rules if str(rule) != "*"]
        return [rule for rule in rules if not any(self._means(rule, *each) for each in tools)]

    def _means(self, rule: Rule, names: ToolNames, hints: Hints) -> bool:
        is_restricting = rule.condition or self.keys[-1] == "deny"
        return rule.applies(hints) and (
            rule.glob.restricts(names) if is_restricting else rule.glob.fits(names.granting)
        )


def _rule(item: str | DenyRule, keys: KeyPath) -> Rule:
    if isinstance(item, str):
        return Rule(Glob.of(item), None, None, keys)
    condition = None
    if isinstance(item, AllowRule) and (item.where or item.schema_ is not None):
        condition = ArgumentCondition(item.where, item.schema_)
    return Rule(Glob.of(item.tool), item.annotation, condition, keys)


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
    def means_fetch(self) -> bool:
        return self.glob.means_fetch

    @property
    def is_empty(self) -> bool:
        """Whether it has room for no call."""
        return 0 in (self.calls, self.per_minute)


class ToolSection:
    """The lists of one `tools` section."""

    def __init__(self, section: ToolRules, *keys: str) -> None:
        self.allow = RuleList(section, "allow", *keys, "tools")
        self.deny = RuleList(section, "deny", *keys, "tools")
        self.destructive = section.destructive
        self.keys: KeyPath = (*keys, "tools")
        self.all_budgets = [
            Budget(Glob.of(each.tool), each.calls, each.per_minute, (*self.keys, "budgets", index))
            for index, each in enumerate(section.budgets)
        ]


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
        own = None if profile is None else portal.profiles[profile]
        self.profile = None if own is None else ToolSection(own.tools, "profiles", str(profile))
        self.flows: list[tuple[FlowRule, KeyPath]] = _flows(portal.capabilities.flows, "capabilities")
        if own is not None:
            self.flows += _flows(own.flows, "profiles", str(profile))
        self._namespaces = namespaces
        self._owners = {name: upstream for upstream, name in namespaces.items()}
        self._owners.update({upstream: upstream for upstream in namespaces})
        self._has_dotted_upstreams = any("." in upstream for upstream in namespaces)

    def flow_against(self, sources: Collection[str], destination: str) -> tuple[KeyPath, str] | None:
        """The first rule against a call there after calls to `sources`, and the first of these that it means."""
        for rule, keys in self.flows:
            if meant := [source for source in sources if rule.forbids(source, destination)]:
                return keys, min(meant)
        return None

    def __iter__(self) -> Iterator[ToolSection]:
        yield self.capabilities
        yield from self.upstreams.values()
        if self.profile is not None:
            yield self.profile

    @property
    def of_portal(self) -> list[ToolSection]:
        """Those that mean what is no upstream's, too."""
        return [each for each in (self.capabilities, self.profile) if each is not None]

    def sections(self, upstream: str) -> list[ToolSection]:
        """Those that a tool of an upstream must pass."""
        profile = [] if self.profile is None else [self.profile]
        return [self.capabilities, self.upstreams[upstream], *profile]

    def names(self, upstream: str, tool: str, function: str) -> ToolNames:
        """What a pattern may call a tool."""
        return ToolNames(upstream, self._namespaces[upstream], tool, function)

    def allowing(self, section: ToolSection, upstream: str, names: Names, hints: Hints) -> Sequence[Rule]:
        """The section's rules that allow the tool which is called so."""
        return section.allow.matching(self.own_names(upstream, granting(names)), hints)

    def budgets(self, section: ToolSection, names: ToolNames) -> list[Budget]:
        """The section's budgets that count the calls of a tool. What it is called spends none of another upstream's."""
        lasting = self.own_names(names.upstream, names.lasting)
        return [
            budget
            for budget in section.all_budgets
            if budget.glob.fits(lasting)
            or (
                budget.glob.spells(names) and budget.glob.fits(self.own_names(names.upstream, names.suffixed))
            )
        ]

    def conditions(
        self, section: ToolSection, names: ToolNames, hints: Hints, allowing: Sequence[Rule]
    ) -> list[Sequence[Rule]]:
        """The groups of a section's rules that put a tool under a condition: one rule of each group must be met.

        `allowing` are those that allow it now. The rules that mean the tool by one name of its function are one group.
        One for another name is no way around them: what an upstream gains by giving the name to another tool would be
        just that.
        """
        allow = section.allow
        if not allow.has_conditions:
            return []
        called = [names.now, names.plain]
        if any(rule.condition and rule.glob.spells(names) for rule in allow.rules):
            called.append(names.suffixed)
        found = (allow.matching(self.own_names(names.upstream, each), hints) for each in called)
        groups = (tuple(rule for rule in each if rule.condition) for each in (allowing, *found))
        return [group for group in dict.fromkeys(groups) if group]

    def own_names(self, upstream: str, names: Sequence[str]) -> Sequence[str]:
        """Those of a tool's names under which it may be allowed.

        Upstreams choose the names of their tools. One that calls its tool `files.read` must not be let in by
        an `allow` for `files.*`, which speaks of the upstream `files`.
        """
        if "." not in names[0] and not self._has_dotted_upstreams:
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


def _flows(flows: Sequence[FlowRule], *keys: str) -> list[tuple[FlowRule, KeyPath]]:
    return [(rule, (*keys, "flows", index)) for index, rule in enumerate(flows)]
