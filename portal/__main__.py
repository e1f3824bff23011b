"""The command `mcp-code-portal`, also as `python -m portal`."""

import io
import os
import sys
from contextlib import suppress
from typing import Final

_STDIN: Final = 0
_STDOUT: Final = 1
_STDERR: Final = 2


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
    """Have something in the place of each closed stream: no other file may get its number, stdin ends at once, stdout
    forgets, and an audit log that goes to stderr has to fail."""
    if sys.stdin is None:
        _open_nothing(_STDIN, os.O_RDONLY)
        sys.stdin = open(_STDIN, encoding="utf-8")  # noqa: SIM115  # to the end
    if sys.stdout is None:
        _open_nothing(_STDOUT, os.O_WRONLY)
        sys.stdout = open(_STDOUT, "w", encoding="utf-8")  # noqa: SIM115  # to the end
    if sys.stderr is None:
        _open_nothing(_STDERR, os.O_RDONLY)
        sys.stderr = _Closed()


def _open_nothing(descriptor: int, flags: int) -> None:
    nothing = os.open(os.devnull, flags)
    if nothing != descriptor:
        os.dup2(nothing, descriptor)
        os.close(nothing)


class _Closed(io.StringIO):
    """Forgets what is printed to it."""

    def write(self, text: str) -> int:
        return len(text)

    def fileno(self) -> int:
        return _STDERR


if __name__ == "__main__":
    main()
