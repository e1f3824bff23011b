"""`mcp-code-portal audit verify` and `audit head`."""

from argparse import Namespace

from manifests.manifest import Manifest
from portal.audit.chain import verify
from portal.cli.terminal import Terminal


async def command(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
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
