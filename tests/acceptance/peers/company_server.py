"""An MCP server of a company, which writes each call into a file before it answers: `NAME LOG DELAY` are its arguments.

While the file `LOG.hold` is there, calls that may not be repeated are not answered. An answer takes about DELAY
seconds.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from line_server import serve, writing

CHARGES = [
    {"charge": "ch_81f3", "amount": 1290.0, "currency": "EUR", "on": "2026-11-02"},
    {"charge": "ch_81f9", "amount": 1290.0, "currency": "EUR", "on": "2026-11-03"},
]
TICKETS = [
    {"id": 7700, "customer": "cus_4410", "subject": "Charged twice in November", "currency": "EUR"},
    {"id": 7702, "customer": "cus_0931", "subject": "Invoice has the wrong address", "currency": "EUR"},
    {"id": 7705, "customer": "cus_2240", "subject": "Cannot download the invoice", "currency": "USD"},
]
PULLS = [
    {"number": n, "title": title, "approvals": 2} for n, title in ((4102, "Round half up"), (4107, "Sort"))
]

ACCOUNTS = [{"customer": f"cus_{4410 + n}", "mrr": 430 + n, "churn_risk": 0.31} for n in range(120)]


class Tool(NamedTuple):
    does: Callable[..., Any]
    reads: bool = True


def fail(text: str) -> str:
    raise ValueError(text)


TOOLS: Mapping[str, Mapping[str, Tool]] = {
    "tickets": {
        "list_tickets": Tool(lambda queue, state: TICKETS),
        "get_ticket": Tool(
            lambda id: next((t for t in TICKETS if t["id"] == id), None) or fail("no such ticket")
        ),
        "reply": Tool(lambda id, body, close: {"id": id, "closed": close}, reads=False),
    },
    "billing": {
        "list_charges": Tool(lambda customer, month: CHARGES),
        "refund": Tool(lambda charge, amount, reason: {"refund": "re_0c1", "amount": amount}, reads=False),
    },
    "warehouse": {"query": Tool(lambda sql: ACCOUNTS)},
    "github": {
        "list_pull_requests": Tool(lambda repo: PULLS),
        "merge_pull_request": Tool(lambda repo, number, method: {"merged": number}, reads=False),
    },
    "notes": {
        "echo": Tool(lambda text: text),
        "fail": Tool(fail),
        "keep": Tool(lambda text: text, reads=False),
    },
}
TYPES = {"id": "integer", "number": "integer", "amount": "number", "close": "boolean"}
"""Of arguments. The others are texts."""

NAME, LOG, DELAY = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
HOLD = LOG.with_suffix(".hold")


def arguments_of(tool: Tool) -> tuple[str, ...]:
    return tool.does.__code__.co_varnames[: tool.does.__code__.co_argcount]


def listed(name: str, tool: Tool) -> Any:
    names = arguments_of(tool)
    schema = {"type": "object", "properties": {each: {"type": TYPES.get(each, "string")} for each in names}}
    hints = {"readOnlyHint": tool.reads, "destructiveHint": False}
    return {"name": name, "inputSchema": {**schema, "required": [*names]}, "annotations": hints}


def called(name: str, arguments: Any) -> Any:
    tool = TOOLS[NAME][name]
    with writing, LOG.open("a") as log:
        log.write(json.dumps([f"{NAME}.{name}", arguments]) + "\n")
    time.sleep(DELAY * (1 + len(json.dumps(arguments)) % 7 / 3))
    while HOLD.exists() and not tool.reads:
        time.sleep(0.05)
    try:
        value = tool.does(**arguments)
    except ValueError as error:
        return {"content": [{"type": "text", "text": str(error)}], "isError": True}
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


serve(NAME, [listed(name, tool) for name, tool in TOOLS[NAME].items()], called)
