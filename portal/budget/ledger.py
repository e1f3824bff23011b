"""The ledger of a run in fewer rows: what did not end well is kept longest, the rest is counted."""

from collections import Counter
from collections.abc import Iterable

from manifests.json_value import Json


def summarised(calls: list[Json], rows: int) -> list[Json]:
    """All calls if they are at most `rows`; else the first of those not done, and counts of the others.

    A count is `{function, state, count}`; beyond `rows` of them, the rarest are `{state, count}`.
    """
    if len(calls) <= rows:
        return calls
    kept = [call for call in calls if _state(call) != "done"][: rows * 3 // 4]
    kept_rows = {id(call) for call in kept}
    return kept + _counts((call for call in calls if id(call) not in kept_rows), rows - len(kept))


def _counts(calls: Iterable[Json], rows: int) -> list[Json]:
    counted: Counter[tuple[str, str]] = Counter()
    for call in calls:
        counted[_text(call, "function"), _state(call)] += _count(call)
    common = counted.most_common(rows)
    by_state: Counter[str] = Counter()
    for (_, state), count in counted.most_common()[rows:]:
        by_state[state] += count
    return [
        *({"function": function, "state": state, "count": count} for (function, state), count in common),
        *({"state": state, "count": count} for state, count in by_state.most_common()),
    ]


def _count(call: Json) -> int:
    """A row that is a count already counts as many."""
    count = call.get("count") if isinstance(call, dict) else None
    return count if isinstance(count, int) else 1


def _state(call: Json) -> str:
    return _text(call, "state")


def _text(call: Json, key: str) -> str:
    value = call.get(key) if isinstance(call, dict) else None
    return value if isinstance(value, str) else ""
