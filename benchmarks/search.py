"""Question: does docs_search find the right function among thousands, and how fast?

    python -m benchmarks.search

Real tool registries and real queries with known answers (../shared/data, see its README) are searched three
ways: plain BM25 over name and description, SQLite FTS5 with porter stemming, and the portal's own index. One need
of a query counts as met when an acceptable function is among the first results: Recall@5 and nDCG@10 per set, and
their mean over the six sets whose labels are reliable. Raw numbers go to benchmarks/results/search.json.
"""

import gzip
import json
import math
import re
import sqlite3
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.measuring import RESULTS, machine, percentile
from portal.search.index import SearchIndex
from portal.search.stopwords import ASKING, STOPWORDS

Json = Any
T = TypeVar("T")
Answer = tuple[str, str]
Search = Callable[[str, int], Sequence[Answer]]

DATA = RESULTS.parents[2] / "shared" / "data"
RELIABLE = ("azure", "stabletoolbench", "bfcl_live", "toollinkos", "metatool", "livemcp_task")
FILES = {"mcp": "registries.jsonl.gz"}


@dataclass(frozen=True)
class RecordedParameter:
    name: str
    wire_name: str
    doc: str


@dataclass(frozen=True)
class RecordedFunction:
    namespace: str
    name: str
    upstream: str
    tool: str
    description: str
    parameters: tuple[RecordedParameter, ...]


@dataclass(frozen=True)
class Asked:
    set: str
    corpus: str
    query: str
    needs: tuple[frozenset[Answer], ...]


def main() -> int:
    if not DATA.is_dir():
        print(f"benchmarks/search.py: the recorded registries and queries are not at {DATA}", file=sys.stderr)
        return 2
    print(__doc__.splitlines()[0], end="\n\n")
    asked = [read_asked(row) for row in read_rows(DATA / "queries.jsonl.gz")]
    corpora = {name: list(read_functions(name)) for name in sorted({each.corpus for each in asked})}
    cold_ms, _ = timed(lambda: SearchIndex.build(corpora["mcp"]))
    quality = {name: measure_quality(make, corpora, asked) for name, make in METHODS.items()}
    print_quality(quality, Counter(each.set for each in asked))
    speed = [measure_speed(corpora["mcp"], size, asked) for size in (3_000, 6_000, 50_000)]
    print_speed(speed)
    print(f"first build in a process, {len(corpora['mcp'])} functions, every word new: {cold_ms:.0f} ms")
    write_results(cold_ms, quality, speed)
    return 0


# The data


def read_rows(path: Path) -> Iterator[Json]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def read_asked(row: Json) -> Asked:
    needs = tuple(frozenset((server, tool) for server, tool in need) for need in row["relevant"])
    return Asked(row["set"], row["corpus"], row["query"], needs)


def read_functions(corpus: str) -> Iterator[RecordedFunction]:
    for row in read_rows(DATA / FILES.get(corpus, f"corpus_{corpus}.jsonl.gz")):
        for tool in row["tools"]:
            parameters = tuple(read_parameters(tool.get("inputSchema")))
            upstream, name = row["server"], tool["name"]
            description = tool.get("description") or ""
            yield RecordedFunction(
                identifier(upstream), identifier(name), upstream, name, description, parameters
            )


def read_parameters(schema: Json) -> Iterator[RecordedParameter]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for name, value in properties.items() if isinstance(properties, dict) else ():
        doc = value.get("description") if isinstance(value, dict) else None
        yield RecordedParameter(identifier(name), name, doc if isinstance(doc, str) else "")


def identifier(text: str) -> str:
    return re.sub(r"\W", "_", text)


# The methods


def plain_bm25(functions: Sequence[RecordedFunction]) -> Search:
    """Okapi BM25 as most catalogues do it: lower-case words of name and description, k1 1.5, b 0.75."""
    texts = [Counter(re.findall(r"\w+", f"{each.tool} {each.description}".lower())) for each in functions]
    postings: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for number, text in enumerate(texts):
        for word, count in text.items():
            postings[word].append((number, count))
    lengths = [text.total() for text in texts]
    usual = statistics.fmean(lengths)

    def search(query: str, limit: int) -> Sequence[Answer]:
        scores: defaultdict[int, float] = defaultdict(float)
        for word in re.findall(r"\w+", query.lower()):
            found = postings.get(word, [])
            rarity = math.log(1 + (len(texts) - len(found) + 0.5) / (len(found) + 0.5))
            for number, count in found:
                length = 0.25 + 0.75 * lengths[number] / usual
                scores[number] += rarity * count * 2.5 / (count + 1.5 * length)
        best = sorted(scores, key=lambda number: -scores[number])[:limit]
        return [(functions[number].upstream, functions[number].tool) for number in best]

    return search


