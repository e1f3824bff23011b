"""`mcp-code-portal check`: everything that can be wrong with a set-up, told at once."""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from importlib.metadata import version
from itertools import chain
from typing import Final

import anyio

from manifests.decision import Decision
from manifests.errors import ManifestError
from manifests.json_value import Json
from manifests.known_tokens import literal_tokens
from manifests.manifest import Manifest
from manifests.narrowing import narrowed
from manifests.rule_slips import unmatched_rules
from manifests.tool_rules import Hints
from portal.cli.terminal import Terminal, counted, upstreams_tried
from portal.composition import Portal, open_portal
from portal.execution import ExecuteCode
from portal.first_steps import NO_UPSTREAMS
from portal.granted import granted
from portal.listed_tools import listed_tools
from portal.pinning.pins import QUARANTINED, pins_of
from portal.pinning.suspicions import suspicions
from upstreams.upstream import Upstream

WARNED: Final = 3
"""The exit status of `check --strict` when there are warnings and no errors."""

NO_SUCH_UPSTREAM: Final = 2

_MAX_SHOWN: Final = 10
"""Suspicious texts told; more are counted, and all of them are in the JSON."""

_PROBE: Final = "import sys; sys.version.split()[0]"


@dataclass(frozen=True)
class ToolRow:
    """A tool as its upstream lists it, and whether scripts may call it."""

    upstream: str
    tool: str
    function: str
    declares: str
    decision: Decision

    @property
    def name(self) -> str:
        return f"{self.upstream}.{self.tool}"

    @property
    def is_withheld(self) -> bool:
        """Whether only what it declares of itself keeps it from scripts."""
        return not self.decision.granted and self.decision.is_shown


@dataclass
class Findings:
    """`errors` make the exit status 1; `warnings` make it 3 if they are asked to (`--strict`); `notes` nothing."""

    manifest: str
    sandbox: str = ""
    granted: list[str] = field(default_factory=list)
    upstreams: list[dict[str, Json]] = field(default_factory=list)
    withheld: list[dict[str, str]] = field(default_factory=list)
    """Tools that only their own declaration keeps from scripts, and what to write to grant each."""
    quarantined: list[str] = field(default_factory=list)
    """Tools that are not as portal.lock accepts them."""
    suspicious: list[str] = field(default_factory=list)
    """What is odd in definitions of tools, each with its excerpt."""
    unannotated: list[str] = field(default_factory=list)
    """Granted tools that declare nothing of themselves, so that no rule can tell which of them change anything."""
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
    name = options.upstream
    if name is not None and name not in manifest.portal.upstreams:
        there = list(manifest.portal.upstreams)
        near = get_close_matches(name, there, n=1) or there[:20]
        terminal.error(f"the manifest has no upstream {name!r}; there are: {', '.join(near) or 'none'}")
        return NO_SUCH_UPSTREAM
    findings = Findings(manifest=manifest.path.name if manifest.path else "none (all defaults)")
    if not manifest.portal.upstreams:
        findings.notes.append(NO_UPSTREAMS)
    async with open_portal(manifest, terminal.note, profile=options.profile) as portal:
        checking = _Check(portal, findings, [name] if name else list(manifest.portal.upstreams))
        try:
            if name is None:
                with terminal.waiting("starting the sandbox"):
                    portal.fleet.want_all()
                    await checking.look_at_sandbox()
            with terminal.waiting("starting the upstreams"):
                await upstreams_tried(portal.fleet, terminal, checking.names)
                await portal.catalog.fresh()
        except anyio.get_cancelled_exc_class():
            checking.look_at_upstreams()
            findings.errors.append("the check was interrupted: what is missing here was not looked at")
            checking.tell(terminal, is_json=options.json)
            raise
        checking.look_at_upstreams()
        checking.look_at_manifest(manifest)
        checking.look_at_definitions()
        if name is not None and not options.json:
            checking.tell_upstream(portal.fleet[name], terminal)
    checking.tell(terminal, is_json=options.json, is_short=name is not None)
    if findings.errors:
        return 1
    return WARNED if findings.warnings and options.strict else 0


