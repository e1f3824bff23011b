"""Question: what does a model read and write until its calls are made, directly and through the portal, and what does
it read of the answers to come?

    python -m benchmarks.tokens [--registries FILE]

First on a real portal (`scripts/servers --all` installs its servers): what each of three kinds of client shows its
model of definitions, searches and answers, of a whole session, and of forty first scripts; those are classed by what
became of them. All is counted in the CallToolResult as sent (`clients.py`, `first_scripts.py`).

Then tools are drawn from the recorded registries: of one server for 30, of five for 150 (the first 30 tools of each),
whole servers until there are 1,000 or 6,000. In each draw three tools are to be called.

- Directly the model reads the definitions of all tools (name, description, inputSchema) and writes three calls.
- Through the portal it reads the two definitions and the server's instructions. For each of the three tools it searches
  with the first words of the tool's own description (ten at most) and reads the answer; if the tool is not in it, it
  searches again with the words of its name, and at last for that name with `limit` 20. Then it asks for the function's
  stub by its name and reads that, whether it needs it or not. It writes one script with the three calls. Every request
  that it writes counts, too.

Not counted there, because they are the same or nearly so: what the tools answer, the task, what the model thinks. All
is counted once, although a client sends definitions and former answers again with every turn. Tokens are o200k_base. A
tool that no search finds counts as `missed`; its path is in the sum without a stub. `with_short_names` is a function's
cost if its namespace were one token: the registries' names are made of where they were found, and long; `without_call`
is what is left without telling how a script calls it (`tickets.create_issue`) at all.
"""

import argparse
import json
import random
import re
import shutil
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from benchmarks.clients import CLIENTS, measure_clients, shown
from benchmarks.measuring import RESULTS, commit, machine
from benchmarks.registries import REGISTRIES, read_sources
from manifests.portal_manifest import Capabilities
from portal.base.tokens import compact, count_tokens
from portal.catalog.docs_search import DocsSearchAnswer, Found
from portal.catalog.search.index import SearchIndex
from portal.library.function import Function
from portal.library.library import Library, LibrarySource
from portal.server.definitions import INSTRUCTIONS, tool_definitions
from upstreams.tools import RecordedTool

SCENE = RESULTS.parents[1] / ".cache" / "scene"
SEED = 20261122
STEPS = 3
OUTPUT_TOKENS = 6_000
DRAWS = {30: 40, 150: 40, 1_000: 10, 6_000: 4}
WORDS = 10


@dataclass
class Spent:
    """The tokens of one way to three calls, by what they are spent on; those of answers by kind of client."""

    definitions: int
    requests: int = 0
    calls: int = 0
    searches: Counter[str] = field(default_factory=Counter)
    stubs: Counter[str] = field(default_factory=Counter)
    found_at_once: int = 0
    missed: int = 0

    def total(self, client: str = "content") -> int:
        return self.definitions + self.requests + self.searches[client] + self.stubs[client] + self.calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--registries", type=Path, default=REGISTRIES)
    registries = parser.parse_args().registries
    print(" ".join(__doc__.splitlines()[:2]), end="\n\n")
    # Always the same: its path is in many answers.
    shutil.rmtree(SCENE, ignore_errors=True)
    SCENE.mkdir(parents=True)
    real = anyio.run(measure_clients, SCENE)
    for line in client_lines(real):
        print(line)
    sources = read_sources(registries)
    draws = random.Random(SEED)
    library = Library.compile(sources)
    functions = measured_functions(library, draws)
    print(f"\ntokens of a function (mean, median, p95): {compact(functions)}\n")
    is_structured = real["session"]["structured"] != real["session"]["content"]
    rows = [
        measured(size, count, sources, library, draws, is_structured=is_structured)
        for size, count in DRAWS.items()
    ]
    for row in rows:
        print(compact(row))
    write({"machine": machine(), "commit": commit(), "real": real, "functions": functions, "rows": rows})


