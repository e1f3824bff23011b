"""Decides whether a call may happen, here only and without I/O; also finds the rules that match no tool."""

import glob
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, TypeAlias

from manifests.conditions import MAX_STEPS, TOO_MUCH
from manifests.errors import KeyPath, Problem
from manifests.grants import Hints
from manifests.json_value import Json
from manifests.manifest import Budget, Finding, Manifest, Rule, ToolSection
from manifests.names import Glob, ToolNames

_PLAIN = re.compile(r"[A-Za-z0-9_.:/-]{1,100}")


@dataclass(frozen=True)
class Decision:
    """The decision about a tool, or about one call of it.

    `rule` names the deciding rule and `where` its place (`portal.yaml:14:5`), in the manifest's own words. `violation`
    says what is wrong with the arguments, and may contain them. `advice` says what the script can do; "" if nothing.
    `grant` tells the operator what to write for another decision; "" if nothing would help. Models never see it.
    `is_shown` is true for a tool that only its own declaration refuses: stubs and search results show it, marked.
    `code` is the error code of a refused call. `conditions` are groups of rules: the arguments must satisfy one rule of
    each group. `budgets` count the call. `asks` and `asks_where` are the rule, and its place, by which each call of a
    granted tool waits for a person's approval; "" if none does.
    """

    verdict: Literal["allow", "deny"]
    rule: str
    where: str
    grant: str = ""
    advice: str = ""
    is_shown: bool = True
    code: str = "not_granted"
    violation: str = ""
    conditions: tuple[Sequence[Rule], ...] = ()
    budgets: tuple[Budget, ...] = ()
    asks: str = ""
    asks_where: str = ""

    @property
    def granted(self) -> bool:
        return self.verdict == "allow"

    @property
    def fix(self) -> str:
        """Advice for the operator."""
        return f"{self.advice} {self.grant}".strip()

    @property
    def reason(self) -> str:
        """The rule, and how the arguments violate it: for the caller."""
        return f"{self.rule}: {self.violation}" if self.violation else self.rule


def decide(manifest: Manifest, *, upstream: str, tool: str, function: str, hints: Hints) -> Decision:
    """Decide about one tool of an upstream; `function` is its Python name without the namespace.

    `capabilities.tools`, the upstream's `tools` and the profile's, if there is one, must all allow it. A deny in any of
    them wins. A tool that declares itself destructive must also be named. An `ask` in any of them asks.
    """
    rules = manifest.rules
    if upstream not in rules.upstreams:
        where = manifest.where("upstreams")
        return Decision("deny", f"the manifest has no upstream {upstream!r}", where, is_shown=False)
    names = rules.names(upstream, tool, function)
    sections = rules.sections(upstream)
    for section in sections:
        if denying := next((rule for rule in section.deny if rule.restricts(names, hints)), None):
            where = _place(manifest, denying)
            grant = f"Remove {denying.written} from {_dotted(denying.keys[:-1])} at {where}, or narrow the pattern."
            return Decision("deny", _rule_text(denying), where, grant, is_shown=False)
    allowing = [rules.allowing(section, names, hints) for section in sections]
    both = [*zip(sections, allowing, strict=True)]
    for section, found in reversed(both):
        if not found:
            keys = (*section.keys, "allow")
            where = manifest.where(*keys)
            grant = f"Add {_pattern(names)} to {_dotted(keys)} at {where}."
            return Decision("deny", f"{_dotted(keys)} has no matching pattern", where, grant, is_shown=False)
    named = [rules.is_named(section, names, hints) for section in sections] if hints.destructive else []
    if hints.destructive and (refusing := _refusing(sections, named)):
        return _destructive(manifest, refusing, names)
    conditions = tuple(group for section, found in both for group in section.conditions(names, hints, found))
    budgets = tuple(each for section in sections for each in section.budgets if rules.counts(each, names))
    first = allowing[0][0]
    granted = Decision(
        "allow", _rule_text(first), _place(manifest, first), conditions=conditions, budgets=budgets
    )
    asking = (rule for section in sections for rule in section.ask if rule.restricts(names, hints))
    return _asking(manifest, granted, next(asking, None))


def _asking(manifest: Manifest, granted: Decision, rule: Rule | None) -> Decision:
    if rule is None:
        return granted
    return replace(granted, asks=_rule_text(rule), asks_where=_place(manifest, rule))


