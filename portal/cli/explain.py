"""`mcp-code-portal explain`: whether a tool may be called, by which rule at which line, and what to write otherwise."""

import json
import os
from argparse import Namespace
from collections.abc import Sequence

from manifests.json_value import Json
from manifests.manifest import Manifest, narrowed
from manifests.own_files import state_folder
from portal.cli.terminal import Terminal, upstreams_tried
from portal.errors import NO_UPSTREAMS
from portal.explanation import Explanation, explain, explain_fetch, meant_by, nearest
from sandbox_runtime.grants.fetcher import FETCH
from upstreams.fleet import open_fleet
from upstreams.tools import RecordedTool

NOTHING_KNOWN = 2
"""The exit status when the name means no tool, or one of which it is not known what it declares where that decides; 0
is granted, 1 refused, for one of them if it means several.
"""

_VERDICTS = {"allow": "granted", "deny": "refused", "unknown": "not known"}


async def command(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Ask the upstreams that the name may mean, unless told not to, and tell what the manifest says."""
    try:
        arguments = _arguments(options.arguments)
    except ValueError as error:
        terminal.error(f"--arguments must be a JSON object: {error}")
        return NOTHING_KNOWN
    if options.profile is not None:
        manifest = narrowed(manifest, options.profile)
    if options.name == FETCH and FETCH.partition(".")[0] not in manifest.portal.upstreams:
        explanations = [explain_fetch(manifest, FETCH)]
    else:
        explanations = await _explanations(manifest, options, arguments, terminal)
    if not explanations:
        return NOTHING_KNOWN
    if options.json:
        terminal.json([each.facts() for each in explanations])
    else:
        for each in explanations:
            _show(each, terminal)
    verdicts = {each.verdict for each in explanations}
    return 1 if "deny" in verdicts else NOTHING_KNOWN if "unknown" in verdicts else 0


async def _explanations(
    manifest: Manifest, options: Namespace, arguments: dict[str, Json] | None, terminal: Terminal
) -> list[Explanation]:
    """Of each tool that the name may mean; none if it means nothing, which is told."""
    tools = {} if options.offline else await _listed(manifest, _upstreams(manifest, options.name), terminal)
    meant = meant_by(options.name, manifest, tools)
    if not meant:
        terminal.error(_nothing(manifest, options.name, tools))
    return [explain(manifest, each, arguments) for each in meant]


def _arguments(text: str | None) -> dict[str, Json] | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("it nests too deep") from error
    if not isinstance(value, dict):
        raise ValueError(f"this is a {type(value).__name__}")
    return value


def _upstreams(manifest: Manifest, name: str) -> list[str]:
    """Those that a name may mean a tool of: the one that it begins with, else all."""
    named = [
        upstream
        for upstream, namespace in manifest.namespaces.items()
        if name.startswith((f"{upstream}.", f"{namespace}."))
    ]
    return named or list(manifest.portal.upstreams)


async def _listed(
    manifest: Manifest, names: Sequence[str], terminal: Terminal
) -> dict[str, tuple[RecordedTool, ...]]:
    specs = {name: manifest.portal.upstreams[name] for name in names}
    listings = state_folder(os.environ) / "listings"
    secrets = manifest.hidden, manifest.credentials
    async with open_fleet(
        specs, manifest.folder, lambda upstream: None, listings, *secrets, written=manifest.written
    ) as fleet:
        fleet.want_all()
        await upstreams_tried(fleet, terminal)
        for upstream in fleet:
            if upstream.state.status != "ready":
                terminal.note(f"upstream {upstream.name!r} is {upstream.state}")
        return {upstream.name: upstream.tools for upstream in fleet if upstream.tools}


def _nothing(manifest: Manifest, name: str, tools: dict[str, tuple[RecordedTool, ...]]) -> str:
    if not manifest.portal.upstreams:
        return f"no tool is called {name!r}: {NO_UPSTREAMS}"
    silent = [upstream for upstream in _upstreams(manifest, name) if upstream not in tools]
    if near := nearest(name, manifest, tools):
        hint = f" Nearest: {', '.join(near)}."
    else:
        hint = "" if silent else " Look for it: mcp-code-portal search WORDS."
    if silent:
        hint += f" Of {', '.join(silent)} no tools are known: write it as UPSTREAM.TOOL."
    return f"no tool is called {name!r}.{hint}"


def _show(each: Explanation, terminal: Terminal) -> None:
    function = "" if each.function == each.tool else f" (function {each.function})"
    terminal.line(f"{each.tool}{function}: {_VERDICTS[each.verdict]}")
    terminal.line(f"    rule   {each.rule}")
    terminal.line(f"    at     {each.where}")
    if each.grant:
        terminal.line(f"    mend   {each.grant}")
    if not each.is_granted and each.verdict != "unknown" and each.tool != FETCH:  # that stub is always there
        shown = "marked as not granted" if each.is_shown else "left out"
        terminal.line(f"    shown  {shown} in docs_search and stubs")
    for text in each.repairs:
        terminal.line(f"    sent   {text}")
    for group in each.conditions:
        for number, condition in enumerate(group):
            terminal.line(
                f"    {'or    ' if number else 'where '} {condition['demand']} ({condition['where']})"
            )
    for budget in each.budgets:
        said = [f"{budget[key]} {word}" for key, word in _WORDS.items() if budget[key] is not None]
        terminal.line(f"    budget {', '.join(said)} of {budget['tool']} ({budget['where']})")
    for flow in each.flows:
        ends = f"{', '.join(flow['from'])} may not go to {', '.join(flow['not_to'])}"
        terminal.line(f"    flow   what came from {ends} ({flow['where']})")
    for text in each.unknown:
        terminal.line(f"    open   {text}")


_WORDS = {"calls": "calls a run", "per_minute": "calls a minute"}
