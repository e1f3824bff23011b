"""`mcp-code-portal check`: reports everything that is wrong with a setup at once."""

import os
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from itertools import chain
from typing import Final

from manifests.decision import Decision, unmatched_rules
from manifests.errors import ManifestError, Problem
from manifests.json_value import Json
from manifests.kernels import JAVASCRIPT, PYTHON
from manifests.loader import DEFAULT_FILE
from manifests.manifest import Manifest, narrowed
from manifests.portal_manifest import StdioUpstream
from manifests.references import NETWORK_VARIABLE, env_path, literal_tokens
from portal.app.accepted import reload_hint
from portal.app.composition import open_portal
from portal.app.reload import file_warnings
from portal.base.errors import NO_UPSTREAMS, SMALLEST_MANIFEST
from portal.base.plain_text import MARK, some
from portal.base.requests import ExecuteCode
from portal.catalog.authority import grant_lines
from portal.catalog.catalog import decided_tools, listed_tools
from portal.catalog.check.typescript_server import find_typescript
from portal.cli.terminal import Terminal, counted, declared, unknown_name, upstreams_tried
from portal.identity.sign_in import Provider
from portal.library.pinning import QUARANTINED, pins_of, suspicions
from portal.server.portal import Portal
from upstreams.health import WELL
from upstreams.upstream import Upstream

WARNED: Final = 3
"""The exit status of `check --strict` when there are warnings and no errors."""

NO_SUCH_UPSTREAM: Final = 2

_MAX_SHOWN: Final = 10
"""Suspicious texts and quarantined tools that are shown; more are counted. The JSON lists all."""

_PROBE: Final = "import sys; sys.version.split()[0]"


@dataclass(frozen=True)
class ToolRow:
    """A tool as its upstream lists it, and whether scripts may call it."""

    name: str
    function: str
    declares: str
    decision: Decision

    @property
    def is_withheld(self) -> bool:
        """Whether only its own declaration withholds it from scripts."""
        return not self.decision.granted and self.decision.is_shown

    @property
    def may_be_called(self) -> str:
        if not self.decision.granted:
            return f"no: {self.decision.reason}"
        return f"after approval: {self.decision.asks}" if self.decision.asks else "yes"


@dataclass
class Findings:
    """The report. `errors` make the exit status 1; with `--strict`, `warnings` make it 3."""

    manifest: str
    sandbox: str = ""
    granted: list[str] = field(default_factory=list)
    upstreams: list[dict[str, Json]] = field(default_factory=list)
    withheld: list[dict[str, str]] = field(default_factory=list)
    """Tools that only their own declaration withholds from scripts, and what to write to grant each."""
    quarantined: list[str] = field(default_factory=list)
    """Tools whose definitions portal.lock does not accept."""
    suspicious: list[str] = field(default_factory=list)
    """Suspicious texts in tool definitions, each with an excerpt."""
    unannotated: list[str] = field(default_factory=list)
    """Granted tools without annotations, so that no rule can tell which of them write."""
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def report_invalid_manifest(error: ManifestError, terminal: Terminal) -> None:
    """Print the answer of `check --json` if the manifest is invalid, so that nothing else can be checked."""
    problems = [_problem_line(problem, error.file) for problem in error.problems]
    terminal.json(asdict(Findings(manifest=error.file, errors=problems)))


