"""The commands that start no upstream: `mcp-code-portal audit`, `bake` and `schema`."""

from argparse import Namespace

import anyio.to_thread

from manifests.manifest import Manifest
from manifests.portal_manifest import schema_text
from portal.audit.chain import verify
from portal.cli.terminal import Terminal
from sandbox_runtime.build_guest import bake as make_component


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
    """Make the component, and say how to use it."""
    baked = await anyio.to_thread.run_sync(make_component, options.package, options.out, terminal.note)
    told = baked.listed() or "nothing more than every sandbox"
    terminal.note(f"{options.out} holds {told}. In portal.yaml:")
    terminal.result(f"server: {{component: {options.out}}}")
    return 0