def client_lines(real: dict[str, Any]) -> Iterator[str]:
    """A compact table: each item by client, and what became of the scripts."""
    yield f"{'tokens as shown':36}" + "".join(f"{client:>12}" for client in CLIENTS)
    for item, tokens in {**real["items"], "a session": real["session"]}.items():
        yield f"{item:36}" + "".join(f"{tokens[client]:12,}" for client in CLIENTS)
    yield "first scripts: " + ", ".join(f"{count} {kind}" for kind, count in real["classes"].items())
    for kind in ("unclear", "wrong silently"):
        yield f"{kind}: " + (
            ", ".join(name for name, its in real["first_scripts"].items() if its == kind) or "none"
        )
    yield "an error text or id twice: " + (", ".join(real["repeated"]) or "none")


def measured_functions(library: Library, draws: random.Random) -> dict[str, list[float]]:
    """What one function costs in an answer, of a thousand: its brief line, and its stub with the types it needs."""
    chosen = draws.sample(sorted(library.functions), 1_000)
    found = [library.functions[name] for name in chosen]
    costs = {}
    for detail, full in (("brief", 0), ("full", 1)):
        tokens = [count_tokens(_answer([each], full).text) for each in found]
        longer = [count_tokens(each.namespace) - 1 for each in found]
        called = [count_tokens(f" {each.qualified}:") for each in found]
        costs[detail] = summary(tokens)
        costs[f"{detail}_with_short_names"] = summary([a - b for a, b in zip(tokens, longer, strict=True)])
        costs[f"{detail}_without_call"] = summary([a - b for a, b in zip(tokens, called, strict=True)])
    return costs


def measured(
    size: int,
    count: int,
    sources: Sequence[LibrarySource],
    library: Library,
    draws: random.Random,
    *,
    is_structured: bool,
) -> dict[str, Any]:
    """`is_structured` says whether the portal sends `structuredContent`, too."""
    direct, portal, tools = [], [], []
    while len(direct) < count:
        drawn = draw(size, sources, draws)
        pairs = [(tool, _function(library, source, tool)) for source in drawn for tool in source.tools]
        chosen = draws.sample([pair for pair in pairs if pair[1] is not None], STEPS)
        namespaces = {each.namespace: _functions(library, each) for each in drawn}
        index = SearchIndex({}, {}).updated(namespaces)
        tools.append(len(pairs))
        direct.append(directly([tool for tool, _ in pairs], [tool for tool, _ in chosen]))
        portal.append(through_portal(index, chosen, is_structured=is_structured))
    return {
        "tools": round(statistics.median(tools)),
        "draws": count,
        "direct": summary([each.total() for each in direct]),
        "portal": {client: summary([each.total(client) for each in portal]) for client in CLIENTS},
        "portal_parts": {
            **{
                part: _mean(getattr(each, part) for each in portal)
                for part in ("definitions", "requests", "calls")
            },
            **{
                part: {client: _mean(getattr(each, part)[client] for each in portal) for client in CLIENTS}
                for part in ("searches", "stubs")
            },
        },
        "found_at_once": round(sum(each.found_at_once for each in portal) / (count * STEPS), 3),
        "missed": sum(each.missed for each in portal),
    }


