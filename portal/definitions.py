"""What a model reads before its first call, two tool definitions and the server's instructions, and what it sends.

Rule 1: name, description and inputSchema of both tools, as compact JSON, stay under 500 tokens of o200k_base, the
instructions under 100 more, whatever stands behind the portal (tests/portal/test_definitions.py).
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from mcp_types import Tool, ToolAnnotations

from manifests.json_value import Json
from manifests.portal_manifest import Capabilities
from portal.authority import reach

DOCS_SEARCH = "docs_search"
EXECUTE_CODE = "execute_code"

MAX_SEARCH_LIMIT = 50
"""The most functions one docs_search answers; a larger `limit` is an error that says so."""

MAX_TOLD_MODULES = 10
"""Modules of baked packages told by name; more are counted."""

_COMMON_MODULES = ("yaml", "jinja2", "dateutil", "tabulate", "jmespath", "more_itertools")

INSTRUCTIONS = (
    "Many tools stand behind this server as typed Python functions. For each step of a task, find functions with "
    "docs_search, then call them from one execute_code script, which loops, filters and joins their results and "
    "returns only what matters."
)

_DOCS_SEARCH_DESCRIPTION = """\
Find Python functions to call in execute_code. Search once per step of the task, in a few words: "create issue". \
Answers signatures; detail "full" adds types and docs. A function's exact name answers it in full; an empty query \
lists the namespaces."""

_EXECUTE_CODE_DESCRIPTION = """\
Run a Python 3.14 script in a sandbox: standard library, {packages}; {reach}. \
Functions from docs_search are there without import; call them with keyword arguments and await:

issues = await tickets.list_issues(state="open")
a, b = await asyncio.gather(crm.get(id=1), crm.get(id=2))  # independent calls: in parallel
[i["title"] for i in issues if "login" in i["title"]]

Only the last expression (or a top-level `return`), as JSON, and prints come back: return just what matters. \
`portal.emit(block)` shows an image. A failed call raises ToolError. `calls` in the answer says what each call did: \
read it before running anything again."""


def tool_definitions(capabilities: Capabilities, modules: Sequence[str] = ()) -> list[Tool]:
    """The two tools, as `tools/list` answers them to clients whose scripts may do that; `modules` are what scripts can
    import from baked packages.

    Source: MCP 2026-07-28, server/tools#listing-tools.
    """
    return [
        Tool(
            name=DOCS_SEARCH,
            title="Search functions",
            description=_DOCS_SEARCH_DESCRIPTION,
            input_schema={
                "type": "object",
                "properties": {
                    "query": {"type": "string", "default": ""},
                    "detail": {"enum": ["brief", "full"], "default": "brief"},
                    "upstream": {"type": "string", "description": "only this upstream"},
                    "limit": {"type": "integer", "minimum": 1, "maximum": MAX_SEARCH_LIMIT, "default": 5},
                },
            },
            annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
        ),
        Tool(
            name=EXECUTE_CODE,
            title="Run a script",
            description=_execute_code_description(capabilities, modules),
            input_schema={
                "type": "object",
                "properties": {
                    "code": {"type": "string"},
                    "session": {
                        "type": "string",
                        "description": '"new" keeps variables: pass the `session` of its answer next time',
                    },
                    "timeout_seconds": {"type": "number", "exclusiveMinimum": 0},
                },
                "required": ["code"],
            },
            annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True),
        ),
    ]


def _execute_code_description(capabilities: Capabilities, modules: Sequence[str]) -> str:
    described = _EXECUTE_CODE_DESCRIPTION.replace("{packages}", _packages(modules))
    return described.replace("{reach}", reach(capabilities))


def _packages(modules: Sequence[str]) -> str:
    more = f" and {len(modules) - MAX_TOLD_MODULES} more" if len(modules) > MAX_TOLD_MODULES else ""
    return ", ".join([*_COMMON_MODULES, *modules[:MAX_TOLD_MODULES]]) + more


@dataclass(frozen=True)
class DocsSearchRequest:
    """The arguments of one call, already of the right types."""

    query: str = ""
    detail: Literal["brief", "full"] = "brief"
    upstream: str | None = None
    limit: int = 5


@dataclass(frozen=True)
class ExecuteCode:
    """The arguments of one call, already of the right types."""

    code: str
    session: str | None = None
    timeout_seconds: float | None = None


Reader: TypeAlias = Callable[[Json], Json]
"""Returns the value it was given, perhaps mended, or raises ValueError saying what is allowed."""


class RequestError(Exception):
    """A client's arguments do not fit the tool's inputSchema; nothing was done."""

    code = "invalid_arguments"


def docs_search_request(arguments: dict[str, Json]) -> DocsSearchRequest:
    """Raises RequestError naming every argument that does not fit."""
    return DocsSearchRequest(**_read(DOCS_SEARCH, _DOCS_SEARCH, arguments))


def execute_code_request(arguments: dict[str, Json]) -> ExecuteCode:
    """Raises RequestError naming every argument that does not fit."""
    given = _read(EXECUTE_CODE, _EXECUTE_CODE, arguments)
    if "code" not in given:
        raise RequestError("execute_code needs `code`: the Python script to run, as a string")
    return ExecuteCode(**given)


def _read(tool: str, readers: dict[str, Reader], arguments: dict[str, Json]) -> dict[str, Json]:
    """The arguments that were given; null, and an empty name, count as left out, as models write them."""
    read: dict[str, Json] = {}
    faults = []
    for name, value in arguments.items():
        if name not in readers:
            faults.append(f"there is no argument {name[:60]!r}; there are {', '.join(readers)}")
        elif value is not None and not (value == "" and name in _NAMES):
            try:
                read[name] = readers[name](value)
            except ValueError as error:
                faults.append(f"`{name}` {error}, not {_shown(value)}")
    if faults:
        raise RequestError(f"{tool}: " + "; ".join(faults))
    return read


def _shown(value: Json) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python writes
        text = "that"
    return text if len(text) <= 60 else text[:57] + "..."


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise ValueError("is a string")
    return value


def _detail(value: Json) -> str:
    if value not in ("brief", "full"):
        raise ValueError('is "brief" or "full"')
    return str(value)


def _limit(value: Json) -> int:
    number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
    if not isinstance(number, bool) and number in range(1, MAX_SEARCH_LIMIT + 1):
        return int(number)
    raise ValueError(f"is a whole number from 1 to {MAX_SEARCH_LIMIT}")


def _seconds(value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= sys.float_info.max:
        raise ValueError("is a number of seconds above 0")
    return float(value)


_DOCS_SEARCH: Final[dict[str, Reader]] = {
    "query": _text,
    "detail": _detail,
    "upstream": _text,
    "limit": _limit,
}
_NAMES: Final = frozenset({"upstream", "session"})
_EXECUTE_CODE: Final[dict[str, Reader]] = {"code": _text, "session": _text, "timeout_seconds": _seconds}
