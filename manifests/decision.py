"""May this call happen? The one place that says so; pure, so that every way to an upstream can ask it; and which
rules decide nothing."""

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
from manifests.manifest import Budget, Manifest, Rule, ToolSection
from manifests.names import ToolNames

_PLAIN = re.compile(r"[A-Za-z0-9_.:/-]{1,100}")


@dataclass(frozen=True)
class Decision:
    """What a manifest says of a tool, or of one call of it.

    `rule` says which rule decided and `where` it stands (`portal.yaml:14:5`), in the manifest's words alone; `fault` is
    what is wrong with the arguments of a call, and may have them in it; `grant` says what to write for another
    answer, "" if there is nothing to write. Of a tool that only its own declaration keeps from scripts, `is_shown` is
    true: it stays in stubs and search results, marked.

    `code` is what a refused call is told.

    `conditions` are what the arguments of a call must meet, one rule of each group; `budgets` count the call.
    """

    verdict: Literal["allow", "deny"]
    """`authorize()` matches both. Everybody else asks `granted`, to which a third would be a refusal."""
    rule: str
    where: str
    grant: str = ""
    is_shown: bool = True
    code: str = "not_granted"
    fault: str = ""
    conditions: tuple[Sequence[Rule], ...] = ()
    budgets: tuple[Budget, ...] = ()

    @property
    def granted(self) -> bool:
        return self.verdict == "allow"

    @property
    def reason(self) -> str:
        """The rule, and how the call's arguments do not meet it: for whoever made the call."""
        return f"{self.rule}: {self.fault}" if self.fault else self.rule


