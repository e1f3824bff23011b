"""The commands that start no upstream: `mcp-code-portal audit`, `bake` and `schema`."""

from argparse import Namespace

import anyio.to_thread

from manifests.grants import Limits
from manifests.manifest import Manifest
from manifests.portal_manifest import schema_text
from portal.audit.chain import verify
from portal.cli.terminal import Terminal
from sandbox_runtime.bake import Baked
from sandbox_runtime.bake import bake as make_component
from sandbox_runtime.calls import Outcome, ToolCall
from sandbox_runtime.sandbox import open_sandbox

_PROBE = """
import importlib
told = {}
for name in MODULES:
    try:
        importlib.import_module(name)
    except Exception as error:
        told[name] = f"{type(error).__name__}: {error}"
told
"""
_PROBE_SECONDS = 60.0


async def schema(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Print the JSON Schema of portal.yaml, as it was shipped."""
    terminal.result(schema_text())
    return 0


async def audit(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Look at every line of an audit log; exits with 1 if anything is wrong with it, 2 if it cannot be read."""
    try:
        report = verify(options.file, after=options.after, known=options.head, is_mixed=options.mixed)
    except OSError as error:
        terminal.error(f"cannot read {error.filename}: {error.strerror}")
        return 2
    for problem in report.problems:
        terminal.error(problem)
    if report.more_problems:
        terminal.error(f"and {report.more_problems} more")
    if options.action == "head":
        terminal.result(str(report.head))
    else:
        said = "damaged" if report.problems else "whole"
        terminal.line(f"{said}: {report.lines:,} lines, the last one {report.head}")
        if options.head is None and not report.problems:
            terminal.note(
                "Lines that were cut off behind it, or a log written anew, show only with `--head`, of a line that "
                "`audit head` printed before and that was kept somewhere else."
            )
    return 1 if report.problems else 0


async def bake(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Make the component, try what it holds, and say how to use it; the probe also compiles it for this machine."""
    baked = await anyio.to_thread.run_sync(make_component, options.package, options.out, terminal.note)
    failures = await _failures(baked, options, terminal)
    for name, reason in failures.items():
        terminal.note(f"warning: {name} does not import in the sandbox: {reason}")
    terminal.note(
        f"{options.out} holds {baked.listed() or 'nothing more than every sandbox'}. In portal.yaml:"
    )
    terminal.result(f"server: {{component: {options.out}}}")
    return 0


async def _failures(baked: Baked, options: Namespace, terminal: Terminal) -> dict[str, str]:
    """Why modules do not import, by their names."""
    limits = Limits(wall_seconds=_PROBE_SECONDS, cpu_seconds=_PROBE_SECONDS)
    async with (
        open_sandbox(workers=1, component=options.out, progress=terminal.note) as sandbox,
        sandbox.run(limits, str) as run,
    ):
        await run.prepare(f"MODULES = {baked.modules!r}\n{_PROBE}", ())
        result = await run.execute({}, _no_calls)
    if result.error is not None:
        return dict.fromkeys(baked.modules, result.error.message)
    return dict(result.value)


async def _no_calls(_: ToolCall) -> Outcome:
    return Outcome()
