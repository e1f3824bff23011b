"""An MCP server whose tools answer at once, never, or only together: `waiting_server.py [TOOL ...]` lists these."""

import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from line_server import serve

arrivals: Counter[str] = Counter()
news = threading.Condition()


def meet(table: str, guests: int) -> int:
    """Answer once this many calls wait at the same table: never, unless they run in parallel."""
    with news:
        arrivals[table] += 1
        news.notify_all()
        news.wait_for(lambda: arrivals[table] >= guests)
        return arrivals[table]


def fail(text: str) -> str:
    raise ValueError(text)


def never() -> str:
    threading.Event().wait()
    return "never"


ACTS: dict[str, Callable[..., Any]] = {
    "note": lambda text: text,
    "fail": fail,
    "meet": meet,
    "double": lambda number: 2 * number,
    "wait_forever": never,
    "git_log": lambda **arguments: arguments,
    "hangs": lambda **_: never(),
    "long": lambda **_: "x" * 6000,
}
KINDS = {"note": "string", "fail": "string", "meet": "integer", "double": "integer", "wait_forever": "string"}
"""The type of the result where it is declared."""
ARGUMENTS = {"text": "string", "number": "integer", "table": "string", "guests": "integer"}
NAMES = sys.argv[1:] or [*KINDS]


def listed(name: str) -> Any:
    if name not in KINDS:
        return {"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    wanted = ACTS[name].__code__.co_varnames[: ACTS[name].__code__.co_argcount]
    schema = {"type": "object", "properties": {each: {"type": ARGUMENTS[each]} for each in wanted}}
    result = {"type": "object", "properties": {"result": {"type": KINDS[name]}}, "required": ["result"]}
    return {"name": name, "inputSchema": {**schema, "required": wanted}, "outputSchema": result}


def called(name: str, arguments: Any) -> Any:
    try:
        value = ACTS[name](**arguments)
    except ValueError as error:
        return {"content": [{"type": "text", "text": str(error)}], "isError": True}
    if name == "long":
        return {"content": [{"type": "text", "text": value}]}
    return {"content": [], "structuredContent": value if name == "git_log" else {"result": value}}


serve("waiting", [listed(name) for name in NAMES], called)
