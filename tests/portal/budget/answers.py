"""Answers of `execute_code`, and what it means to show less of a value."""

import re

from manifests.json_value import Json

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