def decide(manifest: Manifest, *, upstream: str, tool: str, function: str, hints: Hints) -> Decision:
    """Decide about one tool of an upstream; `function` is its Python name without the namespace.

    It must be allowed by `capabilities.tools`, by the upstream's own `tools` and by the profile's, if the caller has
    one; a deny in any of them wins. One that declares itself destructive must be named, too.
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
            grant = (
                f"Remove {denying.written} from {_dotted(denying.keys[:-1])} at {where}, or make it narrower."
            )
            return Decision("deny", _told(denying), where, grant, is_shown=False)
    allowing = [rules.allowing(section, names, hints) for section in sections]
    both = [*zip(sections, allowing, strict=True)]
    for section, found in reversed(both):
        if not found:
            keys = (*section.keys, "allow")
            where = manifest.where(*keys)
            grant = f"Add {_pattern(names)} to {_dotted(keys)} at {where}."
            return Decision("deny", f"{_dotted(keys)} has no pattern for it", where, grant, is_shown=False)
    if hints.destructive and (refusing := _refusing(sections, allowing)):
        return _destructive(manifest, refusing, names)
    conditions = tuple(group for section, found in both for group in section.conditions(names, hints, found))
    budgets = tuple(each for section in sections for each in section.budgets if rules.counts(each, names))
    first = allowing[0][0]
    return Decision("allow", _told(first), _place(manifest, first), conditions=conditions, budgets=budgets)


def decide_arguments(manifest: Manifest, tool: Decision, arguments: Mapping[str, Json]) -> Decision:
    """Decide about a call with these arguments, as they would be sent, of a tool that is granted.

    The schemas of its rules share equally what may be looked at, so it is the same whichever stands first.
    """
    if not tool.conditions:
        return tool
    schemas = sum(rule.condition.schema is not None for rules in tool.conditions for rule in rules)
    met = []
    for rules in tool.conditions:
        faults: list[str] = []
        for rule in rules:
            faults.append(rule.condition.fault(arguments, MAX_STEPS // max(1, schemas)))
            if not faults[-1]:
                met.append(rule)
                break
        else:
            return _unmet(manifest, rules, faults)
    return replace(tool, conditions=(), rule=_told(met[0]), where=_place(manifest, met[0]))


def _unmet(manifest: Manifest, rules: Sequence[Rule], faults: Sequence[str]) -> Decision:
    index = faults.index(TOO_MUCH) if TOO_MUCH in faults else 0
    others = [f"{rule.condition} ({_place(manifest, rule)})" for rule in rules if rule is not rules[index]]
    more = "".join(f", or another one: {each}" for each in others[:3])
    called = "with less at once" if TOO_MUCH in faults else "with arguments that meet the condition"
    grant = f"Call it {called}{more}, or change the condition."
    return Decision("deny", _told(rules[index]), _place(manifest, rules[index]), grant, fault=faults[index])


def _told(rule: Rule) -> str:
    return f"{_dotted(rule.keys[:-1])}: {rule}"


def decide_fetch(manifest: Manifest) -> Decision:
    """Decide about `portal.fetch` at all; which hosts it may reach is looked at where it connects."""
    profile = manifest.profile
    is_of_profile = profile is not None and manifest.portal.profiles[profile].network is not None
    keys = ("profiles", profile, "network") if profile and is_of_profile else ("capabilities", "network")
    where = manifest.where(*keys)
    if manifest.portal.capabilities.network is not None:
        sections = manifest.rules.of_portal
        if denying := next((rule for each in sections for rule in each.deny if rule.means_fetch), None):
            place = _place(manifest, denying)
            grant = f"Remove {denying.written} from {_dotted(denying.keys[:-1])} at {place}."
            return Decision("deny", _told(denying), place, grant)
        budgets = tuple(budget for each in sections for budget in each.budgets if budget.glob.means_fetch)
        return Decision("allow", _dotted(keys), where, budgets=budgets)
    if keys[0] == "profiles":
        grant = f"Name hosts of capabilities.network in {_dotted(keys)}."
        return Decision("deny", f"{_dotted(keys)} leaves scripts no host", where, grant)
    grant = "To grant hosts, write capabilities.network.allow: [api.example.com]."
    return Decision("deny", "scripts are granted no network", where, grant)


def decide_flow(manifest: Manifest, sources: Collection[str], destination: str) -> Decision:
    """Decide about a call to an upstream, or to NETWORK, after calls to `sources` may have answered."""
    if found := manifest.rules.flow_against(sources, destination):
        keys, source = found
        told = f"{_dotted(keys)}: what came from {source} may not go to {destination}"
        grant = f"Call {destination} before {source}, or in a script and a session that do not call {source}."
        return Decision("deny", told, manifest.where(*keys), grant)
    return Decision("allow", "no rule of flows is against it", manifest.where("capabilities", "flows"))


def _refusing(sections: Sequence[ToolSection], allowing: Sequence[Sequence[Rule]]) -> KeyPath | None:
    """The keys of what keeps a destructive tool from scripts. An upstream's own word counts more than that of all."""
    capabilities, upstream, *profile = sections
    is_named = any(rule.is_naming for found in allowing[:2] for rule in found)
    if (upstream.destructive or capabilities.destructive or "refuse") == "refuse" and not is_named:
        return (upstream if upstream.destructive else capabilities).keys
    for section, found in zip(profile, allowing[2:], strict=True):
        if section.destructive == "refuse" and not any(rule.is_naming for rule in found):
            return section.keys
    return None


def _destructive(manifest: Manifest, keys: KeyPath, names: ToolNames) -> Decision:
    dotted, pattern = _dotted(keys), _pattern(names)
    is_default = (*keys, "allow") not in manifest.places
    added = f'write {dotted}.allow: ["*", {pattern}]' if is_default else f"add {pattern} to {dotted}.allow"
    # In a profile nothing may be allowed that the others refuse.
    of_all = f"remove {dotted}.destructive" if keys[0] == "profiles" else f"{dotted}.destructive: allow"
    grant = f"To grant it, {added}; or, for all such tools, {of_all}."
    told = f"it declares itself destructive, and no rule of {dotted}.allow names it"
    place = next((key for key in ("destructive", "allow") if (*keys, key) in manifest.places), "destructive")
    return Decision("deny", told, manifest.where(*keys, place), grant)


def _place(manifest: Manifest, rule: Rule) -> str:
    is_written = rule.keys in manifest.places
    return manifest.where(*(rule.keys if is_written else rule.keys[:-1]))


