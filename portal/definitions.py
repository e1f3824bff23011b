"""The definitions of the two tools, the server's instructions, and the parsing of arguments.

Rule 1: name, description and inputSchema of both tools, as compact JSON, stay under 500 tokens of o200k_base, the
instructions under 100 more, whatever upstreams there are (tests/portal/test_definitions.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final, Literal, TypeVar

from mcp_types import Tool, ToolAnnotations
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from manifests.json_value import Json
from manifests.portal_manifest import Capabilities
from portal.authority import describe_capabilities

DOCS_SEARCH = "docs_search"
EXECUTE_CODE = "execute_code"

MAX_SEARCH_LIMIT = 50
"""Functions in one answer of docs_search; a larger `limit` is an error."""

MAX_NAMED_MODULES = 10
"""Modules of baked packages that are listed; more are counted."""

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
Run a Python 3.14 script in a sandbox: standard library, {packages}; {capabilities}. \
Functions from docs_search are there without import; call them with keyword arguments and await:

issues = await tickets.list_issues(state="open")
a, b = await asyncio.gather(crm.get(id=1), crm.get(id=2))  # independent calls: in parallel
[i["title"] for i in issues if "login" in i["title"]]

Only the last expression (or a top-level `return`), as JSON, and prints come back: return just what matters. \
`portal.emit(block)` shows an image. A failed call raises ToolError. `calls` in the answer says what each call did: \
read it before running anything again."""


INPUT_SCHEMAS: Final[dict[str, dict[str, Json]]] = {
    DOCS_SEARCH: {
        "type": "object",
        "properties": {
            "query": {"type": "string", "default": ""},
            "detail": {"enum": ["brief", "full"], "default": "brief"},
            "upstream": {"type": "string", "description": "only this upstream"},
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_SEARCH_LIMIT, "default": 5},
        },
    },
    EXECUTE_CODE: {
        "type": "object",
        "properties": {
            "code": {"type": "string"},
            "session": {
                "type": "string",
                "description": '"new" keeps variables: pass the `session` of its answer next time',
            },
            "timeout_seconds": {"type": "number", "exclusiveMinimum": 0},
            "background": {"type": "boolean", "description": "answer at once, with a `run_id`"},
            "run": {"type": "string", "description": "instead of code: the answer of this `run_id`"},
        },
    },
}


def tool_definitions(capabilities: Capabilities, modules: Sequence[str] = ()) -> list[Tool]:
    """The two tools for `tools/list`, for these capabilities; `modules` are the import names of baked packages.

    Source: MCP 2026-07-28, server/tools#listing-tools.
    """
    more = f" and {len(modules) - MAX_NAMED_MODULES} more" if len(modules) > MAX_NAMED_MODULES else ""
    packages = ", ".join([*_COMMON_MODULES, *modules[:MAX_NAMED_MODULES]]) + more
    described = _EXECUTE_CODE_DESCRIPTION.replace("{packages}", packages)
    return [
        Tool(
            name=DOCS_SEARCH,
            title="Search functions",
            description=_DOCS_SEARCH_DESCRIPTION,
            input_schema=INPUT_SCHEMAS[DOCS_SEARCH],
            annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
        ),
        Tool(
            name=EXECUTE_CODE,
            title="Run a script",
            description=described.replace("{capabilities}", describe_capabilities(capabilities)),
            input_schema=INPUT_SCHEMAS[EXECUTE_CODE],
            annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True),
        ),
    ]


_STRICT: Final = ConfigDict(extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True)
class DocsSearchRequest:
    """The arguments of one docs_search call."""

    __pydantic_config__ = _STRICT
    query: str = ""
    detail: Literal["brief", "full"] = "brief"
    upstream: str | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_SEARCH_LIMIT)] = 5


@dataclass(frozen=True)
class ExecuteCode:
    """The arguments of one execute_code call. Either `code` or `run` is given; "" counts as missing."""

    __pydantic_config__ = _STRICT
    code: str = ""
    session: str | None = None
    timeout_seconds: Annotated[float, Field(gt=0)] | None = None
    background: bool = False
    run: str | None = None


Request = TypeVar("Request", DocsSearchRequest, ExecuteCode)


class RequestError(Exception):
    """A client's arguments do not match the tool's inputSchema; nothing was done."""

    code = "invalid_arguments"
    hint = "Nothing was done. Change the arguments."


def docs_search_request(arguments: dict[str, Json]) -> DocsSearchRequest:
    """Parse the arguments. Raises RequestError: it names every invalid one."""
    return _parse(DOCS_SEARCH, DocsSearchRequest, arguments)


def execute_code_request(arguments: dict[str, Json]) -> ExecuteCode:
    """Parse the arguments. Raises RequestError: it names every invalid one."""
    request = _parse(EXECUTE_CODE, ExecuteCode, arguments)
    if request.run is None and "code" not in arguments:
        raise RequestError(f"{EXECUTE_CODE}: `code`: Field required")
    if request.run is not None and (request.code or request.session or request.background):
        raise RequestError(
            f"{EXECUTE_CODE}: `run` asks for an earlier run, so nothing else can be given beside it"
        )
    if request.background and request.session is not None:
        raise RequestError(f"{EXECUTE_CODE}: a run in the background has no session")
    return request


def _parse(tool: str, kind: type[Request], arguments: dict[str, Json]) -> Request:
    """Parse the arguments. Null, and an empty upstream or session, count as missing, because models write them so."""
    given = {
        name: value
        for name, value in arguments.items()
        if value is not None and not (value == "" and name in ("upstream", "session", "run"))
    }
    try:
        request: Request = _ADAPTERS[kind].validate_python(given)
    except ValidationError as error:
        known = ", ".join(each.name for each in fields(kind))
        faults = [
            f"there is no argument {str(each['loc'][0])[:60]!r}; arguments are {known}"
            if each["type"] == "unexpected_keyword_argument"
            else f"`{each['loc'][0]}`: {each['msg']}"
            for each in error.errors(include_url=False, include_input=False)
        ]
        raise RequestError(f"{tool}: {'; '.join(faults)}") from None
    return request


_ADAPTERS: Final[dict[type, TypeAdapter[Any]]] = {
    kind: TypeAdapter(kind) for kind in (DocsSearchRequest, ExecuteCode)
}