async def command(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Start everything or one upstream, check it and report. The manifest has already been read."""
    name, there = options.upstream, manifest.portal.upstreams
    if name is not None and name not in there:
        terminal.error(unknown_name("upstream", name, there))
        return NO_SUCH_UPSTREAM
    names = list(there) if name is None else [name]
    findings = Findings(manifest=manifest.path.name if manifest.path else "none (all defaults)")
    if not there:
        how = "Pass it with --config, $MCP_CODE_PORTAL_CONFIG or as ./portal.yaml."
        findings.notes.append(f"{NO_UPSTREAMS} {SMALLEST_MANIFEST}. {how}")
    async with open_portal(
        manifest, terminal.note, profile=options.profile, only=names, runs="unkept"
    ) as portal:
        portal.fleet.want_all()
        if name is None:
            await _check_sandbox(portal, findings)
            await _check_sign_in_and_store(manifest, findings)
        await upstreams_tried(portal.fleet, terminal, names)
        await portal.catalog.fresh()
        rows = _check_upstreams(portal, names, findings)
        _check_manifest(manifest, portal, findings)
        upstreams = [portal.fleet[each] for each in names]
        for text, is_named in await file_warnings(portal.authority.policy, upstreams):
            (findings.warnings if is_named else findings.notes).append(text)
        _check_definitions(portal, names, findings)
        if name is not None and not options.json:
            _print_upstream(portal.fleet[name], rows, terminal)
    _print(findings, terminal, options)
    if findings.errors:
        return 1
    return WARNED if findings.warnings and options.strict else 0


async def _check_sandbox(portal: Portal, findings: Findings) -> None:
    answer = await portal.execution.run(ExecuteCode(_PROBE))
    if answer.error is not None:
        message = f"the sandbox does not run: {answer.error.message} {answer.error.hint}"
        findings.errors.append(message.strip())
        return
    sandbox = await portal.sandbox()
    if missing := ", ".join(sandbox.missing_protections):
        findings.warnings.append(
            "a script that escapes from the engine, or from the type checker, would be less contained: this system "
            f"lacks {missing}. Run the portal in a container, or as a user of its own"
        )
    protections = ", ".join(sandbox.protections) or "nothing"
    engine = f"CPython {answer.result} in wasmtime {version('wasmtime')}"
    findings.sandbox = f"{engine}; workers and type checker locked down with: {protections}"
    if portal.baked is not None:
        findings.sandbox += f"; baked in: {portal.baked.listed() or 'nothing more'}"
    settings = portal.manifest.portal.server
    for kernel in settings.switched_on:
        if kernel != PYTHON:
            error = (await portal.execution.run(ExecuteCode("1", kernel=kernel))).error
            findings.sandbox += "" if error else f"; {kernel} runs, too"
            if error is not None:
                message = f"the kernel {kernel} does not run: {error.message} {error.hint}"
                findings.errors.append(message.strip())
    if JAVASCRIPT in settings.switched_on and settings.check != "off" and not find_typescript():
        findings.notes.append(
            "the types of JavaScript scripts are not checked, only functions, literal arguments and awaits: "
            "there is no native TypeScript compiler. Install the extra: uv tool install '.[typescript]'"
        )


def _check_upstreams(portal: Portal, names: Sequence[str], findings: Findings) -> list[ToolRow]:
    findings.granted += grant_lines(portal.manifest)
    findings.warnings.extend(portal.catalog.snapshot.library.diagnostics)
    found: list[ToolRow] = []
    for upstream in (portal.fleet[name] for name in names):
        state = upstream.state
        namespace = portal.manifest.namespaces[upstream.name]
        rows = [
            ToolRow(f"{upstream.name}.{t.tool}", f"{namespace}.{t.function}", declared(t.hints), decision)
            for t, decision in decided_tools(portal.authority.policy, upstream)
        ]
        found += rows
        declares = [row.declares for row in rows if row.decision.granted]
        findings.upstreams.append(
            {
                "name": upstream.name,
                "namespace": namespace,
                "status": state.status,
                "server": upstream.server or "",
                "tools": len(rows),
                "functions": len(declares),
                "read": declares.count("reads"),
                "write": declares.count("writes") + declares.count("destroys"),
                "undeclared": declares.count("nothing"),
                "kept_back": len(rows) - len(declares),
                "detail": state.advice,
            }
        )
        if not state.is_well:
            findings.errors.append(f"upstream {upstream.name!r} is {state}")
        elif not rows:
            findings.notes.append(
                f"upstream {upstream.name!r} lists no tools. Many servers do so while a credential or a setting "
                "is missing: write what its documentation asks for to its env or args"
            )
        findings.warnings.extend(f"upstream {upstream.name!r}: {text}" for text in upstream.diagnostics)
    findings.notes += _lacking([each for name in names if not (each := portal.fleet[name]).state.is_well])
    findings.withheld = [{"tool": row.name, "grant": row.decision.grant} for row in found if row.is_withheld]
    findings.quarantined = [row.name for row in found if row.decision.code == QUARANTINED]
    findings.unannotated = [row.name for row in found if row.decision.granted and row.declares == "nothing"]
    return found


def _lacking(upstreams: Sequence[Upstream]) -> Iterator[str]:
    """This shell's variables for certificates, proxies and package indexes that the children lack."""
    shell = [name for name, value in sorted(os.environ.items()) if value and NETWORK_VARIABLE.fullmatch(name)]
    lacking: dict[str, list[str]] = {}
    for each in upstreams:
        there = each.spec.env if isinstance(each.spec, StdioUpstream) else os.environ
        if found := ", ".join(name for name in shell if name not in there):
            lacking.setdefault(found, []).append(each.name)
    for found, names in lacking.items():
        servers = f"the server {names[0]} does" if len(names) == 1 else f"the servers {', '.join(names)} do"
        yield f"your shell has {found}, {servers} not get it: write it to defaults: {{env: ...}}"


def _check_manifest(manifest: Manifest, portal: Portal, findings: Findings) -> None:
    if manifest.path is not None and manifest.waiting:
        findings.warnings.append(
            f"a change of {', '.join(manifest.waiting)} waits, because it was made while a portal ran or after one "
            "was killed, and is not checked: `check --waiting` checks it, and starts what it names; "
            f"{reload_hint(manifest.path)}"
        )
    for path in literal_tokens(manifest.written):
        findings.warnings.append(
            f"{manifest.where(*path)}: {'.'.join(map(str, path))} contains a literal credential. Write a reference "
            f"like ${{NAME}} and keep the value in the environment or in {env_path(manifest.path or DEFAULT_FILE).name}"
        )
    listed = {u.name: listed_tools(u) for u in portal.fleet if u.state.is_well}
    file = manifest.path.name if manifest.path else ""
    profiles = [narrowed(manifest, profile) for profile in manifest.portal.profiles]
    problems = chain.from_iterable(unmatched_rules(each, listed) for each in (manifest, *profiles))
    findings.warnings += [_problem_line(problem, file) for problem in dict.fromkeys(problems)]


async def _check_sign_in_and_store(manifest: Manifest, findings: Findings) -> None:
    auth, runs = manifest.portal.server.auth, manifest.portal.runs
    if auth is not None and (fault := await Provider(auth).fault()):
        findings.errors.append(f"{manifest.where('server', 'auth')}: no one can sign in: {fault}")
    if runs.is_shared and runs.key is None:
        where = manifest.where("runs", "store")
        findings.warnings.append(f"{where}: arguments and results lie there in the clear. Set runs.key")


def _check_definitions(portal: Portal, names: Sequence[str], findings: Findings) -> None:
    pins = [pin for name in names for pin in pins_of(portal.fleet[name])]
    findings.suspicious = [*map(str, suspicions(pins))]
    findings.warnings += [f"suspicious: {text}" for text in findings.suspicious[:_MAX_SHOWN]]
    if more := len(findings.suspicious[_MAX_SHOWN:]):
        findings.warnings.append(f"{more} more suspicious texts (see --json)")
    if quarantined := findings.quarantined:
        findings.warnings.append(
            f"{counted(len(quarantined), 'tool')} quarantined, because portal.lock does not accept them: "
            f"{some(quarantined, _MAX_SHOWN)}. "
            "Review them with `mcp-code-portal lock --diff --verbose`. Its last line is the command that accepts them"
        )


def _print(findings: Findings, terminal: Terminal, options: Namespace) -> None:
    if options.json:
        terminal.json(asdict(findings))
        return
    if options.upstream is None:
        _print_summary(findings, terminal)
    for text in findings.notes:
        terminal.line(f"note: {text}")
    for text in findings.warnings:
        terminal.line(f"warning: {text}", style="yellow")
    for text in findings.errors:
        terminal.line(f"error: {text}", style="red")
    terminal.line(f"{counted(len(findings.errors), 'error')}, {counted(len(findings.warnings), 'warning')}")


def _print_summary(findings: Findings, terminal: Terminal) -> None:
    terminal.line(f"manifest  {findings.manifest}")
    terminal.line(f"sandbox   {findings.sandbox or 'does not run'}")
    for text in findings.granted:
        terminal.line(f"granted   {text}")
    if not findings.upstreams:
        return
    columns = ("name", "namespace", "status", "server", "read", "write", "undeclared", "kept_back")
    terminal.line("")
    terminal.table(
        ("upstream", "namespace", "state", "server", "read", "write", "undeclared", "kept back"),
        [[row[column] for column in columns] for row in findings.upstreams],
    )
    terminal.line("")
    if withheld := findings.withheld:
        first = some([row["tool"] for row in withheld], 1)
        terminal.line(f"kept back, because declared destructive: {first}. {withheld[0]['grant']}")
    if names := findings.unannotated:
        how = f"To keep it back, write capabilities.tools.deny: [{names[0]}]"
        terminal.line(f"granted, without a word on whether it writes: {some(names, 1)}. {how}")
    # One that is down helps more.
    one = min(findings.upstreams, key=lambda row: row["status"] in WELL)
    terminal.line(f"tools and stderr of one upstream: mcp-code-portal check {one['name']}")


def _print_upstream(upstream: Upstream, rows: Sequence[ToolRow], terminal: Terminal) -> None:
    terminal.line(f"upstream  {upstream.name}")
    terminal.line(f"state     {upstream.state.adjective}, since {upstream.state.since:%H:%M:%S} UTC")
    terminal.line(f"server    {upstream.server or 'unknown'}")
    if rows:
        terminal.line("")
        terminal.table(
            ("function", "declares", "may be called"),
            [(row.function, row.declares, row.may_be_called) for row in rows],
        )
        terminal.line("")
    for row in [row for row in rows if row.is_withheld][:1]:
        terminal.line(f"{row.name}: {row.decision.grant}")
    if tail := upstream.stderr_tail():
        terminal.line("its stderr ended with:")
        for line in tail.split("\n"):
            terminal.line(f"{MARK}{line}")


def _problem_line(problem: Problem, file: str) -> str:
    return f"{problem.place(file)}: {problem.message}. {problem.hint}".strip()
