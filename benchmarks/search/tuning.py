"""Question: are the settings of the search fitted to the queries that they were chosen with?

    python -m benchmarks.search.tuning [--settings N]

Other settings are drawn at random: each number as it is, or times or divided by 1.5 or 2. Two kinds of splits:

- by set: the best setting on three of the six sets is tried on the other three, for all 20 ways to part them;
- by query: the best setting on a random half of each set's queries is tried on the other half, 200 times.

If what was tuned on one part does worse on the other than our settings do, ours lose nothing by not being tuned to it,
and what they have here can be expected elsewhere. How much a score grows by tuning alone is printed beside it.
"""

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from benchmarks.search.methods import METHODS
from benchmarks.search.quality import RELIABLE, score
from benchmarks.search.recorded import DATA, read_functions, read_queries
from portal.catalog.search import index

FACTORS = (1, 1, 1, 0.5, 1 / 1.5, 1.5, 2)
NUMBERS = (
    (index, "_BEST_SENTENCE"),
    (index, "_NAME_COVERAGE"),
    (index, "_PHRASE"),
    (index, "_SAME_UPSTREAM"),
    (index, "_WHOLE_NAME"),
    (index, "_SATURATION"),
    (index, "_REPEATED"),
    (index, "_JOINED"),
    (index, "_RELATED"),
)
HALVINGS = 200

Floats = NDArray[np.float64]
Rows = dict[str, Floats]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", type=int, default=40)
    count = parser.parse_args().settings
    if not DATA.is_dir():
        print(f"benchmarks/search: the recorded registries and queries are not at {DATA}", file=sys.stderr)
        return 2
    draws = np.random.default_rng(4)
    tried = [scores_with(None)]
    tried += [scores_with(draws) for _ in range(count)]
    print(f"{count} other settings; Recall@5 / nDCG@10, macro of all six sets\n")
    macros = np.array([macro(rows, RELIABLE) for rows in tried])
    print_row("ours", macros[0])
    print_row("the best of the others, tuned on all", macros[1:][np.argmax(macros[1:].sum(axis=1))])
    print_row("the middle of the others", np.median(macros[1:], axis=0))
    print("\nleft-out part: tuned on the rest, ours, what tuning showed beyond ours on its own part")
    report("by set", by_set(tried))
    report("by query", by_query(tried, draws))
    return 0


def scores_with(draws: np.random.Generator | None) -> Rows:
    """The scores of each query, with our settings or with some drawn at random."""
    asked = [each for each in read_queries() if each.set in RELIABLE]
    corpora = {name: list(read_functions(name)) for name in {each.corpus for each in asked}}
    with settings(draws):
        return dict(score(asked, METHODS["portal"](corpora, asked)))


@contextmanager
def settings(draws: np.random.Generator | None) -> Iterator[None]:
    kept = [(module, name, getattr(module, name)) for module, name in NUMBERS]
    fields = index._WEIGHTS.copy(), index._DISCOUNTS.copy()
    try:
        if draws is not None:
            for module, name, value in kept:
                setattr(module, name, value * draws.choice(FACTORS))
            index._WEIGHTS *= draws.choice(FACTORS, len(fields[0]))
            index._DISCOUNTS[:] = np.minimum(0.95, fields[1] * draws.choice(FACTORS, len(fields[1])))
        yield
    finally:
        for module, name, value in kept:
            setattr(module, name, value)
        index._WEIGHTS[:], index._DISCOUNTS[:] = fields


def by_set(tried: Sequence[Rows]) -> Iterator[tuple[Floats, ...]]:
    for chosen in itertools.combinations(RELIABLE, 3):
        others = [name for name in RELIABLE if name not in chosen]
        yield parted([macro(rows, chosen) for rows in tried], [macro(rows, others) for rows in tried])


def by_query(tried: Sequence[Rows], draws: np.random.Generator) -> Iterator[tuple[Floats, ...]]:
    for _ in range(HALVINGS):
        is_in = {name: draws.random(len(rows)) < 0.5 for name, rows in tried[0].items()}
        yield parted(
            [macro({name: rows[name][is_in[name]] for name in rows}, RELIABLE) for rows in tried],
            [macro({name: rows[name][~is_in[name]] for name in rows}, RELIABLE) for rows in tried],
        )


def parted(tuned: Sequence[Floats], left_out: Sequence[Floats]) -> tuple[Floats, ...]:
    best = int(np.argmax([scores.sum() for scores in tuned]))
    return left_out[best], left_out[0], tuned[best] - tuned[0]


def macro(rows: Rows, sets: Sequence[str]) -> Floats:
    means: Floats = np.mean([rows[name].mean(axis=0) for name in sets], axis=0)
    return means


def report(kind: str, splits: Iterator[tuple[Floats, ...]]) -> None:
    tuned, ours, grown = np.mean(list(splits), axis=0)
    cells = (f"{values[0]:.3f} / {values[1]:.3f}" for values in (tuned, ours, grown))
    print(f"{kind:40}" + "".join(f"{each:>18}" for each in cells))


def print_row(label: str, values: Floats) -> None:
    print(f"{label:40}{values[0]:>10.3f} / {values[1]:.3f}")


if __name__ == "__main__":
    sys.exit(main())
