"""How long do definitions take to become a typed library, and what does it weigh?

    python -m benchmarks.library [--registries FILE]

Recorded registries, and copies of them under other names beyond what was recorded; and one upstream of 450 tools with
the same 600 definitions, as a converter of an OpenAPI document makes. Each row is a process of its own.
Seconds are of the processor, which other programs disturb little, and of the clock; the best of three.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.measuring import RESULTS, commit, machine
from benchmarks.registries import REGISTRIES, read_sources
from manifests.json_value import Json
from portal.catalog.search.index import SearchIndex
from portal.library.library import Library, LibrarySource, write_stubs
from portal.library.observed import merged, shape_of
from upstreams.tools import RecordedTool

SIZES = (3_231, 6_263, 11_000)
ROUNDS = 3
ISSUE: Json = {
    "id": 7,
    "title": "Crash",
    "state": "open",
    "labels": ["bug"],
    "user": {"login": "ann", "site_admin": False},
    "milestone": None,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--registries", type=Path, default=REGISTRIES)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.size:
        print(json.dumps(measured(options.registries, options.size)))
        return
    command = [sys.executable, "-m", "benchmarks.library", "--registries", str(options.registries), "--size"]
    rows = [json.loads(subprocess.check_output([*command, str(size)])) for size in SIZES]
    rows.append(
        {f"shared_definitions_{kind}": best(converted(kind), rounds=1) for kind in ("objects", "copies")}
    )
    for row in rows:
        print(json.dumps(row, indent=1))
    result = {"question": __doc__.splitlines()[0] if __doc__ else "", "machine": machine(), "rows": rows}
    (RESULTS / "library.json").write_text(json.dumps({**result, "commit": commit()}, indent=1) + "\n")


def measured(file: Path, size: int) -> dict[str, Any]:
    sources = sources_of(file, size)
    before = resident_mb()
    library = Library.compile(sources)
    after = resident_mb()
    first = sources[0]
    learnt = replace(first, observed={first.tools[0].name: {"type": "object", "properties": {"id": {}}}})
    with tempfile.TemporaryDirectory() as folder:
        return {
            "tools": len(library.functions),
            "upstreams": len(library.namespaces),
            "library_mb": round(after - before, 1),
            "compiled": best(lambda: Library.compile(new(sources))),
            "one_result_learnt": best(lambda: Library.compile([learnt, *sources[1:]], library)),
            "stubs_written": best(lambda: write_stubs(library, Path(folder)), rounds=1),
            "search_index_built": best(lambda: index(library)),
            "a_result_of_160_values_looked_at": looked_at([ISSUE] * 20),
            "a_result_of_80,000_values_looked_at": looked_at([ISSUE] * 10_000),
        }


def converted(kind: str) -> Callable[[], object]:
    """Compiles one upstream whose tools share their definitions, as one object each or as copies from the wire."""
    text, number = {"type": "string", "description": "What it is."}, {"type": "integer"}
    definitions = {
        f"Object{n}": {
            "type": "object",
            "properties": {
                **{f"text_{key}": text for key in range(8)},
                **{
                    f"of_{to}": {"anyOf": [number, {"$ref": f"#/$defs/Object{(n * 7 + to) % 600}"}]}
                    for to in range(4)
                },
                "more": {"type": "object", "properties": {f"count_{n % 50}": number}},
            },
        }
        for n in range(600)
    }
    tools = []
    for n in range(450):
        own = definitions if kind == "objects" else json.loads(json.dumps(definitions))
        result = {"$ref": f"#/$defs/Object{n}", "$defs": own}
        tools.append(RecordedTool(f"get_{n}", "Get it.", {"type": "object"}, result, {}, None))
    return lambda: Library.compile([LibrarySource("api", "api", "", tools)])


def looked_at(result: Json) -> dict[str, float]:
    """Seconds to learn from a result that is like those before it."""
    known = shape_of(result)
    times = best(lambda: [merged(known, shape_of(result)) for _ in range(200)])
    return {name: round(seconds / 200, 6) for name, seconds in times.items()}


def index(library: Library) -> None:
    SearchIndex({}, {}).updated({name: each.in_order for name, each in library.namespaces.items()})


def sources_of(file: Path, size: int) -> list[LibrarySource]:
    """The first registries, again and again under other names, until there are so many tools."""
    recorded = read_sources(file)
    sources: list[LibrarySource] = []
    while size > 0:
        number = len(sources)
        source = recorded[number % len(recorded)]
        copy = f"_{number // len(recorded)}" if number >= len(recorded) else ""
        tools = source.tools[:size]
        sources.append(replace(source, namespace=f"{source.namespace}{copy}", tools=tools))
        size -= len(tools)
    return sources


def new(sources: list[LibrarySource]) -> list[LibrarySource]:
    """The same definitions as they come from the wire, nothing about them known yet."""
    return [replace(source, tools=[replace(tool) for tool in source.tools]) for source in sources]


def best(act: Callable[[], object], rounds: int = ROUNDS) -> dict[str, float]:
    """The shortest time of some rounds."""
    times = []
    for _ in range(rounds):
        start = time.process_time(), time.perf_counter()
        act()
        times.append((time.process_time() - start[0], time.perf_counter() - start[1]))
    return {
        "cpu_seconds": round(min(cpu for cpu, _ in times), 3),
        "seconds": round(min(s for _, s in times), 3),
    }


def resident_mb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1000


if __name__ == "__main__":
    main()
