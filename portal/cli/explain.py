"""`mcp-code-portal explain`: shows whether a tool may be called, which rule decides, and how to change that."""

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace

from manifests.decision import Decision, decide_arguments, decide_fetch
from manifests.grants import FETCH, NETWORK
from manifests.json_value import Json
from manifests.manifest import Manifest, narrowed
from manifests.names import identifier
from portal.base.errors import NO_UPSTREAMS
from portal.catalog.catalog import decided_tools
from portal.catalog.docs_search import DocsSearch
from portal.catalog.methods import HINTS as READING_HINTS
from portal.catalog.methods import METHODS
from portal.cli.locked import opened_search
from portal.cli.terminal import Terminal
from portal.library.arguments import ArgumentError, normalize_arguments
from upstreams.tools import ListedUpstream

NOTHING_KNOWN = 2
"""The exit status if no known tool has the name, or its arguments cannot be tested. 0: all are granted; 1: not all."""


async def command(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Find the tools that the name may mean, and print the decision about each."""
    if options.name == FETCH and FETCH.partition(".")[0] not in manifest.portal.upstreams:
        if options.arguments is not None:
            why = f"a URL of {FETCH} is compared with the hosts of capabilities.network when it is fetched"
            terminal.error(f"{why}; leave out --arguments")
            return NOTHING_KNOWN
        own = narrowed(manifest, options.profile) if options.profile else manifest
        explanations = [_explanation(own, FETCH, FETCH, NETWORK, decide_fetch(own))]
    else:
        names = [each for each in manifest.portal.upstreams if _behind(options.name, manifest, each)]
        names = names or [*manifest.portal.upstreams]
        async with opened_search(manifest, names, options, terminal, options.name) as portal:
            upstreams = [each for each in portal.fleet if each.name in names]
            if options.arguments is not None:
                await portal.catalog.fresh()
            explanations = [
                each
                for upstream in upstreams
                for each in _explanations(portal, upstream, options.name, options.arguments)
            ]
            if not explanations:
                await portal.catalog.fresh()
                terminal.error(_not_found(portal, options.name, upstreams))
                return NOTHING_KNOWN
    if options.json:
        terminal.json(explanations)
    else:
        for each in explanations:
            _show(each, terminal)
    return 1 if any(each["verdict"] == "deny" for each in explanations) else 0


def _behind(name: str, manifest: Manifest, upstream: str) -> str:
    for prefix in (upstream, manifest.namespaces[upstream]):
        if name.startswith(f"{prefix}."):
            return name[len(prefix) + 1 :]
    return ""


def _explanations(
    portal: DocsSearch, upstream: ListedUpstream, name: str, arguments: dict[str, Json] | None
) -> Iterator[dict[str, Json]]:
    """Explain each tool of the upstream that the name may mean, and a method for resources or prompts."""
    manifest, policy = portal.manifest, portal.authority.policy
    found = [
        (tool.tool, tool.function, decision)
        for tool, decision in decided_tools(policy, upstream)
        if name in manifest.rules.names(upstream.name, tool.tool, tool.function).current
    ]
    methods = [each for each in METHODS if each in (name, _behind(name, manifest, upstream.name))]
    found += [(each, each, policy.about(upstream.name, each, each, READING_HINTS)) for each in methods]
    for tool, function, of_tool in found:
        path, qualified = f"{upstream.name}.{tool}", f"{manifest.namespaces[upstream.name]}.{function}"
        repairs: list[str] = []
        decision = of_tool
        if arguments is not None and of_tool.granted:
            decision = _of_call(portal, qualified, of_tool, arguments, repairs)
        yield _explanation(manifest, path, qualified, upstream.name, decision, of_tool, repairs)


def _of_call(
    portal: DocsSearch, qualified: str, tool: Decision, arguments: dict[str, Json], repairs: list[str]
) -> Decision:
    """Decide about a call of the tool or method. Adds the repairs of its arguments to `repairs`."""
    manifest, function = portal.manifest, portal.catalog.snapshot.library.functions.get(qualified)
    if function is None:  # a method
        return decide_arguments(manifest, tool, arguments)
    try:
        wire, found = normalize_arguments(function, arguments, repairs=manifest.portal.server.repairs)
    except ArgumentError as error:
        where = manifest.where("upstreams", function.upstream)
        return Decision("deny", f"the arguments do not fit the tool: {error}", where, error.hint)
    repairs.extend(found.values())
    return decide_arguments(manifest, tool, wire)


def _explanation(
    manifest: Manifest,
    tool: str,
    function: str,
    upstream: str,
    decision: Decision,
    of_tool: Decision | None = None,
    repairs: list[str] | None = None,
) -> dict[str, Json]:
    """The decision about one tool, or about one call of it; then `of_tool` is the decision about the tool.

    `conditions` are groups of rules, each with its place and demand. One rule of each group must be met. `repairs`
    lists the changes to the arguments before they are sent. `asks` is the rule by which a person has to approve each
    call; "" if none does. `fallbacks` are the functions that are tried if its upstream is down.
    """
    of_tool = of_tool or decision
    forbidding = next((each for each in of_tool.budgets if 0 in (each.calls, each.per_minute)), None)
    if decision.granted and forbidding is not None:
        rule = f"a budget allows no calls of {forbidding.glob.pattern}"
        where = manifest.where(*forbidding.keys)
        decision = replace(decision, verdict="deny", rule=rule, where=where, grant="Raise its number.")
    return {
        "tool": tool,
        "function": function,
        "verdict": decision.verdict,
        "rule": decision.reason,
        "where": decision.where,
        "grant": decision.fix,
        "is_shown": of_tool.granted or of_tool.is_shown,
        "conditions": [
            [{"where": manifest.where(*rule.keys), "demand": str(rule.condition)} for rule in rules]
            for rules in of_tool.conditions
        ],
        "budgets": [
            {
                "tool": budget.glob.pattern,
                "calls": budget.calls,
                "per_minute": budget.per_minute,
                "where": manifest.where(*budget.keys),
            }
            for budget in of_tool.budgets
        ],
        "flows": [*_flows(manifest, upstream)],
        "repairs": repairs or [],
        "asks": of_tool.asks,
        "asks_where": of_tool.asks_where,
        "fallbacks": [*manifest.portal.fallback.get(function, ())],
    }


def _flows(manifest: Manifest, upstream: str) -> Iterator[dict[str, Json]]:
    others = [*manifest.portal.upstreams, NETWORK]
    for rule, keys in manifest.rules.flows:
        if any(rule.forbids(upstream, other) or rule.forbids(other, upstream) for other in others):
            yield {"from": list(rule.from_), "not_to": list(rule.not_to), "where": manifest.where(*keys)}


def _not_found(portal: DocsSearch, name: str, upstreams: list[ListedUpstream]) -> str:
    if not upstreams:
        return f"no tool is called {name!r}: {NO_UPSTREAMS}"
    silent = [f"upstream {each.name!r} is {each.state}" for each in upstreams if not each.tools]
    namespace, dot, rest = name.rpartition(".")
    near = portal.catalog.snapshot.library.nearest(f"{namespace}{dot}{identifier(rest)}")
    hint = f"Nearest: {', '.join(near)}." if near else "Search for it: mcp-code-portal search WORDS."
    return "; ".join([f"no tool is called {name!r}", *silent]) + f". {hint}"


def _show(each: dict[str, Json], terminal: Terminal) -> None:
    function = "" if each["function"] == each["tool"] else f" (function {each['function']})"
    terminal.line(f"{each['tool']}{function}: {'granted' if each['verdict'] == 'allow' else 'refused'}")
    rows = [("rule", each["rule"]), ("at", each["where"])]
    if each["asks"]:
        rows.append(("asks", f"a person before each call, by {each['asks']} ({each['asks_where']})"))
    if each["grant"]:
        rows.append(("fix", each["grant"]))
    if not each["is_shown"]:
        rows.append(("shown", "neither in docs_search nor in stubs"))
    rows += [("sent", repair) for repair in each["repairs"]]
    for group in each["conditions"]:
        demands = [f"{condition['demand']} ({condition['where']})" for condition in group]
        rows += [("or" if number else "where", text) for number, text in enumerate(demands)]
    for budget in each["budgets"]:
        words = {"calls": "calls per run", "per_minute": "calls per minute"}
        limits = [f"{budget[key]} {word}" for key, word in words.items() if budget[key] is not None]
        rows.append(("budget", f"{', '.join(limits)} of {budget['tool']} ({budget['where']})"))
    for flow in each["flows"]:
        ends = f"{', '.join(flow['from'])} may not go to {', '.join(flow['not_to'])}"
        rows.append(("flow", f"data from {ends} ({flow['where']})"))
    if each["fallbacks"]:
        rows.append(("else", f"{', '.join(each['fallbacks'])}, if its upstream is down and it only reads"))
    for word, text in rows:
        terminal.line(f"    {word:<6} {text}")