def _pattern(names: ToolNames) -> str:
    """What means this one tool in a list of patterns, in quotes: `files.delete_file`.

    An upstream's own name for it only if nothing can be hidden in that: whoever reads this may be a model.
    """
    own, function = names.now[2:]
    pattern = glob.escape(own if _PLAIN.fullmatch(own) and own in names.granting else function)
    return '"' + pattern.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _dotted(keys: KeyPath) -> str:
    return ".".join(map(str, keys))


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


def unmatched_rules(manifest: Manifest, tools: Mapping[str, Sequence[ListedTool]]) -> Iterator[Problem]:
    """Rules of the file that mean none of the tools, and conditions on arguments that none of theirs has.

    `tools` has those of each upstream that has listed its tools. As long as one has not, nothing is told of patterns
    that could mean a tool of it: those that begin with the name of another one cannot.
    """
    for section in manifest.rules:
        names = [str(section.keys[1])] if section.keys[0] == "upstreams" else list(manifest.rules.upstreams)
        listed = [(name, tool) for name in names for tool in tools.get(name, ())]
        found = [*_unknown_arguments(manifest, section, listed), *_open_ends(section)]
        silent = [name for name in names if name not in tools]
        found += (
            each
            for each in _unmatched(manifest, section, listed)
            if not silent or manifest.rules.owner(_pattern_at(section, each[0])) in tools
        )
        for keys, message, hint in found:
            place = manifest.places.get(keys)
            line, column = (place.line, place.column) if place else (None, None)
            yield Problem(message, line, column, hint, _dotted(keys[:-1]))


_Listed: TypeAlias = Sequence[tuple[str, ListedTool]]
_Slip: TypeAlias = tuple[KeyPath, str, str]
"""Where it is, what it is, and what to do."""


def _unmatched(manifest: Manifest, section: ToolSection, listed: _Listed) -> Iterator[_Slip]:
    rules, is_of_portal = manifest.rules, section in manifest.rules.of_portal
    named = [(rules.names(upstream, each.tool, each.function), each.hints) for upstream, each in listed]
    for rule in (*section.allow, *section.deny):
        is_denying = "deny" in rule.keys
        is_met = any(
            rule.restricts(names, hints) if rule.condition or is_denying else rule.fits(names.granting, hints)
            for names, hints in named
        )
        is_of_fetch = is_of_portal and is_denying and rule.means_fetch
        if str(rule) != "*" and not is_of_fetch and not is_met:
            yield rule.keys, f"{str(rule)!r} matches no tool", _HINT
    for budget in section.budgets:
        is_of_fetch = is_of_portal and budget.glob.means_fetch
        if not is_of_fetch and not any(budget.glob.restricts(names) for names, _ in named):
            yield budget.keys, f"{budget.pattern!r} matches no tool", _HINT


def _pattern_at(section: ToolSection, keys: KeyPath) -> str:
    rules = (*section.allow, *section.deny)
    patterns = {rule.keys: rule.glob.pattern for rule in rules} | {
        each.keys: each.pattern for each in section.budgets
    }
    return patterns[keys]


def _unknown_arguments(manifest: Manifest, section: ToolSection, listed: _Listed) -> Iterator[_Slip]:
    rules = manifest.rules
    for upstream, tool in listed:
        names = rules.names(upstream, tool.tool, tool.function)
        groups = section.conditions(names, tool.hints, rules.allowing(section, names, tool.hints))
        for rule in dict.fromkeys(chain.from_iterable(groups)):
            for argument in (
                rule.condition.where.keys() - tool.arguments if tool.arguments is not None else ()
            ):
                known = ", ".join(sorted(tool.arguments or ())) or "none"
                told = f"{upstream}.{tool.tool} has no argument {argument!r}, so it is never called; it has {known}"
                yield rule.keys, told, ""


def _open_ends(section: ToolSection) -> Iterator[_Slip]:
    """Prefixes that end within a URL's host: https://a.example lets https://a.example.evil through."""
    for rule in section.allow:
        for name, comparison in rule.condition.where.items():
            if comparison.prefix is not None and _OPEN_END.fullmatch(comparison.prefix):
                told = f"the prefix of {name!r} ends within the host, so that other hosts begin with it, too"
                yield rule.keys, told, "End it with /."
