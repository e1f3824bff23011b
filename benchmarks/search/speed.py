"""How long building, re-indexing and searching take, and what searches notice of a re-indexing beside them.

Milliseconds are of the processor, which other programs on the machine disturb little; only those of searches beside a
re-indexing are of the clock.
"""

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from benchmarks.measuring import percentile
from benchmarks.search.recorded import RecordedFunction
from portal.catalog.search.index import SearchIndex

T = TypeVar("T")
Namespaces = dict[str, list[RecordedFunction]]

REINDEXED = 40
LIMIT = 5


def measure_speed(functions: Sequence[RecordedFunction], size: int, queries: Sequence[str]) -> dict[str, Any]:
    """Times at a size; beyond the real tools, copies of them under other upstream names."""
    namespaces = _namespaces(functions, size)
    build_ms, index = timed(lambda: SearchIndex({}, {}).updated(namespaces))
    first = [timed(partial(index.search, query, LIMIT))[0] for query in queries]
    again = [timed(partial(index.search, query, LIMIT))[0] for query in queries]
    one_tool, whole, beside = _reindexed(index, namespaces, queries)
    return {
        "functions": sum(map(len, namespaces.values())),
        "build_ms": round(build_ms, 1),
        **_told("query", first),
        **_told("repeated_query", again),
        **_told("reindex_one_tool", one_tool),
        **_told("reindex_whole_upstream", whole),
        "largest_upstream": max(map(len, namespaces.values())),
        **_told("query_beside_reindexing", beside),
    }


def timed(work: Callable[[], T]) -> tuple[float, T]:
    started = time.thread_time()
    result = work()
    return (time.thread_time() - started) * 1000, result


def _namespaces(functions: Sequence[RecordedFunction], size: int) -> Namespaces:
    namespaces: Namespaces = {}
    for copy in range(math.ceil(size / len(functions))):
        for each in functions[: size - copy * len(functions)]:
            name = f"{each.namespace}_{copy}" if copy else each.namespace
            upstream = f"{each.upstream}{copy or ''}"
            namespaces.setdefault(name, []).append(replace(each, namespace=name, upstream=upstream))
    return namespaces


def _reindexed(
    index: SearchIndex, namespaces: Namespaces, queries: Sequence[str]
) -> tuple[list[float], list[float], list[float]]:
    """Upstreams of all sizes change, one tool or all tools of each, in a thread, as in the portal. The times of both,
    and of the searches meanwhile.
    """
    by_size = sorted(namespaces, key=lambda name: len(namespaces[name]))
    changing = by_size[:: max(1, len(by_size) // (REINDEXED - 1))] + by_size[-1:]
    one_tool: list[float] = []
    whole: list[float] = []

    def reindex() -> None:
        current, held = index, dict(namespaces)
        for name in changing:
            for times, most in ((one_tool, 1), (whole, None)):
                held[name] = _changed(held[name], most)
                ms, current = timed(partial(current.updated, dict(held)))
                times.append(ms)

    thread = threading.Thread(target=reindex)
    beside = []
    thread.start()
    while thread.is_alive():
        query = queries[len(beside) % len(queries)]
        started = time.perf_counter()
        index.search(query, LIMIT)
        beside.append((time.perf_counter() - started) * 1000)
        time.sleep(0.001)
    thread.join()
    return one_tool, whole, beside


def _changed(functions: Sequence[RecordedFunction], most: int | None) -> list[RecordedFunction]:
    """The first `most` functions have a new word in their descriptions; the sequence is a new one."""
    word = f"changed{time.perf_counter_ns()}"
    changed = [replace(each, description=f"{each.description} {word}") for each in functions[:most]]
    return [*changed, *functions[len(changed) :]]


def _told(name: str, times: Sequence[float]) -> dict[str, float]:
    return {
        f"{name}_p50_ms": round(percentile(times, 0.5), 3),
        f"{name}_p95_ms": round(percentile(times, 0.95), 3),
        f"{name}_max_ms": round(max(times), 3),
    }
