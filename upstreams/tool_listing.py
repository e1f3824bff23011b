"""Reads an upstream's tools/list, page by page, keeping every tool that can be called at all."""

from collections.abc import Awaitable, Callable
from typing import Final

from pydantic_core import to_json

from manifests.json_value import Json
from upstreams.diagnostics import Diagnostics
from upstreams.errors import UpstreamAnswerError, UpstreamRefusedError
from upstreams.recorded_tool import RecordedTool
from upstreams.wire_text import MAX_MESSAGE_BYTES

MAX_TOOLS: Final = 10_000
MAX_PAGES: Final = 1_000
MAX_LISTING_BYTES: Final = MAX_MESSAGE_BYTES
"""What one upstream may list. Beyond any of the three the rest is left out and noted."""

MAX_NAME_LENGTH: Final = 200
MAX_EXAMPLES: Final = 5

PageReader = Callable[[str | None], Awaitable[dict[str, Json]]]
"""Asks for the page at a cursor; None is the first. Answers the raw result."""


async def read_listing(read_page: PageReader, diagnostics: Diagnostics) -> tuple[RecordedTool, ...]:
    """All usable tools of an upstream; what is malformed, cut or left out is in `diagnostics`.

    Raises:
        UpstreamError: The first page could not be had. A later one that fails ends the listing instead.
    """
    listing = Listing(diagnostics)
    cursor: str | None = None
    while True:
        try:
            page = await read_page(cursor)
        except (UpstreamRefusedError, UpstreamAnswerError) as error:
            if cursor is None:
                raise
            diagnostics.note(f"tools/list ended early, a later page failed: {error}")
            break
        cursor = listing.add_page(page)
        if cursor is None:
            break
    return listing.tools


class Listing:
    """The tools gathered so far and the room that is left."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._tools: dict[str, RecordedTool] = {}
        self._cursors: set[str] = set()
        self._bytes = 0

    @property
    def tools(self) -> tuple[RecordedTool, ...]:
        return tuple(self._tools.values())

    def add_page(self, page: dict[str, Json]) -> str | None:
        """Take a page in; the cursor of the next one, None at the end."""
        self._bytes += len(to_json(page, inf_nan_mode="constants"))
        tools = page.get("tools")
        if not isinstance(tools, list):
            self._diagnostics.note("tools/list: `tools` is no list")
            tools = []
        for raw in tools:
            if len(self._tools) >= MAX_TOOLS:
                self._diagnostics.note(f"tools/list: only the first {MAX_TOOLS} tools are used")
                return None
            self._add(raw)
        return self._next_cursor(page.get("nextCursor"))

    def _next_cursor(self, cursor: Json) -> str | None:
        if cursor is None or cursor == "":
            return None
        if not isinstance(cursor, str) or cursor in self._cursors:
            self._diagnostics.note("tools/list: pagination does not end (a cursor came twice or is no text)")
            return None
        self._cursors.add(cursor)
        if len(self._cursors) >= MAX_PAGES or self._bytes > MAX_LISTING_BYTES:
            self._diagnostics.note(
                f"tools/list: cut after {len(self._cursors)} pages and {self._bytes} bytes"
            )
            return None
        return cursor

    def _add(self, raw: Json) -> None:
        tool = self._read(raw)
        if tool is None:
            return
        if tool.name in self._tools:
            self._diagnostics.note(f"tool {tool.name!r} is listed twice; the first one is used")
            return
        self._tools[tool.name] = tool

    def _read(self, raw: Json) -> RecordedTool | None:
        if not isinstance(raw, dict):
            self._diagnostics.note(f"a tool was left out: it is {_kind(raw)} instead of an object")
            return None
        name = raw.get("name")
        if not isinstance(name, str) or not name:
            self._diagnostics.note("a tool was left out: it has no name")
            return None
        if len(name) > MAX_NAME_LENGTH:
            self._diagnostics.note(f"a tool was left out: its name has {len(name)} characters: {name!r}")
            return None
        return RecordedTool(
            name=name,
            description=self._text(name, raw, "description") or "",
            input_schema=self._input_schema(name, raw),
            output_schema=self._object(name, raw, "outputSchema"),
            annotations=self._annotations(name, raw),
            title=self._text(name, raw, "title"),
            examples=_examples(raw),
        )

    def _input_schema(self, name: str, raw: dict[str, Json]) -> dict[str, Json]:
        schema = raw.get("inputSchema")
        if not isinstance(schema, dict):
            self._diagnostics.note(
                f"tool {name!r}: inputSchema is {_kind(schema)}; any arguments are accepted"
            )
            return {"type": "object"}
        if schema.get("type") != "object":
            self._diagnostics.note(f"tool {name!r}: inputSchema does not say type: object")
        return schema

    def _annotations(self, name: str, raw: dict[str, Json]) -> dict[str, Json]:
        """One that says something which nobody can read may have said that it destroys."""
        value = raw.get("annotations")
        if not value or isinstance(
            value, dict
        ):  # an empty list is what some languages make of an empty object
            return self._object(name, raw, "annotations") or {}
        self._diagnostics.note(f"tool {name!r}: annotations is {_kind(value)}; it is taken for destructive")
        return {"destructiveHint": value}

    def _text(self, name: str, raw: dict[str, Json], key: str) -> str | None:
        return value if isinstance(value := self._ignored_unless(name, raw, key, str), str) else None

    def _object(self, name: str, raw: dict[str, Json], key: str) -> dict[str, Json] | None:
        return value if isinstance(value := self._ignored_unless(name, raw, key, dict), dict) else None

    def _ignored_unless(self, name: str, raw: dict[str, Json], key: str, kind: type) -> Json:
        value = raw.get(key)
        if value is not None and not isinstance(value, kind):
            self._diagnostics.note(f"tool {name!r}: {key} is {_kind(value)} and is ignored")
        return value


def _examples(raw: dict[str, Json]) -> tuple[Json, ...]:
    """What some servers send beside the specification, by the names that clients know."""
    found = raw.get("inputExamples", raw.get("input_examples"))
    return tuple(found[:MAX_EXAMPLES]) if isinstance(found, list) else ()


def _kind(value: Json) -> str:
    if value is None:
        return "missing"
    return {str: "text", bool: "a boolean", int: "a number", float: "a number", list: "a list"}.get(
        type(value), "an object"
    )
