"""Runs the demo."""

import sys


def main() -> int:
    try:
        # Here, and not on top: Ctrl-C may come while this is imported.
        from demo_show import run_demo

        return run_demo()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
