"""The definitions of the two tools, and the server's instructions.

Rule 1: name, description and inputSchema of both tools, as compact JSON, take at most 400 tokens of o200k_base, the
instructions 50 more, whatever the upstreams; a second kernel 30 more, baked packages 50
(tests/portal/server/test_definitions.py).
"""

from collections.abc import Sequence
from typing import Final

from mcp_types import Tool, ToolAnnotations

from manifests.json_value import Json
from manifests.kernels import JAVASCRIPT, PYTHON, KernelName
from manifests.portal_manifest import Capabilities
from portal.base.plain_text import some
from portal.base.requests import DOCS_SEARCH, EXECUTE_CODE
from portal.catalog.authority import describe_capabilities

DEFAULT_MAX_TOKENS = 2_000
"""Tokens of a value that is shown whole, unless a call says otherwise."""

MAX_NAMED_MODULES = 6
"""Modules of baked packages that are listed; more are counted."""

INSTRUCTIONS = (
    "Many tools stand behind this server as Python functions. For each step of a task, find functions with "
    "docs_search, then call them from one execute_code script that loops, filters and joins, and returns only what "
    "matters."
)


def instructions(kernels: Sequence[KernelName]) -> str:
    """The server's instructions, for scripts in the languages of these kernels."""
    return INSTRUCTIONS.replace("Python", "Python and TypeScript") if JAVASCRIPT in kernels else INSTRUCTIONS


_DOCS_SEARCH_DESCRIPTION = """\
Find functions for execute_code, for one step of a task: "create issue". An exact name answers types and docs, an \
empty query the namespaces."""

_EXECUTE_CODE_DESCRIPTION = """\
Run Python 3.14 (standard library, {packages}; {capabilities}). Functions from docs_search need no import: await \
them, with keywords. Results are plain data of the type after `->`: r["id"], never r.id, r.content or json.loads(r). \
Look at one `Any` first. Failed calls raise ToolError.

users = await asyncio.gather(*[crm.get(id=i) for i in (1, 2)])  # in parallel
[u["name"] for u in users if u["active"]]

Only the last expression (or top-level return) and prints reach you; the rest stays out of your context. \
`await portal.sleep(hours=6)`, `portal.approve("Merge?")` and `portal.event("name")` may wait for days; \
`portal.recall("k1")` is a value too long to show; `portal.emit(block)` shows an image. Read `calls` before you run \
anything again."""

_WITH_JAVASCRIPT: Final = {
    "{capabilities}).": "{capabilities}), or TypeScript (kernel javascript).",
    "never r.id": "in Python never r.id",
    """\
users = await asyncio.gather(*[crm.get(id=i) for i in (1, 2)])  # in parallel
[u["name"] for u in users if u["active"]]
""": """\
await asyncio.gather(*[crm.get(id=i) for i in (1, 2)])  # in parallel
await Promise.all([1, 2].map(id => crm.get({id})))
""",
}
"""What the description says instead, if scripts may be written in JavaScript."""


INPUT_SCHEMAS: Final[dict[str, dict[str, Json]]] = {
    DOCS_SEARCH: {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "detail": {"enum": ["brief", "full"]},
            "upstream": {"type": "string"},
            "limit": {"type": "integer", "default": 5},
        },
    },
    EXECUTE_CODE: {
        "type": "object",
        "properties": {
            "code": {"type": "string"},
            "session": {
                "type": "string",
                "description": '"new" keeps variables; then its answer\'s `session`',
            },
            "timeout_seconds": {"type": "number"},
            "background": {"type": "boolean"},
            "run": {"type": "string", "description": "instead of code"},
            "max_tokens": {"type": "integer", "default": DEFAULT_MAX_TOKENS},
        },
    },
}
"""The schemas that clients see. The parser enforces more: bounds, and which arguments exclude each other."""


_SHOWN_AT_ONCE: Final[dict[str, Json]] = {"anthropic/alwaysLoad": True}
"""Claude Code hides the tools of MCP servers behind a search of its own, unless they say this. Two tools that replace
hundreds need no search: it would cost a model a turn, and docs_search is one already.

Source: code.claude.com/docs/en/mcp, "Exempt a server from deferral".
"""


def tool_definitions(
    capabilities: Capabilities, modules: Sequence[str] = (), kernels: Sequence[KernelName] = (PYTHON,)
) -> list[Tool]:
    """The two tools for `tools/list`, for these capabilities; `modules` are the import names of baked packages.

    Source: MCP 2026-07-28, server/tools#listing-tools.
    """
    own = ["yaml", "jinja2", "dateutil", "tabulate"]
    packages = some([*own, *modules], len(own) + MAX_NAMED_MODULES)
    described, choice = _EXECUTE_CODE_DESCRIPTION, dict[str, Json]()
    if JAVASCRIPT in kernels:
        choice = {"kernel": {"enum": [*kernels]}}
        for text, instead in _WITH_JAVASCRIPT.items():
            described = described.replace(text, instead)
    described = described.replace("{packages}", packages)
    schemas = {
        name: {**schema, "properties": {**schema["properties"], **choice}}
        for name, schema in INPUT_SCHEMAS.items()
    }
    return [
        Tool(
            name=DOCS_SEARCH,
            title="Search functions",
            description=_DOCS_SEARCH_DESCRIPTION,
            input_schema=schemas[DOCS_SEARCH],
            annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
            _meta=_SHOWN_AT_ONCE,
        ),
        Tool(
            name=EXECUTE_CODE,
            title="Run a script",
            description=described.replace("{capabilities}", describe_capabilities(capabilities)),
            input_schema=schemas[EXECUTE_CODE],
            annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True),
            _meta=_SHOWN_AT_ONCE,
        ),
    ]
