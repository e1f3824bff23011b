"""Why a tool may be called or not, for whoever writes the manifest."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from manifests.decision import Decision, decide, decide_arguments, decide_fetch
from manifests.json_value import Json
from manifests.manifest import Manifest
from manifests.names import function_names, identifier
from manifests.tool_rules import NETWORK, NO_HINTS, Hints
from portal.library.arguments import ArgumentError
from portal.library.library import Library, nearest_names
from portal.library.namespace import LibrarySource
from portal.library.repairs import fitted
from portal.passthrough.resources import HINTS as READING_HINTS
from portal.passthrough.resources import METHODS
from portal.pinning.pins import Pins, accepted_tools
from upstreams.tools import RecordedTool


@dataclass(frozen=True)
class Meant:
    """A tool that a name may mean; `recorded` is as its upstream lists it, else as the lock accepts it, else None."""

    upstream: str
    tool: str
    function: str
    recorded: RecordedTool | None
    is_listed: bool = False


@dataclass(frozen=True)
class Explanation:
    """What the manifest says of one tool, of a call of it if there were arguments, and what is not known.

    `verdict` is allow, deny, or unknown: the rules would grant a tool that declares nothing of itself, and nobody knows
    what this one declares.
    `conditions` are groups, each with the place of a rule and what it demands: one of each group must be met.
    """

    tool: str
    function: str
    verdict: str
    rule: str
    where: str
    grant: str
    is_granted: bool
    """Whether the tool is, whatever becomes of the call."""
    is_shown: bool
    repairs: Sequence[str] = ()
    """What would be changed of the arguments before they are sent."""
    conditions: Sequence[Sequence[Mapping[str, str]]] = ()
    budgets: Sequence[Mapping[str, Json]] = ()
    flows: Sequence[Mapping[str, Json]] = ()
    unknown: Sequence[str] = field(default=())

    def facts(self) -> dict[str, Json]:
        return asdict(self)


def meant_by(name: str, manifest: Manifest, tools: Mapping[str, Sequence[RecordedTool]]) -> list[Meant]:
    """The tools that `name` may mean: a tool's or function's own name, alone or behind its upstream or namespace.

    `tools` has those of each upstream that has listed its tools. Of one that has not, those of the lock count, and a
    dotted name is taken at its word. The methods by which resources and prompts are read are every upstream's.
    """
    accepted = {upstream: accepted_tools(manifest.lock, upstream) for upstream in manifest.portal.upstreams}
    found = [
        replace(each, is_listed=upstream in tools)
        for upstream, listed in {**accepted, **tools}.items()
        for each in _listed(name, manifest, upstream, listed)
    ]
    if name in METHODS:
        return [*found, *(Meant(upstream, name, name, None) for upstream in manifest.portal.upstreams)]
    if found:
        return [*found, *_readings(name, manifest)]
    return [
        Meant(upstream, rest, rest if rest in METHODS else identifier(rest), None)
        for upstream in manifest.portal.upstreams
        if (rest := _behind(name, manifest, upstream)) and (upstream not in tools or rest in METHODS)
    ]


def nearest(name: str, manifest: Manifest, tools: Mapping[str, Sequence[RecordedTool]]) -> list[str]:
    """Up to 3 functions of known tools that a name of nothing may have meant: those of its upstream, if it has one."""
    known: dict[str, dict[str, str]] = {}
    for upstream, namespace in manifest.namespaces.items():
        listed = tools.get(upstream) or accepted_tools(manifest.lock, upstream)
        names = function_names([tool.name for tool in listed])
        known[upstream] = {function: f"{namespace}.{function}" for function in names.values()}
    for upstream, functions in known.items():
        if rest := _behind(name, manifest, upstream):
            return [functions[each] for each in nearest_names(rest, functions)]
    anywhere = {bare: qualified for functions in known.values() for bare, qualified in functions.items()}
    anywhere.update({qualified: qualified for qualified in anywhere.values()})
    return [*dict.fromkeys(anywhere[each] for each in nearest_names(name, anywhere))]


def explain(manifest: Manifest, meant: Meant, arguments: dict[str, Json] | None = None) -> Explanation:
    """Explain one tool, or with `arguments` one call of it; they may have their Python names or the tool's own."""
    repairs: list[str] = []
    tool, decision = _decided(manifest, meant, arguments, repairs)
    is_declared = meant.recorded is not None or _is_reading(meant)
    return Explanation(
        tool=f"{meant.upstream}.{meant.tool}",
        function=f"{manifest.namespaces[meant.upstream]}.{meant.function}",
        verdict=decision.verdict if is_declared or not decision.granted else "unknown",
        rule=decision.reason,
        where=decision.where,
        grant=decision.grant,
        is_granted=tool.granted and is_declared,
        is_shown=tool.granted or tool.is_shown,
        repairs=repairs,
        conditions=[
            [{"where": manifest.where(*rule.keys), "demand": str(rule.condition)} for rule in rules]
            for rules in tool.conditions
        ],
        budgets=_budgets(manifest, tool),
        flows=list(_flows(manifest, meant.upstream)),
        unknown=[*_unknown(meant)],
    )


def explain_fetch(manifest: Manifest, function: str) -> Explanation:
    """Explain `portal.fetch`, as scripts call it by `function`."""
    fetching = decide_fetch(manifest)
    decision = (_spent(manifest, fetching) or _callless(manifest) if fetching.granted else None) or fetching
    return Explanation(
        tool=function,
        function=function,
        verdict=decision.verdict,
        rule=decision.rule,
        where=decision.where,
        grant=decision.grant,
        is_granted=fetching.granted,
        is_shown=True,
        budgets=_budgets(manifest, fetching),
        flows=list(_flows(manifest, NETWORK)),
        unknown=["which hosts it may reach is looked at by each request"] if decision.granted else [],
    )