def draw(size: int, sources: Sequence[LibrarySource], draws: random.Random) -> list[LibrarySource]:
    """Servers in a random order, of which there are so many tools; of 30 and 150 the first 30 of large servers."""
    if size <= 150:
        large = [source for source in sources if len(source.tools) >= 30]
        return [_first(source, 30) for source in draws.sample(large, size // 30)]
    drawn: list[LibrarySource] = []
    left = size
    for source in draws.sample(sources, len(sources)):
        if left <= 0:
            break
        drawn.append(_first(source, left))
        left -= len(drawn[-1].tools)
    return drawn


def directly(tools: Sequence[RecordedTool], chosen: Sequence[RecordedTool]) -> Spent:
    path = Spent(sum(count_tokens(_definition(tool)) for tool in tools))
    path.calls = sum(
        count_tokens(compact({"name": tool.name, "arguments": _arguments(tool)})) for tool in chosen
    )
    return path


def through_portal(
    index: SearchIndex, chosen: Sequence[tuple[RecordedTool, Function | None]], *, is_structured: bool
) -> Spent:
    def read(answer: Any) -> dict[str, int]:
        return shown(answer.text, answer.structured if is_structured else None)

    path = Spent(_portal_definitions())
    for tool, function in chosen:
        assert function is not None
        for number, (query, limit) in enumerate(_queries(tool)):
            hits = index.search(query, limit)
            request = {"query": query} if limit == 5 else {"query": query, "limit": limit}
            path.requests += count_tokens(compact(request))
            path.searches.update(read(_answer(hits.functions, hits.exact, hits.total)))
            if function in hits.functions:
                path.found_at_once += number == 0
                break
        else:
            path.missed += 1
            continue
        path.requests += count_tokens(compact({"query": function.qualified}))
        path.stubs.update(read(_answer([function], 1)))
    path.calls = count_tokens(compact({"code": _script(chosen)}))
    return path


def _queries(tool: RecordedTool) -> Iterator[tuple[str, int]]:
    name = " ".join(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", tool.name))
    described = " ".join(tool.description.split(".")[0].split()[:WORDS])
    yield described or name, 5
    yield name, 5
    yield tool.name, 20


def _script(chosen: Sequence[tuple[RecordedTool, Function | None]]) -> str:
    lines = []
    for number, (tool, function) in enumerate(chosen):
        assert function is not None
        known = {parameter.wire_name: parameter.name for parameter in function.parameters}
        arguments = [f"{known.get(name, name)}={value!r}" for name, value in _arguments(tool).items()]
        lines.append(f"r{number} = await {function.qualified}({', '.join(arguments)})")
    return "\n".join([*lines, f"[{', '.join(f'r{number}' for number in range(len(chosen)))}]"])


def _arguments(tool: RecordedTool) -> dict[str, Any]:
    """Something for each required argument."""
    schema = tool.input_schema if isinstance(tool.input_schema, dict) else {}
    required, properties = schema.get("required"), schema.get("properties")
    names = required if isinstance(required, list) else []
    return {name: _value(properties.get(name) if isinstance(properties, dict) else None) for name in names}


def _value(schema: Any) -> Any:
    kind = schema.get("type") if isinstance(schema, dict) else None
    values: dict[str, Any] = {"integer": 7, "number": 7, "boolean": True, "array": ["text"], "object": {}}
    return values.get(kind, "some text") if isinstance(kind, str) else "some text"


def _answer(functions: Sequence[Function], full: int, total: int = 0) -> Any:
    return DocsSearchAnswer(Found(functions, max(total, len(functions)), full, ()), OUTPUT_TOKENS)


def _definition(tool: RecordedTool) -> str:
    return compact({"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema})


def _portal_definitions() -> int:
    shown = [
        {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
        for tool in tool_definitions(Capabilities())
    ]
    return count_tokens(compact(shown)) + count_tokens(INSTRUCTIONS)


def _first(source: LibrarySource, most: int) -> LibrarySource:
    return LibrarySource(source.upstream, source.namespace, source.summary, source.tools[:most])


def _functions(library: Library, source: LibrarySource) -> Sequence[Function]:
    kept = {tool.name for tool in source.tools}
    return [each for each in library.namespaces[source.namespace].in_order if each.tool in kept]


def _function(library: Library, source: LibrarySource, tool: RecordedTool) -> Function | None:
    functions = library.namespaces[source.namespace].in_order
    return next((each for each in functions if each.tool == tool.name), None)


def _mean(values: Iterable[int]) -> int:
    return round(statistics.fmean(values))


def summary(values: Sequence[int]) -> list[float]:
    """Mean, median, p95."""
    ordered = sorted(values)
    return [
        round(statistics.fmean(ordered), 1),
        round(statistics.median(ordered)),
        ordered[int(len(ordered) * 0.95)],
    ]


def write(facts: dict[str, Any]) -> None:
    where = RESULTS / "tokens.json"
    where.write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
    print(f"\nraw numbers: {where.relative_to(RESULTS.parents[1])}")


if __name__ == "__main__":
    sys.exit(main())
