"""The suite sees the portal from the outside only."""

import ast
from collections.abc import Iterator
from pathlib import Path

INSIDE = {"portal", "upstreams", "sandbox_runtime", "manifests"}


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_no_file_imports_the_product() -> None:
    files = list(Path(__file__).parent.rglob("*.py"))
    assert len(files) > 10
    assert {name for file in files for name in imported(file) if name.split(".")[0] in INSIDE} == set()
