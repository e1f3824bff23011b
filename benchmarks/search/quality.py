"""Recall@5 and nDCG@10 of each method, with confidence intervals."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.search.methods import PLACES
from benchmarks.search.recorded import RELIABLE, Answer, Asked

MEASURES = ("recall@5", "ndcg@10")
RESAMPLES = 2_000
SEED = 20261122

Scores = Mapping[str, NDArray[np.float64]]
"""By set: a row for each of its queries, a column for each measure."""


def score(asked: Sequence[Asked], found: Sequence[Sequence[Answer]]) -> Scores:
    rows: dict[str, list[tuple[float, float]]] = {}
    for each, answers in zip(asked, found, strict=True):
        counted = [answer for answer in answers if answer[0] != each.hidden][:PLACES]
        rows.setdefault(each.set, []).append((recall(counted[:5], each.needs), gain(counted, each.needs)))
    return {name: np.array(scores) for name, scores in rows.items()}


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
    return total / sum(1 / math.log2(place + 2) for place in range(min(len(needs), PLACES)))


def means(scores: Scores) -> dict[str, dict[str, float]]:
    """By set, and as `macro` the mean over the reliable ones."""
    by_set = {name: rows.mean(axis=0) for name, rows in scores.items()}
    by_set["macro"] = np.mean([by_set[name] for name in RELIABLE], axis=0)
    return {name: _by_measure(values) for name, values in by_set.items()}


def intervals(scores: Mapping[str, Scores], best: str) -> dict[str, dict[str, Any]]:
    """For each method's macro score, and for what method `best` has more, the middle 95 % of resamples.

    Paired: each resample draws, set by set, the same queries for every method.
    """
    draws = np.random.default_rng(SEED)
    chosen = {
        name: draws.integers(0, len(rows), (RESAMPLES, len(rows))) for name, rows in _reliable(scores[best])
    }
    macros = {
        method: np.mean([rows[chosen[name]].mean(axis=1) for name, rows in _reliable(by_set)], axis=0)
        for method, by_set in scores.items()
    }
    return {
        method: {"macro": _middle(macro), f"{best} has more": _middle(macros[best] - macro)}
        for method, macro in macros.items()
    }


def _reliable(scores: Scores) -> list[tuple[str, NDArray[np.float64]]]:
    return [(name, scores[name]) for name in RELIABLE]


def _middle(resampled: NDArray[np.float64]) -> dict[str, list[float]]:
    ends = np.quantile(resampled, (0.025, 0.975), axis=0)
    return {name: [round(float(end), 4) for end in ends[:, at]] for at, name in enumerate(MEASURES)}


def _by_measure(values: NDArray[np.float64]) -> dict[str, float]:
    return {name: round(float(value), 4) for name, value in zip(MEASURES, values, strict=True)}
