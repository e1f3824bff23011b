"""Runs the demo.

scripts/demo              in the terminal
scripts/demo --svg FILE   also writes what it shows as a picture: README's is docs/demo.svg
"""

import argparse
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/demo", description="Four real MCP servers behind a portal."
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="also write what it shows as a picture")
    picture = parser.parse_args().svg
    try:
        # Here, and not on top: Ctrl-C may come while this is imported.
        from demo_show import run_demo

        return run_demo(picture)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