def fts5(functions: Sequence[RecordedFunction]) -> Search:
    """SQLite's full-text search with porter stemming, fields weighted and stopwords dropped like ours, any word."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE f USING fts5(a, b, c, d, e, tokenize='porter unicode61')")
    for each in functions:
        names = " ".join(parameter.wire_name for parameter in each.parameters)
        docs = " ".join(parameter.doc for parameter in each.parameters)
        database.execute(
            "INSERT INTO f VALUES (?,?,?,?,?)", (each.tool, each.upstream, each.description, names, docs)
        )

    def search(query: str, limit: int) -> Sequence[Answer]:
        asked = dict.fromkeys(re.findall(r"[^\W_]+", query.lower()))
        words = " OR ".join(f'"{word}"' for word in asked if word not in STOPWORDS | ASKING)
        ranked = "SELECT a, b FROM f WHERE f MATCH ? ORDER BY bm25(f, 3, 1.2, 1, 0.8, 0.5), rowid LIMIT ?"
        return (
            [(upstream, tool) for tool, upstream in database.execute(ranked, (words, limit))] if words else []
        )

    return search


def portal_index(functions: Sequence[RecordedFunction]) -> Search:
    index = SearchIndex.build(functions)
    return lambda query, limit: [(each.upstream, each.tool) for each in index.search(query, limit).functions]


METHODS = {"plain BM25": plain_bm25, "SQLite FTS5 porter": fts5, "portal": portal_index}


# The measures


def measure_quality(
    make: Callable[[Sequence[RecordedFunction]], Search],
    corpora: dict[str, list[RecordedFunction]],
    asked: Sequence[Asked],
) -> dict[str, dict[str, float]]:
    searches = {name: make(functions) for name, functions in corpora.items()}
    recalls: defaultdict[str, list[float]] = defaultdict(list)
    gains: defaultdict[str, list[float]] = defaultdict(list)
    for each in asked:
        found = searches[each.corpus](each.query, 10)
        recalls[each.set].append(recall(found[:5], each.needs))
        gains[each.set].append(gain(found, each.needs))
    scores = {
        name: {"recall@5": statistics.fmean(recalls[name]), "ndcg@10": statistics.fmean(gains[name])}
        for name in recalls
    }
    scores["macro"] = {
        measure: statistics.fmean(scores[name][measure] for name in RELIABLE)
        for measure in ("recall@5", "ndcg@10")
    }
    return scores


def recall(found: Sequence[Answer], needs: Sequence[frozenset[Answer]]) -> float:
    return sum(not need.isdisjoint(found) for need in needs) / len(needs)


def gain(found: Sequence[Answer], needs: Sequence[frozenset[Answer]]) -> float:
    """nDCG with gain 1 for a result that meets a need not met before."""
    open_needs = list(needs)
    total = 0.0
    for place, answer in enumerate(found):
        still_open = [need for need in open_needs if answer not in need]
        if len(still_open) < len(open_needs):
            total += 1 / math.log2(place + 2)
        open_needs = still_open
    return total / sum(1 / math.log2(place + 2) for place in range(min(len(needs), 10)))


def measure_speed(
    functions: Sequence[RecordedFunction], size: int, asked: Sequence[Asked]
) -> dict[str, float]:
    """Build and query times at a size; beyond the real tools, copies of them under other upstream names."""
    copies = range(math.ceil(size / len(functions)))
    tenants = [replace(each, upstream=f"{each.upstream}{n or ''}") for n in copies for each in functions][
        :size
    ]
    build_ms, index = timed(lambda: SearchIndex.build(tenants))
    one_upstream = tenants[0].upstream
    changed = [replace(each) if each.upstream == one_upstream else each for each in tenants]
    rebuild_ms, _ = timed(lambda: SearchIndex.build(changed, index))
    queries = [each.query for each in asked if each.set in RELIABLE][::5]
    times = [timed(partial(index.search, query, 5))[0] for query in queries]
    return {
        "functions": size,
        "build_ms": round(build_ms, 1),
        "rebuild_one_upstream_ms": round(rebuild_ms, 1),
        "query_p50_ms": round(percentile(times, 0.5), 3),
        "query_p95_ms": round(percentile(times, 0.95), 3),
    }


def timed(work: Callable[[], T]) -> tuple[float, T]:
    started = time.perf_counter()
    result = work()
    return (time.perf_counter() - started) * 1000, result


# The report


def print_quality(quality: dict[str, dict[str, dict[str, float]]], sizes: Counter[str]) -> None:
    print(f"{'Recall@5 / nDCG@10':24}" + "".join(f"{method:>22}" for method in quality))
    others = sorted(set(sizes) - set(RELIABLE))
    for name in (*RELIABLE, "macro", *others):
        label = "macro of the six" if name == "macro" else f"{name} ({sizes[name]})"
        cells = (quality[method][name] for method in quality)
        print(f"{label:24}" + "".join(f"{cell['recall@5']:>14.3f} / {cell['ndcg@10']:.3f}" for cell in cells))


def print_speed(speed: Sequence[dict[str, float]]) -> None:
    print(f"\n{'functions':>10}{'build ms':>12}{'rebuild ms':>12}{'query p50 ms':>15}{'p95 ms':>10}")
    for row in speed:
        print(
            f"{row['functions']:>10}{row['build_ms']:>12}{row['rebuild_one_upstream_ms']:>12}"
            f"{row['query_p50_ms']:>15}{row['query_p95_ms']:>10}"
        )


def write_results(cold_ms: float, quality: Json, speed: Json) -> None:
    where = RESULTS / "search.json"
    where.parent.mkdir(exist_ok=True)
    facts = {"machine": machine(), "quality": quality, "first_build_ms": round(cold_ms), "speed": speed}
    where.write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
    print(f"\nraw numbers: {where.relative_to(RESULTS.parents[1])}")


if __name__ == "__main__":
    sys.exit(main())
