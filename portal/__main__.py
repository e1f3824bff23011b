"""The command `mcp-code-portal`, also as `python -m portal`."""

import io
import os
import sys
from contextlib import suppress
from typing import Final

_STDERR: Final = 2


def main() -> None:
    """Exit 0, or non-zero after one readable error on stderr."""
    if sys.stderr is None:
        _stand_in_for_stderr()
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


def _stand_in_for_stderr() -> None:
    """Have something in the place of a closed stderr: no other file may get its number, and an audit log that goes
    there has to fail."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    if nothing != _STDERR:
        os.dup2(nothing, _STDERR)
        os.close(nothing)
    sys.stderr = _Closed()


class _Closed(io.StringIO):
    """Forgets what is printed to it."""

    def write(self, text: str) -> int:
        return len(text)

    def fileno(self) -> int:
        return _STDERR


if __name__ == "__main__":
    main()
