"""`mcp-code-portal check`: everything that can be wrong with a set-up, told at once."""

from argparse import Namespace
from dataclasses import asdict, dataclass, field
from datetime import date
from importlib.metadata import version

from rich.table import Table
from rich.text import Text

from manifests.decision import unmatched_patterns
from manifests.errors import ManifestError
from manifests.json_value import Json
from manifests.manifest import Manifest
from manifests.names import function_names
from portal.cli.terminal import Terminal, visible
from portal.composition import Portal, open_portal
from portal.execution import ExecuteCode
from portal.granted import granted
from sandbox_runtime.advisories import known_advisories, report
from sandbox_runtime.engine_version import installed_engine
from upstreams.upstream import Upstream

PROBE = "import sys; sys.version.split()[0]"


@dataclass
class Findings:
    """`errors` make the exit status 1; `warnings` do not."""

    manifest: str
    sandbox: str = ""
    engine: Json = None
    granted: list[str] = field(default_factory=list)
    upstreams: list[dict[str, object]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def tell_unusable(error: ManifestError, terminal: Terminal) -> None:
    """What `check --json` answers when there is no manifest to look any further with."""
    problems = [
        f"{problem.place(error.file)}: {problem.message}. {problem.hint}".strip()
        for problem in error.problems
    ]
    terminal.json(asdict(Findings(manifest=error.file, errors=problems)))


async def command(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Start everything, look at it, and report; the manifest itself was read before this is called."""
    findings = Findings(
        manifest=manifest.path.name if manifest.path else "none (all defaults)", granted=granted(manifest)
    )
    async with open_portal(manifest, terminal.note) as portal:
        with terminal.waiting("starting the sandbox and the upstreams"):
            await _look_at_sandbox(portal, findings)
            _look_at_engine(findings)
            portal.fleet.want_all()
            slowest = max((u.connect_seconds for u in manifest.portal.upstreams.values()), default=0)
            await portal.fleet.settled(slowest)
            snapshot = await portal.catalog.fresh()
        for upstream in portal.fleet:
            _look_at_upstream(upstream, portal, findings)
        findings.warnings.extend(snapshot.library.diagnostics)
        _look_at_patterns(portal, findings)
    if options.json:
        terminal.json(asdict(findings))
    else:
        _show(findings, terminal)
    return 1 if findings.errors else 0


async def _look_at_sandbox(portal: Portal, findings: Findings) -> None:
    answer = await portal.execution.run(ExecuteCode(PROBE))
    if answer.error is not None:
        findings.errors.append(
            f"the sandbox does not run: {answer.error.message} {answer.error.hint}".strip()
        )
        return
    protections = ", ".join((await portal.sandbox()).protections) or "none"
    findings.sandbox = (
        f"CPython {answer.result} in wasmtime {version('wasmtime')}; workers locked down with: {protections}"
    )
    if portal.baked is not None:
        findings.sandbox += f"; baked in: {portal.baked.listed() or 'nothing more'}"


def _look_at_engine(findings: Findings) -> None:
    engine = report(installed_engine(), known_advisories(), date.today())
    findings.engine = engine.facts()
    findings.errors.extend(engine.errors)
    findings.warnings.extend(engine.warnings)


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
        findings.errors.append(f"upstream {upstream.name!r} is {state.status}: {state.detail}")
    findings.warnings.extend(f"upstream {upstream.name!r}: {text}" for text in upstream.diagnostics)


def _look_at_patterns(portal: Portal, findings: Findings) -> None:
    """Patterns that match nothing, unless an upstream is down whose tools they may mean."""
    if not all(upstream.state.is_well for upstream in portal.fleet):
        return
    tools = {u.name: function_names([tool.name for tool in u.tools]) for u in portal.fleet}
    file = portal.manifest.path.name if portal.manifest.path else ""
    for problem in unmatched_patterns(portal.manifest, tools):
        findings.warnings.append(f"{problem.place(file)}: {problem.message}. {problem.hint}".strip())


def _show(findings: Findings, terminal: Terminal) -> None:
    terminal.line(f"manifest  {findings.manifest}")
    terminal.line(f"sandbox   {findings.sandbox or 'does not run'}")
    for text in findings.granted:
        terminal.line(f"granted   {text}")
    table = Table("upstream", "namespace", "state", "server", "tools", "functions", box=None, pad_edge=False)
    for row in findings.upstreams:
        cells = (row[key] for key in ("name", "namespace", "status", "server", "tools", "functions"))
        table.add_row(*(Text(visible(str(cell))) for cell in cells))
    if findings.upstreams:
        terminal.out.print(table)
    for text in findings.warnings:
        terminal.line(f"warning: {text}", style="yellow")
    for text in findings.errors:
        terminal.line(f"error: {text}", style="red")
    terminal.line(f"{len(findings.errors)} errors, {len(findings.warnings)} warnings")
