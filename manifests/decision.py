"""May this call happen? The one place that says so; pure, so that every way to an upstream can ask it."""

from collections.abc import Mapping
from dataclasses import dataclass

from manifests.errors import Problem
from manifests.manifest import Manifest
from manifests.rules import PatternList


@dataclass(frozen=True)
class Decision:
    """Whether a tool may be called, by which rule, and where that rule stands (`portal.yaml:14:5`)."""

    granted: bool
    rule: str
    where: str


def decide(manifest: Manifest, *, upstream: str, tool: str, function: str) -> Decision:
    """Decide about one tool of an upstream; `function` is its Python name without the namespace.

    It must be allowed by `capabilities.tools` and by the upstream's own `tools`; a deny in either wins.
    """
    rules = manifest.rules
    own = rules.upstreams.get(upstream)
    if own is None:
        return Decision(False, f"the manifest has no upstream {upstream!r}", manifest.where("upstreams"))
    names = rules.names(upstream, tool, function)
    for deny in (rules.capabilities.deny, own.deny):
        if (index := deny.first_match(names)) is not None:
            return _by_pattern(manifest, False, deny, index)
    own_names = rules.own_names(upstream, names)
    if own.allow.first_match(own_names) is None:
        return _by_no_pattern(manifest, own.allow)
    index = rules.capabilities.allow.first_match(own_names)
    if index is None:
        return _by_no_pattern(manifest, rules.capabilities.allow)
    return _by_pattern(manifest, True, rules.capabilities.allow, index)


def unmatched_patterns(manifest: Manifest, tools: Mapping[str, Mapping[str, str]]) -> list[Problem]:
    """Patterns of the file that match none of the tools: often a slip, as in `file.write_*` for `files.write_*`.

    `tools` has, for each upstream that has listed its tools, their names with their functions' names. A pattern
    for an upstream that has not is left alone.
    """
    rules = manifest.rules
    everything = {
        name: [rules.names(name, *pair) for pair in listed.items()] for name, listed in tools.items()
    }
    silent = set(rules.upstreams) - set(everything)
    silent_prefixes = tuple(f"{prefix}." for name in silent for prefix in (name, manifest.namespaces[name]))
    problems = []
    for patterns in rules:
        if patterns.keys[0] == "upstreams" and patterns.keys[1] in silent:
            continue
        upstreams = [str(patterns.keys[1])] if patterns.keys[0] == "upstreams" else list(everything)
        candidates = [names for upstream in upstreams for names in everything[upstream]]
        problems += [
            _unmatched(manifest, patterns, index)
            for index in patterns.unmatched(candidates)
            if not patterns.patterns[index].startswith(silent_prefixes)
        ]
    return problems


def _unmatched(manifest: Manifest, patterns: PatternList, index: int) -> Problem:
    place = manifest.places.get((*patterns.keys, index))
    message = f"{patterns.patterns[index]!r} matches no tool"
    hint = "A pattern is compared with the tool's name, the function's name, upstream.tool and namespace.function."
    key = _dotted(patterns)
    line, column = (place.line, place.column) if place else (None, None)
    return Problem(message, line, column, hint, key)


def _by_pattern(manifest: Manifest, granted: bool, patterns: PatternList, index: int) -> Decision:
    where = manifest.where(*patterns.keys, *([] if patterns.is_default else [index]))
    return Decision(granted, f"{_dotted(patterns)}: {patterns.patterns[index]}", where)


def _by_no_pattern(manifest: Manifest, allow: PatternList) -> Decision:
    return Decision(False, f"{_dotted(allow)} has no pattern for it", manifest.where(*allow.keys))


def _dotted(patterns: PatternList) -> str:
    return ".".join(map(str, patterns.keys))
