"""Does every recorded registry compile, and do ty and mypy --strict take its stubs as they are?

    python -m benchmarks.type_checks [--registries FILE]

Prints counts; ends with an error if a tool is missing or a type checker finds anything.
"""

import argparse
import ast
import json
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from benchmarks.measuring import RESULTS, commit, machine
from benchmarks.registries import REGISTRIES, read_sources
from portal.library.library import Library, write_stubs

SECONDS = 1_800


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--registries", type=Path, default=REGISTRIES)
    sources = read_sources(parser.parse_args().registries)
    library = Library.compile(sources)
    functions = library.functions.values()
    for namespace in library.namespaces.values():
        ast.parse(namespace.module)
    counts = {
        "registries": len(sources),
        "tools": sum(len(source.tools) for source in sources),
        "functions": len(functions),
        "parameters": sum(len(function.parameters) for function in functions),
        "types": sum(
            len(re.findall(r"^class |^\w+ = ", each.module, re.MULTILINE))
            for each in library.namespaces.values()
        ),
        "results_undeclared": sum(function.returns.is_observable for function in functions),
    }
    with tempfile.TemporaryDirectory() as folder:
        write_stubs(library, Path(folder))
        ty, mypy = ty_errors(Path(folder)), mypy_errors(Path(folder))
    counts |= {"ty_errors": len(ty), "mypy_errors": len(mypy)}
    for name, count in counts.items():
        print(f"{name:>20} {count:>7,}")
    print("\n".join([*ty[:20], *mypy[:20]]))
    result = {"question": __doc__, "machine": machine(), "counts": counts, "commit": commit()}
    (RESULTS / "type_checks.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    if ty or mypy or counts["functions"] != counts["tools"]:
        sys.exit("not every registry compiles to stubs that type checkers take")


def ty_errors(folder: Path) -> list[str]:
    command = [_tool("ty"), "check", "--output-format", "concise", "--no-progress", "."]
    return [line for line in _lines(command, folder) if ": error[" in line or ": warning[" in line]


def mypy_errors(folder: Path) -> list[str]:
    command = [_tool("mypy"), "--strict", "--no-error-summary", "--cache-dir", "/dev/null", "-p", "tools"]
    return [line for line in _lines(command, folder) if ": error:" in line or line.startswith("mypy:")]


def _tool(name: str) -> str:
    return str(Path(sysconfig.get_path("scripts"), name))


def _lines(command: list[str], folder: Path) -> list[str]:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS)
    return [*done.stdout.splitlines(), *done.stderr.splitlines()]


if __name__ == "__main__":
    main()