def _decided(
    manifest: Manifest, meant: Meant, arguments: dict[str, Json] | None, repairs: list[str]
) -> tuple[Decision, Decision]:
    """Decide about the tool, and about the call; what would be repaired of that is put into `repairs`."""
    facts = {"upstream": meant.upstream, "tool": meant.tool, "function": meant.function}
    tool = decide(manifest, **facts, hints=_declared(meant))
    if not _is_reading(meant) and (tool.granted or tool.is_shown):
        tool = _quarantined(manifest, meant) or tool
    decision = tool
    if arguments is not None and tool.granted:
        decision = _of_call(manifest, meant, tool, arguments, repairs)
    if decision.granted:
        decision = _spent(manifest, tool) or _callless(manifest) or decision
    return tool, decision


def _listed(name: str, manifest: Manifest, upstream: str, listed: Sequence[RecordedTool]) -> Iterator[Meant]:
    names = function_names([tool.name for tool in listed])
    for tool in listed:
        function = names[tool.name]
        if name in manifest.rules.names(upstream, tool.name, function).now:
            yield Meant(upstream, tool.name, function, tool)


def _behind(name: str, manifest: Manifest, upstream: str) -> str:
    for prefix in (upstream, manifest.namespaces[upstream]):
        if name.startswith(f"{prefix}."):
            return name[len(prefix) + 1 :]
    return ""


def _readings(name: str, manifest: Manifest) -> Iterator[Meant]:
    """The method that the name behind an upstream's is, beside the tool of that upstream that is called so."""
    for upstream in manifest.portal.upstreams:
        if (rest := _behind(name, manifest, upstream)) in METHODS:
            yield Meant(upstream, rest, rest, None)


def _is_reading(meant: Meant) -> bool:
    """Whether it is no tool but a way to read what the upstream offers besides."""
    return meant.recorded is None and meant.tool in METHODS


def _declared(meant: Meant) -> Hints:
    if _is_reading(meant):
        return READING_HINTS
    return NO_HINTS if meant.recorded is None else Hints.of(meant.recorded.annotations)


def _quarantined(manifest: Manifest, meant: Meant) -> Decision | None:
    if meant.recorded is None:
        return Pins(manifest.lock).unaccepted(meant.upstream, meant.tool)
    return Pins(manifest.lock).quarantined(meant.upstream, (meant.recorded,)).get(meant.tool)


def _of_call(
    manifest: Manifest, meant: Meant, tool: Decision, arguments: dict[str, Json], repairs: list[str]
) -> Decision:
    """Decide about the call; what would be repaired of it is put into `repairs`."""
    if meant.recorded is not None:
        names = {meant.tool: meant.function}
        namespace = manifest.namespaces[meant.upstream]
        source = LibrarySource(meant.upstream, namespace, "", [meant.recorded], names)
        [function] = Library.compile([source]).functions.values()
        try:
            found = fitted(function, arguments, repairs=manifest.portal.server.repairs)
        except ArgumentError as error:
            where = manifest.where("upstreams", meant.upstream)
            return Decision("deny", f"the arguments do not fit the tool: {error}", where, error.hint)
        repairs.extend(repair.message for repair in found.repairs)
        arguments = found.wire
    return decide_arguments(manifest, tool, arguments)


def _budgets(manifest: Manifest, tool: Decision) -> list[Mapping[str, Json]]:
    return [
        {
            "tool": budget.pattern,
            "calls": budget.calls,
            "per_minute": budget.per_minute,
            "where": manifest.where(*budget.keys),
        }
        for budget in tool.budgets
    ]


def _spent(manifest: Manifest, tool: Decision) -> Decision | None:
    """The refusal of every call, where a budget has room for none."""
    for budget in tool.budgets:
        if budget.is_empty:
            told = f"{'.'.join(map(str, budget.keys[:-1]))}: there may be 0 calls of {budget.pattern}"
            grant = "Give the budget room for calls, or remove it."
            return Decision("deny", told, manifest.where(*budget.keys), grant)
    return None


def _callless(manifest: Manifest) -> Decision | None:
    """The refusal of every call of every script, where the limits have room for none."""
    if manifest.portal.capabilities.limits.tool_calls > 0:
        return None
    where = manifest.where("capabilities", "limits", "tool_calls")
    return Decision("deny", "limits.tool_calls: a run may make 0 calls", where, "Raise it, or remove it.")


def _unknown(meant: Meant) -> Iterator[str]:
    if meant.is_listed or _is_reading(meant):
        return
    if meant.recorded is not None:
        yield f"upstream {meant.upstream!r} has not listed its tools: this is said of the tool as the lock accepts it"
        return
    yield (
        f"upstream {meant.upstream!r} has not listed its tools, so it is not known whether it has this one, what it "
        "declares of itself, and how its function is called"
    )


def _flows(manifest: Manifest, upstream: str) -> Iterator[dict[str, Json]]:
    for rule, keys in manifest.rules.flows:
        named = {"from": list(rule.from_), "not_to": list(rule.not_to), "where": manifest.where(*keys)}
        others = [*manifest.portal.upstreams, NETWORK]
        if any(rule.forbids(upstream, other) or rule.forbids(other, upstream) for other in others):
            yield named
