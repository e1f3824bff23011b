"""`mcp-code-portal check`: everything that can be wrong with a set-up, told at once."""

from argparse import Namespace
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from itertools import chain

import anyio

from manifests.errors import ManifestError
from manifests.known_tokens import literal_tokens
from manifests.manifest import Manifest
from manifests.narrowing import narrowed
from manifests.rule_slips import unmatched_rules
from portal.cli.terminal import Terminal, counted
from portal.cli.upstream_wait import tried
from portal.composition import Portal, open_portal
from portal.execution import ExecuteCode
from portal.first_steps import NO_UPSTREAMS
from portal.granted import granted
from portal.listed_tools import listed_tools
from portal.pinning.pins import QUARANTINED, pins_of
from portal.pinning.suspicions import Neighbours, suspicions
from upstreams.upstream import Upstream

WARNED = 3
"""The exit status of `check --strict` when there are warnings and no errors."""

MAX_SHOWN = 20
"""Tools told by name on one line; more are counted, and all of them are in the JSON."""

PROBE = "import sys; sys.version.split()[0]"


@dataclass
class Findings:
    """`errors` make the exit status 1; `warnings` make it 3 if they are asked to (`--strict`); `notes` nothing."""

    manifest: str
    sandbox: str = ""
    granted: list[str] = field(default_factory=list)
    upstreams: list[dict[str, object]] = field(default_factory=list)
    withheld: list[dict[str, str]] = field(default_factory=list)
    """Tools that only their own declaration keeps from scripts, and what to write to grant each."""
    quarantined: list[str] = field(default_factory=list)
    """Tools that are not as portal.lock accepts them."""
    suspicious: list[str] = field(default_factory=list)
    """What is odd in definitions of tools, each with its excerpt."""
    unannotated: list[str] = field(default_factory=list)
    """Tools that declare nothing of themselves, so that no rule can tell which of them change anything."""
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def tell_unusable(error: ManifestError, terminal: Terminal) -> None:
    """What `check --json` answers when there is no manifest to look any further with."""
    problems = [
        f"{problem.place(error.file)}: {problem.message}. {problem.hint}".strip()
        for problem in error.problems
    ]
    terminal.json(asdict(Findings(manifest=error.file, errors=problems)))


