import json
import re
from collections.abc import Callable
from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.json_value import Json
from portal.base.tokens import compact, count_tokens
from portal.runs.content import truncate

_MARK = re.compile(r"… (\[.*\]|[\d,]+ more (items|keys) left out)$", re.DOTALL)


def answer(
    result: Json = None,
    *,
    stdout: str = "",
    error: Json = None,
    calls: tuple[Json, ...] = (),
    notices: tuple[str, ...] = (),
) -> dict[str, Json]:
    return {
        "status": "error" if error else "ok",
        "result": result,
        "stdout": stdout,
        "error": error,
        "calls": list(calls),
        "notices": list(notices),
        "run_id": "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
        "session": "s-0123456789abcdef0123456789abcdef",
    }


def call(seq: int, function: str = "github.list_issues", state: str = "done") -> Json:
    return {"seq": seq, "function": function, "state": state, "ms": 12.5}


def shows_no_more(less: Json, more: Json) -> bool:
    """Whether all that `less` shows, `more` shows too; both are excerpts of one value."""
    if isinstance(less, str):
        mark = _MARK.search(less)
        start = less[: mark.start()] if mark else None
        return (
            less == more
            or start == ""
            or (start is not None and isinstance(more, str) and more.startswith(start))
        )
    if isinstance(less, list) and isinstance(more, list):
        shown = less[:-1] if less and _is_mark(less[-1]) else less
        return len(more) >= len(shown) and all(map(shows_no_more, shown, more))
    if isinstance(less, dict) and isinstance(more, dict):
        return all(
            _is_mark(key) or (key in more and shows_no_more(value, more[key])) for key, value in less.items()
        )
    return type(less) is type(more) and less == more


def _is_mark(value: Json) -> bool:
    return isinstance(value, str) and bool(_MARK.match(value))


_WORDS = "lorem ipsum dolor sit amet, consectetur adipiscing elit; "


def _rows(count: int) -> list[Json]:
    return [
        {"id": number, "name": f"row {number}", "tags": ["a", "b"], "body": _WORDS * 4}
        for number in range(count)
    ]


def _nested(levels: int) -> Json:
    value: Json = "bottom"
    for _ in range(levels):
        value = {"inner": [value]}
    return value


_KINDS: dict[str, Callable[[], Json]] = {
    "rows": lambda: _rows(24_000),
    "one text": lambda: _WORDS * 200_000,
    "chinese": lambda: "世界" * 2_000_000,
    "keys": lambda: {f"key {number}": number for number in range(100_000)},
    "long keys": lambda: {"k" * 100_000 + str(number): number for number in range(50)},
    "nesting": lambda: _nested(10_000),
    "two texts": lambda: [_WORDS * 50_000, _WORDS * 10],
}


@lru_cache(maxsize=1)
def _huge(kind: str) -> Json:
    """Made when asked for, and not kept: millions of objects would slow every later test down."""
    return _KINDS[kind]()


def test_small_answer_and_integers_that_parsers_take_are_left_alone() -> None:
    small = answer(
        {"total": 2, "items": [10**4_300 - 1, "é"]}, stdout="done\n", calls=(call(1),), notices=("late",)
    )
    assert truncate(small, 6_000) == small


@pytest.mark.parametrize("max_tokens", [200, 6_000])
@pytest.mark.parametrize("kind", _KINDS)
def test_huge_result_fits_and_says_what_is_missing(kind: str, max_tokens: int) -> None:
    truncated = truncate(answer(_huge(kind)), max_tokens)
    text = compact(truncated)
    assert count_tokens(text) <= max_tokens
    assert json.loads(text) == truncated
    (notice,) = truncated["notices"]
    assert notice.startswith(f"Cut to fit {max_tokens} tokens and JSON: result. ")


def test_rows_are_kept_whole_from_the_head_and_counted() -> None:
    rows = _rows(5_000)
    truncated = truncate(answer({"items": rows, "total": 5_000}), 6_000)
    shown = truncated["result"]["items"]
    kept = len(shown) - 1
    assert shown[:kept] == rows[:kept]
    assert shown[-1] == f"… {5_000 - kept:,} more items left out"
    assert truncated["result"]["total"] == 5_000


def test_stdout_gets_a_share_beside_a_large_result() -> None:
    for result in (_huge("rows"), _huge("one text")):
        truncated = truncate(answer(result, stdout="line of a log\n" * 10_000), 6_000)
        assert len(compact(truncated["result"])) > 8_000
        assert len(truncated["stdout"]) > 1_000
        assert "result, stdout." in truncated["notices"][0]


def test_ledger_keeps_what_did_not_end_well() -> None:
    calls = tuple(call(seq, state="failed" if seq in (7, 950) else "done") for seq in range(1_000))
    error = {"code": "script_error", "message": "no such issue", "line": 3, "hint": "list them first"}
    truncated = truncate(answer(_huge("rows"), calls=calls, error=error), 2_000)
    assert truncated["error"] == error
    assert [row["seq"] for row in truncated["calls"] if row["state"] == "failed"] == [7, 950]
    assert [row["count"] for row in truncated["calls"] if "count" in row] == [998]
    assert "result, calls." in truncated["notices"][0]


@pytest.mark.parametrize(
    "result",
    [10**5_000, "lone \ud800", {"\udfff": 1}, _nested(100)],
    ids=["integer", "surrogate", "surrogate in a key", "nesting"],
)
def test_what_json_cannot_carry_is_replaced_and_told(result: Json) -> None:
    truncated = truncate(answer(result), 6_000)
    assert json.loads(compact(truncated).encode()) == truncated
    assert len(truncated["notices"]) == 1


_KEYS = st.text(max_size=12)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(_KEYS, inner, max_size=30),
    max_leaves=120,
)
_REPEATED = st.builds(lambda value, times: [value] * times, _VALUES, st.integers(0, 300))
_TEXTS = st.builds(lambda text, times: text * times, st.text(min_size=1, max_size=30), st.integers(0, 500))
_ERRORS = st.none() | st.fixed_dictionaries(
    {"code": st.sampled_from(["wall_limit", 8 * "code_"]), "message": _TEXTS, "line": st.integers(1, 999)}
)
_CALLS = st.lists(
    st.builds(
        call, st.integers(0, 9_999), st.sampled_from(["a.b", "c.d"]), st.sampled_from(["done", "failed"])
    ),
    max_size=120,
).map(tuple)
_ANSWERS = st.builds(
    answer,
    _VALUES | _REPEATED | _TEXTS,
    stdout=_TEXTS,
    error=_ERRORS,
    calls=_CALLS,
    notices=st.lists(_TEXTS, max_size=5).map(tuple),
)


@given(_ANSWERS, st.integers(200, 1_000))
def test_any_answer_fits_is_json_and_tells_its_cuts(given_answer: dict[str, Json], max_tokens: int) -> None:
    truncated = truncate(given_answer, max_tokens)
    text = compact(truncated)
    assert count_tokens(text) <= max_tokens
    assert json.loads(text.encode()) == truncated
    assert truncated.keys() == given_answer.keys()
    for key in ("status", "run_id", "session"):
        assert truncated[key] == given_answer[key]
    if given_answer["error"]:
        assert truncated["error"]["code"] == given_answer["error"]["code"]
    assert any(notice.startswith("Cut to fit") for notice in truncated["notices"]) == (
        truncated != given_answer
    )
    assert shows_no_more(truncated["result"], given_answer["result"])
    assert truncate(given_answer, max_tokens) == truncated
