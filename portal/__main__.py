"""The command `mcp-code-portal`, also as `python -m portal`."""

import os
import sys
from contextlib import suppress


def main() -> None:
    """Exit 0, or non-zero after one readable error on stderr."""
    _stand_in_for_closed_streams()
    try:
        # Here, and not on top: Ctrl-C may come while this is imported.
        from portal.cli.command_line import run_command_line
        from portal.logs import tell_defect

        sys.excepthook = tell_defect
        status = run_command_line(sys.argv[1:])
    except KeyboardInterrupt:
        status = 130
    except SystemExit as ended:  # so argparse ends --help and wrong arguments
        status = int(ended.code or 0)
    status = _flushed(status)
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    # A thread may still be reading stdin. Nothing ends it, and Python would wait for it.
    os._exit(status)


def _flushed(status: int) -> int:
    """The status, or 1 where a command that went well could not write what it printed."""
    try:
        sys.stdout.flush()
    except (BrokenPipeError, ValueError):
        pass  # who reads our output has seen enough of it
    except OSError as error:
        if status == 0:
            with suppress(OSError, ValueError):
                print(f"error: {error}", file=sys.stderr)  # noqa: T201  # rich may not have been imported
            return 1
    return status


def _stand_in_for_closed_streams() -> None:
    """Have nothing in the place of each closed stream, or another file would get its number."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            file = os.open(os.devnull, os.O_RDWR)  # which gets the lowest number that is free: the stream's
            setattr(sys, name, open(file, "r" if name == "stdin" else "w"))  # noqa: SIM115  # to the end


if __name__ == "__main__":
    main()