async def command(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Start everything, look at it, and report; the manifest itself was read before this is called."""
    findings = Findings(manifest=manifest.path.name if manifest.path else "none (all defaults)")
    if not manifest.portal.upstreams:
        findings.notes.append(NO_UPSTREAMS)
    async with open_portal(manifest, terminal.note, profile=options.profile) as portal:
        portal.fleet.want_all()
        with terminal.waiting("starting the sandbox"):
            await _look_at_sandbox(portal, findings)
        try:
            with terminal.waiting("starting the upstreams"):
                await tried(portal.fleet, terminal)
                snapshot = await portal.catalog.fresh()
        except anyio.get_cancelled_exc_class():
            _look_at_upstreams(portal, findings)
            findings.errors.append("the check was interrupted: what is missing here was not looked at")
            _tell(findings, options, terminal)
            raise
        _look_at_upstreams(portal, findings)
        findings.warnings.extend(snapshot.library.diagnostics)
        _look_at_secrets(manifest, findings)
        _look_at_rules(manifest, portal, findings)
        _look_at_definitions(portal, findings)
    _tell(findings, options, terminal)
    if findings.errors:
        return 1
    return WARNED if findings.warnings and options.strict else 0


def _tell(findings: Findings, options: Namespace, terminal: Terminal) -> None:
    if options.json:
        terminal.json(asdict(findings))
    else:
        _show(findings, terminal)


async def _look_at_sandbox(portal: Portal, findings: Findings) -> None:
    answer = await portal.execution.run(ExecuteCode(PROBE))
    if answer.error is not None:
        findings.errors.append(
            f"the sandbox does not run: {answer.error.message} {answer.error.hint}".strip()
        )
        return
    sandbox = await portal.sandbox()
    protections = ", ".join(sandbox.protections) or "nothing"
    if missing := ", ".join(sandbox.missing_protections):
        findings.warnings.append(
            f"workers run without {missing}, which this system does not offer: less would hold a script that broke out "
            "of the engine. Run the portal in a container of its own, or as a user of its own"
        )
    findings.sandbox = (
        f"CPython {answer.result} in wasmtime {version('wasmtime')}; workers locked down with: {protections}"
    )
    if portal.baked is not None:
        findings.sandbox += f"; baked in: {portal.baked.listed() or 'nothing more'}"


def _look_at_secrets(manifest: Manifest, findings: Findings) -> None:
    for path, kind in literal_tokens(manifest.written, ("upstreams",)):
        findings.warnings.append(
            f"{manifest.where(*path)}: {'.'.join(map(str, path))} holds {kind} itself. Write a reference like "
            "${NAME} and keep the value in the environment or in portal.env"
        )


def _look_at_upstreams(portal: Portal, findings: Findings) -> None:
    findings.granted = granted(portal.manifest)
    for upstream in portal.fleet:
        _look_at_upstream(upstream, portal, findings)


def _look_at_upstream(upstream: Upstream, portal: Portal, findings: Findings) -> None:
    state = upstream.state
    library = portal.catalog.snapshot.library
    functions = sum(function.upstream == upstream.name for function in library.functions.values())
    findings.upstreams.append(
        {
            "name": upstream.name,
            "namespace": portal.manifest.namespaces[upstream.name],
            "status": state.status,
            "server": upstream.server or "",
            "tools": len(upstream.tools),
            "functions": functions,
            "detail": state.detail,
        }
    )
    if not state.is_well:
        findings.errors.append(f"upstream {upstream.name!r} is {state}")
    findings.warnings.extend(f"upstream {upstream.name!r}: {text}" for text in upstream.diagnostics)


def _look_at_rules(manifest: Manifest, portal: Portal, findings: Findings) -> None:
    listed = {u.name: listed_tools(u) for u in portal.fleet if u.state.is_well}
    file = portal.manifest.path.name if portal.manifest.path else ""
    profiles = [narrowed(manifest, profile) for profile in manifest.portal.profiles]
    problems = [unmatched_rules(each, listed) for each in (manifest, *profiles)]
    for problem in dict.fromkeys(chain.from_iterable(problems)):
        findings.warnings.append(f"{problem.place(file)}: {problem.message}. {problem.hint}".strip())
    for name, tools in listed.items():
        for tool in tools:
            decision = portal.authority.about_listed(
                name, portal.fleet[name].tools, tool.tool, tool.function, tool.hints
            )
            if decision.code == QUARANTINED:
                findings.quarantined.append(f"{name}.{tool.tool}")
            if decision.granted and tool.hints.is_silent:
                findings.unannotated.append(f"{name}.{tool.tool}")
            if not decision.granted and decision.is_shown:
                findings.withheld.append({"tool": f"{name}.{tool.tool}", "grant": decision.grant})


def _look_at_definitions(portal: Portal, findings: Findings) -> None:
    pins = [pin for upstream in portal.fleet for pin in pins_of(upstream)]
    found = [*suspicions(pins, Neighbours.of(pins))]
    notes = [str(each) for each in found if each.is_note]
    findings.notes += notes[:MAX_SHOWN]
    if len(notes) > MAX_SHOWN:
        findings.notes.append(f"{len(notes) - MAX_SHOWN} more texts like these")
    findings.suspicious += [str(each) for each in found if not each.is_note]
    findings.warnings += [f"suspicious: {told}" for told in findings.suspicious[:MAX_SHOWN]]
    if len(findings.suspicious) > MAX_SHOWN:
        findings.warnings.append(f"{len(findings.suspicious) - MAX_SHOWN} more suspicious texts (see --json)")
    if findings.quarantined:
        findings.warnings.append(
            f"quarantined, because they are not as the lockfile accepts them: {_some(findings.quarantined)}. "
            "Look at them with `mcp-code-portal lock --diff`, accept them with `mcp-code-portal lock --accept`."
        )


def _show(findings: Findings, terminal: Terminal) -> None:
    terminal.line(f"manifest  {findings.manifest}")
    terminal.line(f"sandbox   {findings.sandbox or 'does not run'}")
    for text in findings.granted:
        terminal.line(f"granted   {text}")
    if findings.upstreams:
        columns = ("upstream", "namespace", "state", "server", "tools", "functions")
        keys = ("name", "namespace", "status", "server", "tools", "functions")
        terminal.table(columns, [[row[key] for key in keys] for row in findings.upstreams])
    _show_tools(findings, terminal)
    for text in findings.notes:
        terminal.line(f"note: {text}")
    for text in findings.warnings:
        terminal.line(f"warning: {text}", style="yellow")
    for text in findings.errors:
        terminal.line(f"error: {text}", style="red")
    terminal.line(f"{counted(len(findings.errors), 'error')}, {counted(len(findings.warnings), 'warning')}")


def _show_tools(findings: Findings, terminal: Terminal) -> None:
    if findings.withheld:
        names = [row["tool"] for row in findings.withheld]
        terminal.line(f"not granted, because they declare themselves destructive: {_some(names)}")
        terminal.line(f"    {findings.withheld[0]['grant']}")
    if findings.unannotated:
        names = findings.unannotated
        terminal.line(f"granted without saying whether they change anything: {_some(names)}")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    return f"{', '.join(names[:MAX_SHOWN])}{more}"
