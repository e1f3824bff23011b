"""What a model reads before its first call: two tool definitions and the server's instructions.

Rule 1: name, description and inputSchema of both tools, as compact JSON, stay under 500 tokens of o200k_base, the
instructions under 100 more, whatever stands behind the portal (tests/portal/test_definitions.py).
"""

from collections.abc import Sequence

from mcp_types import Tool, ToolAnnotations

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
