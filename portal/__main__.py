"""The command `mcp-code-portal`, also as `python -m portal`."""

import sys

from portal.cli.command_line import run_command_line


def main() -> None:
    """Exit 0, or non-zero after one readable error on stderr."""
    sys.exit(run_command_line(sys.argv[1:]))


if __name__ == "__main__":
    main()
