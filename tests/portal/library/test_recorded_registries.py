"""Real servers' tools, as recorded; the recordings are kept beside the repository.

They add breadth where they are present. What was learnt from them is in `nasty_tools`, which is always tested.
"""

import ast
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from manifests.names import namespace_of
from portal.library.library import Library, LibrarySource, write_stubs
from tests.portal.library.test_stub_package import type_errors
from upstreams.tools import RecordedTool

RECORDED = Path(__file__).parents[4] / "shared" / "data" / "registries.jsonl.gz"
EVERY = 15


def recorded() -> Iterator[LibrarySource]:
    with gzip.open(RECORDED, "rt") as lines:
        yield from (registry(json.loads(line)) for number, line in enumerate(lines) if number % EVERY == 0)


def registry(row: dict[str, object]) -> LibrarySource:
    tools = [
        RecordedTool(
            name=each["name"],
            description=each.get("description") or "",
            input_schema=each["inputSchema"],
            output_schema=each.get("outputSchema"),
            annotations=each.get("annotations") or {},
            title=each.get("title"),
        )
        for each in row["tools"]  # type: ignore[attr-defined]  # recorded JSON
    ]
    return LibrarySource(str(row["server"]), namespace_of(str(row["server"])), str(row["description"]), tools)


@pytest.mark.skipif(not RECORDED.exists(), reason="the recordings are kept beside the repository")
def test_real_tools_compile_to_valid_stubs(tmp_path: Path) -> None:
    sources = list(recorded())
    compiled = Library.compile(sources)
    assert len(compiled.functions) == sum(len(each.tools) for each in sources)
    for function in compiled.functions.values():
        ast.parse("\n\n".join([*function.types, function.definition]))
    write_stubs(compiled, tmp_path)
    assert type_errors(tmp_path) == []
    print(f"compiled {len(compiled.functions)} tools of {len(compiled.namespaces)} recorded servers")
