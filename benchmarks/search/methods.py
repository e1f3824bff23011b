"""Ways to search, all given the same functions and the same queries."""

import json
import math
import re
import sqlite3
import statistics
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.peers.environments import python_environment
from benchmarks.peers.fastmcp import VERSION
from benchmarks.search.recorded import Answer, Asked, RecordedFunction
from portal.catalog.search.index import SearchIndex
from portal.catalog.search.query import ASKING, STOPWORDS

Corpora = Mapping[str, Sequence[RecordedFunction]]
Method = Callable[[Corpora, Sequence[Asked]], list[Sequence[Answer]]]
"""Gives for each query the best answers, best first, at least `PLACES` of them where there are so many."""

PLACES = 10
MOST_HIDDEN = 40
"""Further answers that are looked at where those of one upstream do not count."""

Search = Callable[[str, int], Sequence[Answer]]


def one_by_one(make: Callable[[Sequence[RecordedFunction]], Search]) -> Method:
    """The method of a search that is made of the functions and then asked query by query."""

    def answer(corpora: Corpora, asked: Sequence[Asked]) -> list[Sequence[Answer]]:
        searches = {name: make(functions) for name, functions in corpora.items()}
        return [searches[each.corpus](each.query, wanted(each)) for each in asked]

    return answer


def wanted(asked: Asked) -> int:
    return PLACES + (MOST_HIDDEN if asked.hidden else 0)


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
        return [functions[number].answer for number in best]

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


def fastmcp(corpora: Corpora, asked: Sequence[Asked]) -> list[Sequence[Answer]]:
    """FastMCP's own search (`BM25SearchTransform`), in an environment of its own.

    Tools are called `server_tool` there, as FastMCP names them behind a proxy of several servers.

    Raises:
        CannotError: It cannot be installed here.
    """
    commands = python_environment("fastmcp", f"fastmcp[code-mode]=={VERSION}")
    program = Path(__file__).resolve().parent / "fastmcp_index.py"
    given = {
        "corpora": {name: [_as_tool(each) for each in functions] for name, functions in corpora.items()},
        "queries": [[each.corpus, each.query, wanted(each)] for each in asked],
    }
    done = subprocess.run(
        [str(commands / "python"), "-I", str(program)],
        input=json.dumps(given),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    return [
        [corpora[each.corpus][number].answer for number in numbers]
        for each, numbers in zip(asked, found, strict=True)
    ]


def _as_tool(function: RecordedFunction) -> dict[str, object]:
    properties = {each.wire_name: {"description": each.doc} for each in function.parameters}
    return {
        "name": f"{function.upstream}_{function.tool}",
        "description": function.description,
        "parameters": {"properties": properties},
    }


def built(functions: Sequence[RecordedFunction]) -> SearchIndex:
    namespaces: dict[str, list[RecordedFunction]] = {}
    for each in functions:
        namespaces.setdefault(each.namespace, []).append(each)
    return SearchIndex({}, {}).updated(namespaces)


def portal_index(functions: Sequence[RecordedFunction]) -> Search:
    index = built(functions)
    return lambda query, limit: [each.answer for each in index.search(query, limit).functions]


METHODS: dict[str, Method] = {
    "plain BM25": one_by_one(plain_bm25),
    f"FastMCP {VERSION}": fastmcp,
    "SQLite FTS5 porter": one_by_one(fts5),
    "portal": one_by_one(portal_index),
}
