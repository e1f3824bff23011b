"""Question: does docs_search find the right function among thousands, and how fast?

    python -m benchmarks.search
    python -m benchmarks.search --only quality   # or speed; writes nothing

Real tool registries and real queries with known answers (../shared/data, see its README) are searched four ways: plain
BM25 over name and description, FastMCP's own search, SQLite FTS5 with porter stemming, and the portal's index. One need
of a query counts as met when an acceptable function is among the first results: Recall@5 and nDCG@10 per set, and their
mean over the six sets whose labels are reliable, with 95 % confidence intervals of it and of what the portal has more
(paired bootstrap). Further queries are made from the registries (cross_server.py and other_words.py here). Raw numbers
go to benchmarks/results/search.json. How firm the settings are: `python -m benchmarks.search.tuning`.
"""

import argparse
import json
import sys
from collections import Counter
from typing import Any

from benchmarks.measuring import RESULTS, commit, machine
from benchmarks.peers.system import CannotError
from benchmarks.search.cross_server import cross_server_queries
from benchmarks.search.methods import METHODS, Corpora, built
from benchmarks.search.other_words import other_words_queries, own_words_queries, two_step_queries
from benchmarks.search.quality import RELIABLE, Scores, intervals, means, score
from benchmarks.search.recorded import DATA, Asked, read_functions, read_queries
from benchmarks.search.speed import measure_speed, timed

Json = Any
OURS = "portal"
SIZES = (3_000, 6_000, 50_000)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("quality", "speed"))
    only = parser.parse_args().only
    if not DATA.is_dir():
        print(f"benchmarks/search: the recorded registries and queries are not at {DATA}", file=sys.stderr)
        return 2
    print(__doc__.splitlines()[0], end="\n\n")
    asked = list(read_queries())
    corpora = {name: list(read_functions(name)) for name in sorted({each.corpus for each in asked})}
    facts: dict[str, Json] = {}
    if only != "quality":
        facts["first_build_ms"] = round(timed(lambda: built(corpora["mcp"]))[0])
    if only != "speed":
        facts |= measure_quality(corpora, asked)
    if only != "quality":
        queries = [each.query for each in asked if each.set in RELIABLE][::5]
        facts["speed"] = [measure_speed(corpora["mcp"], size, queries) for size in SIZES]
        print_speed(facts["speed"])
    if only is None:
        write_results(facts)
    return 0


def measure_quality(corpora: Corpora, asked: list[Asked]) -> dict[str, Json]:
    mcp = corpora["mcp"]
    asked = [
        *asked,
        *cross_server_queries(mcp),
        *other_words_queries(mcp),
        *own_words_queries(mcp),
        *two_step_queries(asked),
    ]
    scores: dict[str, Scores] = {}
    for name, method in METHODS.items():
        try:
            scores[name] = score(asked, method(corpora, asked))
        except CannotError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
    quality = {name: means(each) for name, each in scores.items()}
    certainty = intervals(scores, OURS)
    sizes = Counter(each.set for each in asked)
    print_quality(quality, sizes)
    print_certainty(certainty)
    return {"queries": sizes, "quality": quality, "intervals_95": certainty}


def print_quality(quality: dict[str, dict[str, dict[str, float]]], sizes: Counter[str]) -> None:
    print(f"{'Recall@5 / nDCG@10':34}" + "".join(f"{method:>22}" for method in quality))
    others = sorted(set(sizes) - set(RELIABLE))
    for name in (*RELIABLE, "macro", *others):
        label = "macro of the six" if name == "macro" else f"{name} ({sizes[name]})"
        cells = (quality[method][name] for method in quality)
        print(f"{label:34}" + "".join(f"{cell['recall@5']:>14.3f} / {cell['ndcg@10']:.3f}" for cell in cells))


def print_certainty(certainty: dict[str, Json]) -> None:
    print("\n95 % intervals: macro Recall@5, nDCG@10; what the portal has more of each")
    for method, interval in certainty.items():
        cells = [*interval["macro"].values()]
        if method != OURS:
            cells += interval[f"{OURS} has more"].values()
        print(f"{method:34}" + "".join(f"{low:>10.3f} .. {high:.3f}" for low, high in cells))


def print_speed(speed: list[dict[str, float]]) -> None:
    print()
    for key in speed[0]:
        print(f"{key:34}" + "".join(f"{row[key]:>14,}" for row in speed))


def write_results(facts: dict[str, Json]) -> None:
    where = RESULTS / "search.json"
    result = {"machine": machine(), "commit": commit(), **facts}
    where.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(f"\nraw numbers: {where.relative_to(RESULTS.parents[1])}")


if __name__ == "__main__":
    sys.exit(main())
