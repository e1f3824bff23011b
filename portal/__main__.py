"""The command `mcp-code-portal`, also as `python -m portal`."""

import os
import signal
import sys
from contextlib import suppress


def main() -> None:
    """Run the command. Exits with 0, or with another status after one readable error on stderr."""
    _stand_in_for_closed_streams()
    try:
        # The first process of a container ignores SIGTERM until it has a handler.
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        # Imported here, because Ctrl-C may come during the import; the rest later, because --help needs none of it.
        from portal.cli.parser import parse_arguments

        options = parse_arguments(sys.argv[1:])
        if options.runs == "status:command":  # what the others import takes as long as it may take
            from portal.cli.status import command

            sys.exit(command(options))
        from portal.cli.command_line import run_command
        from portal.records.logs import report_crash

        sys.excepthook = report_crash
        status = run_command(options)
    except KeyboardInterrupt:
        status = 130
    except OSError as error:  # of `status`, which `run_command` does not run
        status = 1
        if not isinstance(error, BrokenPipeError):  # the reader has closed the pipe
            print(f"error: {error}", file=sys.stderr)  # noqa: T201  # rich may not have been imported
    except SystemExit as ended:  # argparse raises it too, for --help and invalid arguments
        status = int(ended.code or 0)
    status = _flushed(status)
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    # A thread may still be reading stdin, and Python would wait for it.
    os._exit(status)


def _flushed(status: int) -> int:
    """The status, or 1 if a successful command could not write its output."""
    try:
        sys.stdout.flush()
    except (BrokenPipeError, ValueError):
        pass  # the reader has closed the pipe
    except OSError as error:
        if status == 0:
            with suppress(OSError, ValueError):
                print(f"error: {error}", file=sys.stderr)  # noqa: T201  # rich may not have been imported
            return 1
    return status


def _stand_in_for_closed_streams() -> None:
    """Open /dev/null for each closed stream, so that no other file gets its descriptor."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            file = os.open(os.devnull, os.O_RDWR)  # it gets the lowest free descriptor: the stream's
            setattr(sys, name, open(file, "r" if name == "stdin" else "w"))  # noqa: SIM115  # stays open


if __name__ == "__main__":
    main()
