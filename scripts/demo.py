"""Runs the demo.

scripts/demo              in the terminal
scripts/demo --survive    shows a run whose portal is killed
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
    parser.add_argument(
        "--survive", action="store_true", help="show a run whose portal is killed in the middle, and goes on"
    )
    options = parser.parse_args()
    try:
        # Here, and not on top: Ctrl-C may come while this is imported.
        if options.survive:
            from demo_survive import run_survival

            return run_survival()
        from demo_show import run_demo

        return run_demo(options.svg)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