def decide_arguments(manifest: Manifest, tool: Decision, arguments: Mapping[str, Json]) -> Decision:
    """Decide about a call of a granted tool with these arguments, as they would be sent.

    Its schemas share the validation steps equally, so their order does not matter.
    """
    if not tool.conditions:
        return tool
    schemas = sum(rule.condition.schema is not None for rules in tool.conditions for rule in rules)
    met = []
    for rules in tool.conditions:
        faults: list[str] = []
        for rule in rules:
            faults.append(rule.condition.violation(arguments, MAX_STEPS // max(1, schemas)))
            if not faults[-1]:
                met.append(rule)
                break
        else:
            return _unmet(manifest, rules, faults)
    return replace(tool, conditions=(), rule=_rule_text(met[0]), where=_place(manifest, met[0]))


def _unmet(manifest: Manifest, rules: Sequence[Rule], faults: Sequence[str]) -> Decision:
    index = faults.index(TOO_MUCH) if TOO_MUCH in faults else 0
    others = [str(rule.condition) for rule in rules if rule is not rules[index]]
    more = "".join(f", or meet another condition: {each}" for each in others[:3])
    called = (
        "with fewer or smaller arguments" if TOO_MUCH in faults else "with arguments that meet the condition"
    )
    advice, where, rule = f"Call it {called}{more}.", _place(manifest, rules[index]), _rule_text(rules[index])
    grant = f"Or change the condition at {where}."
    return Decision("deny", rule, where, grant, advice, violation=faults[index])


def _rule_text(rule: Rule) -> str:
    return f"{_dotted(rule.keys[:-1])}: {rule}"


def decide_fetch(manifest: Manifest) -> Decision:
    """Decide about `portal.fetch` as such. The fetcher checks the host when it connects."""
    profile = manifest.profile
    is_of_profile = profile is not None and manifest.portal.profiles[profile].network is not None
    keys = ("profiles", profile, "network") if profile and is_of_profile else ("capabilities", "network")
    where = manifest.where(*keys)
    if manifest.portal.capabilities.network is not None:
        sections = manifest.rules.of_portal
        if denying := next((rule for each in sections for rule in each.deny if rule.means_fetch), None):
            place = _place(manifest, denying)
            grant = f"Remove {denying.written} from {_dotted(denying.keys[:-1])} at {place}."
            return Decision("deny", _rule_text(denying), place, grant)
        budgets = tuple(budget for each in sections for budget in each.budgets if budget.glob.means_fetch)
        asking = (rule for each in sections for rule in each.ask if rule.means_fetch)
        return _asking(manifest, Decision("allow", _dotted(keys), where, budgets=budgets), next(asking, None))
    if keys[0] == "profiles":
        grant = f"List hosts of capabilities.network in {_dotted(keys)}."
        return Decision("deny", f"{_dotted(keys)} grants no host", where, grant)
    grant = "To grant hosts, write capabilities.network.allow: [api.example.com]."
    return Decision("deny", "network access is not granted", where, grant)


def decide_flow(manifest: Manifest, sources: Collection[str], destination: str) -> Decision:
    """Decide about a call to an upstream, or to NETWORK, once calls to `sources` may have returned data."""
    if found := manifest.rules.flow_against(sources, destination):
        keys, source = found
        message = f"{_dotted(keys)}: data from {source} must not go to {destination}"
        advice = (
            f"Call {destination} before {source}, or in a script and a session with no data from {source}."
        )
        where = manifest.where(*keys)
        return Decision("deny", message, where, f"Or change the rule at {where}.", advice)
    return Decision("allow", "no flow rule forbids it", manifest.where("capabilities", "flows"))


def _refusing(sections: Sequence[ToolSection], named: Sequence[bool]) -> KeyPath | None:
    """The keys of the section that refuses a destructive tool. An upstream's setting overrides that of capabilities.

    `named` tells which sections name the tool. A profile cannot name it for the others.
    """
    capabilities, upstream, *profile = sections
    if (upstream.destructive or capabilities.destructive or "refuse") == "refuse" and not any(named[:2]):
        return (upstream if upstream.destructive else capabilities).keys
    for section, is_named in zip(profile, named[2:], strict=True):
        if section.destructive == "refuse" and not is_named:
            return section.keys
    return None


def _destructive(manifest: Manifest, keys: KeyPath, names: ToolNames) -> Decision:
    dotted, pattern = _dotted(keys), _pattern(names)
    is_default = (*keys, "allow") not in manifest.places
    added = f'write {dotted}.allow: ["*", {pattern}]' if is_default else f"add {pattern} to {dotted}.allow"
    # A profile can only narrow.
    of_all = f"remove {dotted}.destructive" if keys[0] == "profiles" else f"write {dotted}.destructive: allow"
    grant = f"To grant it, {added}. To grant all destructive tools, {of_all}."
    message = f"the tool declares itself destructive, and no rule of {dotted}.allow names it"
    place = next((key for key in ("destructive", "allow") if (*keys, key) in manifest.places), "destructive")
    return Decision("deny", message, manifest.where(*keys, place), grant)


def _place(manifest: Manifest, rule: Rule) -> str:
    is_written = rule.keys in manifest.places
    return manifest.where(*(rule.keys if is_written else rule.keys[:-1]))


def _pattern(names: ToolNames) -> str:
    """A quoted pattern that matches this tool: `"files.delete_file"`.

    It uses the upstream's own name only if that is plain: a model may read it.
    """
    own, function = names.current[2:4]
    pattern = glob.escape(own if _PLAIN.fullmatch(own) and own in names.allow_names else function)
    return '"' + pattern.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _dotted(keys: KeyPath) -> str:
    return ".".join(map(str, keys))


_OPEN_END = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]+")
_HINT = "Patterns match the tool's name, the function's name, upstream.tool and namespace.function."


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool of an upstream; `arguments` are the names in its schema, None if it accepts others."""

    tool: str
    function: str
    hints: Hints
    arguments: frozenset[str] | None


def unmatched_rules(manifest: Manifest, tools: Mapping[str, Sequence[ListedTool]]) -> Iterator[Problem]:
    """Rules that match no tool, and conditions on arguments that do not exist.

    `tools` has an entry for each upstream that has listed its tools. Patterns that could match a tool of another
    upstream are not reported: only those that begin with the name of one that has.
    """
    for section in manifest.rules:
        names = [str(section.keys[1])] if section.keys[0] == "upstreams" else list(manifest.rules.upstreams)
        listed = [(name, tool) for name in names for tool in tools.get(name, ())]
        found = [*_unknown_arguments(manifest, section, listed), *_open_ends(section)]
        silent = [name for name in names if name not in tools]
        found += (
            finding
            for finding, pattern in _unmatched(manifest, section, listed)
            if not silent or manifest.rules.owner(pattern) in tools
        )
        for keys, message, hint in found:
            place = manifest.places.get(keys)
            line, column = (place.line, place.column) if place else (None, None)
            yield Problem(message, line, column, hint, _dotted(keys[:-1]))


_Listed: TypeAlias = Sequence[tuple[str, ListedTool]]


def _unmatched(manifest: Manifest, section: ToolSection, listed: _Listed) -> Iterator[tuple[Finding, str]]:
    """Rules that match no listed tool, or only by former names, each with its pattern."""
    rules, is_of_portal = manifest.rules, section in manifest.rules.of_portal
    named = [(rules.names(upstream, each.tool, each.function), each.hints) for upstream, each in listed]
    for rule in (*section.allow, *section.deny, *section.ask):
        is_met = any(
            rule.restricts(names, hints)
            if rule.condition or rule.is_restricting
            else rule.fits(names.allow_names, hints)
            for names, hints in named
        )
        is_of_fetch = is_of_portal and rule.is_restricting and rule.means_fetch
        if str(rule) != "*" and not is_of_fetch and not is_met:
            yield (rule.keys, f"{str(rule)!r} matches no tool", _HINT), rule.glob.pattern
        yield from _formerly(rule.keys, rule.glob, named)
    for budget in section.budgets:
        is_of_fetch = is_of_portal and budget.glob.means_fetch
        if not is_of_fetch and not any(budget.glob.restricts(names) for names, _ in named):
            yield (budget.keys, f"{budget.glob.pattern!r} matches no tool", _HINT), budget.glob.pattern
        yield from _formerly(budget.keys, budget.glob, named)


def _formerly(
    keys: KeyPath, pattern: Glob, named: Sequence[tuple[ToolNames, Hints]]
) -> Iterator[tuple[Finding, str]]:
    """A pattern that matches tools only by their former names."""
    meant = [_pattern(names) for names, _ in named if pattern.fits(names.current[4:])]
    if meant and not any(pattern.fits((*names.current[:4], *names.default[:4])) for names, _ in named):
        message = f"{pattern.pattern!r} is a former name of {', '.join(meant[:3])}"
        yield (keys, message, "It still matches. Write the name of today."), pattern.pattern


def _unknown_arguments(manifest: Manifest, section: ToolSection, listed: _Listed) -> Iterator[Finding]:
    rules = manifest.rules
    for upstream, tool in listed:
        names = rules.names(upstream, tool.tool, tool.function)
        groups = section.conditions(names, tool.hints, rules.allowing(section, names, tool.hints))
        for rule in dict.fromkeys(chain.from_iterable(groups)):
            for argument in (
                rule.condition.where.keys() - tool.arguments if tool.arguments is not None else ()
            ):
                known = ", ".join(sorted(tool.arguments or ())) or "none"
                message = f"{upstream}.{tool.tool} has no argument {argument!r}, so this never matches; it has {known}"
                yield rule.keys, message, ""


def _open_ends(section: ToolSection) -> Iterator[Finding]:
    """Prefixes that end within a URL's host: https://a.example lets https://a.example.evil through."""
    for rule in section.allow:
        for name, comparison in rule.condition.where.items():
            if comparison.prefix is not None and _OPEN_END.fullmatch(comparison.prefix):
                message = f"the prefix of {name!r} ends inside the host, so it also matches other hosts"
                yield rule.keys, message, "End it with /."