class _Check:
    def __init__(self, portal: Portal, findings: Findings, names: Sequence[str]) -> None:
        self.names = names
        self._portal = portal
        self._findings = findings
        self._rows: list[ToolRow] = []

    async def look_at_sandbox(self) -> None:
        findings = self._findings
        answer = await self._portal.execution.run(ExecuteCode(_PROBE))
        if answer.error is not None:
            told = f"the sandbox does not run: {answer.error.message} {answer.error.hint}"
            findings.errors.append(told.strip())
        else:
            sandbox = await self._portal.sandbox()
            protections = ", ".join(sandbox.protections) or "nothing"
            if missing := ", ".join(sandbox.missing_protections):
                findings.warnings.append(
                    f"workers run without {missing}, which this system does not offer. A script that broke out of the "
                    "engine would be held by less. Run the portal in a container, or as a user of its own"
                )
            engine = f"CPython {answer.result} in wasmtime {version('wasmtime')}"
            findings.sandbox = f"{engine}; workers locked down with: {protections}"
            if self._portal.baked is not None:
                findings.sandbox += f"; baked in: {self._portal.baked.listed() or 'nothing more'}"

    def look_at_upstreams(self) -> None:
        findings, portal = self._findings, self._portal
        findings.granted = granted(portal.manifest)
        findings.warnings.extend(portal.catalog.snapshot.library.diagnostics)
        for upstream in (portal.fleet[name] for name in self.names):
            state = upstream.state
            rows = self._tools(upstream)
            self._rows += rows
            allowed = [row for row in rows if row.decision.granted]
            findings.upstreams.append(
                {
                    "name": upstream.name,
                    "namespace": portal.manifest.namespaces[upstream.name],
                    "status": state.status,
                    "server": upstream.server or "",
                    "tools": len(rows),
                    "functions": len(allowed),
                    "read": sum(row.declares == "reads" for row in allowed),
                    "write": sum(row.declares in ("writes", "destroys") for row in allowed),
                    "undeclared": sum(row.declares == "nothing" for row in allowed),
                    "kept_back": len(rows) - len(allowed),
                    "detail": state.detail,
                }
            )
            if not state.is_well:
                findings.errors.append(f"upstream {upstream.name!r} is {state}")
            findings.warnings.extend(f"upstream {upstream.name!r}: {text}" for text in upstream.diagnostics)
        findings.withheld = [
            {"tool": row.name, "grant": row.decision.grant} for row in self._rows if row.is_withheld
        ]
        findings.quarantined = [row.name for row in self._rows if row.decision.code == QUARANTINED]
        findings.unannotated = [
            row.name for row in self._rows if row.decision.granted and row.declares == "nothing"
        ]

    def _tools(self, upstream: Upstream) -> list[ToolRow]:
        about = self._portal.authority.about_listed
        return [
            ToolRow(
                upstream.name,
                tool.tool,
                f"{self._portal.manifest.namespaces[upstream.name]}.{tool.function}",
                declared(tool.hints),
                about(upstream.name, upstream.tools, tool.tool, tool.function, tool.hints),
            )
            for tool in listed_tools(upstream)
            if any(tool.tool == each.name for each in upstream.tools)
        ]

    def look_at_manifest(self, manifest: Manifest) -> None:
        for path, kind in literal_tokens(manifest.written, ("upstreams",)):
            self._findings.warnings.append(
                f"{manifest.where(*path)}: {'.'.join(map(str, path))} holds {kind} itself. Write a reference like "
                "${NAME} and keep the value in the environment or in portal.env"
            )
        listed = {u.name: listed_tools(u) for u in self._portal.fleet if u.state.is_well}
        file = self._portal.manifest.path.name if self._portal.manifest.path else ""
        profiles = [narrowed(manifest, profile) for profile in manifest.portal.profiles]
        problems = [unmatched_rules(each, listed) for each in (manifest, *profiles)]
        for problem in dict.fromkeys(chain.from_iterable(problems)):
            told = f"{problem.place(file)}: {problem.message}. {problem.hint}"
            self._findings.warnings.append(told.strip())

    def look_at_definitions(self) -> None:
        findings, fleet = self._findings, self._portal.fleet
        pins = {upstream.name: pins_of(upstream) for upstream in fleet}
        looked_at = [pin for name in self.names for pin in pins[name]]
        findings.suspicious = [*map(str, suspicions(looked_at, chain.from_iterable(pins.values())))]
        findings.warnings += [f"suspicious: {told}" for told in findings.suspicious[:_MAX_SHOWN]]
        if more := len(findings.suspicious[_MAX_SHOWN:]):
            findings.warnings.append(f"{more} more suspicious texts (see --json)")
        if quarantined := findings.quarantined:
            findings.warnings.append(
                f"{counted(len(quarantined), 'tool')} quarantined, as portal.lock does not accept them: "
                f"{_some(quarantined)}. See `mcp-code-portal lock --diff`; accept with `mcp-code-portal lock --accept`"
            )

    def tell(self, terminal: Terminal, *, is_json: bool, is_short: bool = False) -> None:
        findings = self._findings
        if is_json:
            terminal.json(asdict(findings))
            return
        if not is_short:
            self._summary(terminal)
        for text in findings.notes:
            terminal.line(f"note: {text}")
        for text in findings.warnings:
            terminal.line(f"warning: {text}", style="yellow")
        for text in findings.errors:
            terminal.line(f"error: {text}", style="red")
        terminal.line(
            f"{counted(len(findings.errors), 'error')}, {counted(len(findings.warnings), 'warning')}"
        )

    def _summary(self, terminal: Terminal) -> None:
        findings = self._findings
        terminal.line(f"manifest  {findings.manifest}")
        terminal.line(f"sandbox   {findings.sandbox or 'does not run'}")
        for text in findings.granted:
            terminal.line(f"granted   {text}")
        if not findings.upstreams:
            return
        keys = ("name", "namespace", "status", "server", "read", "write", "undeclared", "kept_back")
        columns = ("upstream", "namespace", "state", "server", "read", "write", "undeclared", "kept back")
        terminal.line("")
        terminal.table(columns, [[row[key] for key in keys] for row in findings.upstreams])
        terminal.line("")
        if findings.withheld:
            one = findings.withheld[0]
            terminal.line(
                f"{one['tool']} is kept back because it declares itself destructive. {one['grant']}"
            )
        if findings.unannotated:
            one_name = findings.unannotated[0]
            terminal.line(
                f"{one_name} is granted and does not declare whether it changes anything. To keep it back, write "
                f"capabilities.tools.deny: [{one_name}]"
            )
        terminal.line(f"each tool of one upstream: mcp-code-portal check {findings.upstreams[0]['name']}")

    def tell_upstream(self, upstream: Upstream, terminal: Terminal) -> None:
        """Everything about one: how it is, each of its tools, and what it wrote to stderr last."""
        namespace = self._portal.manifest.namespaces[upstream.name]
        terminal.line(f"upstream  {upstream.name}, for scripts {namespace}")
        terminal.line(f"state     {upstream.state.adjective}, since {upstream.state.since:%H:%M:%S} UTC")
        terminal.line(f"server    {upstream.server or 'has not said'}")
        rows = [
            (row.function, row.declares, "yes" if row.decision.granted else f"no: {row.decision.reason}")
            for row in self._rows
        ]
        if rows:
            terminal.line("")
            terminal.table(("function", "declares", "may be called"), rows)
            terminal.line("")
        if example := next((row.decision.grant for row in self._rows if row.is_withheld), ""):
            terminal.line(example)


def declared(hints: Hints) -> str:
    """What a tool declares of itself, in a word."""
    if hints.destructive:
        return "destroys"
    return "reads" if hints.readonly else "nothing" if hints.is_silent else "writes"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
    return f"{', '.join(names[:_MAX_SHOWN])}{more}"
