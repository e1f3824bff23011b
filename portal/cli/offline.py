"""The commands that start no upstream: `mcp-code-portal audit`, `bake`, `schema` and `completion`."""

from argparse import Namespace
from contextlib import closing

import anyio.to_thread

from manifests.manifest import Manifest
from manifests.portal_manifest import STORE, schema_text
from portal.cli.parser import completion_script
from portal.cli.terminal import Terminal
from portal.records.audit.chain import START, verify
from portal.records.store.places import open_tables, place_of
from sandbox_runtime.build_guest import bake as make_component


async def schema(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    terminal.result(schema_text())
    return 0


async def completion(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    terminal.result(completion_script(options.shell))
    return 0


async def audit(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Verify every line of an audit log. Exits with 1 if it is damaged, 2 if it cannot be read."""
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
        result = "damaged" if report.problems else "intact"
        terminal.line(f"{result}: {report.lines:,} lines, head {report.head}")
        if options.head is None and not report.problems:
            terminal.note(
                "Truncation and a rewritten log cannot be detected without a saved head. Run `audit head` regularly "
                "and save its output elsewhere, then verify with `--head`."
            )
    return 1 if report.problems else 0


async def export(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    settings = manifest.portal.audit
    if settings is None or settings.to != STORE:
        no_log = "the manifest's audit log is not in a database: it has no `audit: {to: store}`"
        terminal.error(no_log if manifest.path else "there is no portal.yaml here: pass --config")
        return 2
    with closing(open_tables(place_of(manifest), manifest)) as tables:
        for line in tables.audit_lines((options.after or START).seq):
            terminal.result(line)
    return 0


async def bake(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    baked = await anyio.to_thread.run_sync(make_component, options.package, options.out, terminal.note)
    packages = baked.listed() or "no further packages"
    terminal.note(f"{options.out} contains {packages}. To use it, write in portal.yaml:")
    terminal.result(f"server: {{component: {options.out}}}")
    return 0
