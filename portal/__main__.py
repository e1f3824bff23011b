"""The command `mcp-code-portal`, also as `python -m portal`."""

import os
import sys
from contextlib import suppress


def main() -> None:
    """Exit 0, or non-zero after one readable error on stderr."""
    try:
        # Here, and not on top: Ctrl-C may come while this is imported.
        from portal.cli.command_line import run_command_line

        status = run_command_line(sys.argv[1:])
    except KeyboardInterrupt:
        status = 130
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    # A thread may still be reading stdin. Nothing ends it, and Python would wait for it.
    os._exit(status)


if __name__ == "__main__":
    main()
