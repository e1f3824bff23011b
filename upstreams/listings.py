"""What an upstream lists: its tools, which are stored, and its resources and prompts; read leniently, page by page."""

import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

import anyio.to_thread
import structlog
from mcp_types import METHOD_NOT_FOUND, Prompt, Resource, ResourceTemplate
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from manifests.json_value import Json
from manifests.own_files import write_whole
from manifests.upstream_sections import HttpUpstream, StdioUpstream
from upstreams.errors import UpstreamAnswerError, UpstreamRefusedError, UpstreamTimeoutError
from upstreams.health import Diagnostics
from upstreams.redaction import Redaction
from upstreams.tools import RecordedTool

log = structlog.get_logger()

MAX_LISTED: Final = 10_000
MAX_PAGES: Final = 1_000
MAX_LISTING_BYTES: Final = 64 * 1024 * 1024
"""What one upstream may list, tools or anything else. Beyond any of the three the rest is left out."""

MAX_NAME_LENGTH: Final = 200
MAX_EXAMPLES: Final = 5

_KINDS: Final = {
    "description": str,
    "title": str,
    "inputSchema": dict,
    "outputSchema": dict,
    "annotations": dict,
}
_FORMAT: Final = 1

PageReader = Callable[[str | None], Awaitable[dict[str, Json]]]
"""Asks for the page at a cursor; None is the first. Answers the raw result."""


async def pages(read_page: PageReader, note: Callable[[str], None]) -> AsyncIterator[dict[str, Json]]:
    """The pages of a listing; `note` hears why it ended before its end.

    Raises:
        UpstreamError: The first page could not be had. A later one that fails ends the listing instead.
    """
    cursor: str | None = None
    seen: set[str] = set()
    bytes_read = 0
    while True:
        try:
            page = await read_page(cursor)
        except (UpstreamRefusedError, UpstreamAnswerError, UpstreamTimeoutError) as error:
            if cursor is None:
                raise
            note(f"ended early, a later page failed: {error}")
            return
        yield page
        cursor = page.get("nextCursor") or None
        if cursor is None:
            return
        bytes_read += len(to_json(page, inf_nan_mode="constants"))
        is_endless = not isinstance(cursor, str) or cursor in seen or len(seen) + 1 >= MAX_PAGES
        if is_endless or bytes_read > MAX_LISTING_BYTES:
            note(f"cut after {len(seen) + 1} pages and {bytes_read} bytes: pagination does not end")
            return
        seen.add(cursor)


async def read_listing(read_page: PageReader, diagnostics: Diagnostics) -> tuple[RecordedTool, ...]:
    """All usable tools of an upstream; `diagnostics` says what is malformed or left out. Raises as `pages` does."""
    listing = Listing(diagnostics)

    def note(text: str) -> None:
        diagnostics.note(f"tools/list: {text}")

    async for page in pages(read_page, note):
        if not listing.add_page(page):
            break
    return listing.tools


class Listing:
    """The tools gathered so far, by their names."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._note = diagnostics.note
        self._tools: dict[str, RecordedTool] = {}

    @property
    def tools(self) -> tuple[RecordedTool, ...]:
        return tuple(self._tools.values())

    def add_page(self, page: dict[str, Json]) -> bool:
        """Take a page in; whether there is room for another."""
        tools = page.get("tools")
        if not isinstance(tools, list):
            self._note("tools/list: `tools` is no list")
            tools = []
        for raw in tools:
            if len(self._tools) >= MAX_LISTED:
                self._note(f"tools/list: only the first {MAX_LISTED} tools are used")
                return False
            tool = self._read(raw)
            if tool is not None and self._tools.setdefault(tool.name, tool) is not tool:
                self._note(f"tool {tool.name!r} is listed twice; the first one is used")
        return True

    def _read(self, raw: Json) -> RecordedTool | None:
        name = raw.get("name") if isinstance(raw, dict) else None
        if not isinstance(raw, dict) or not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH:
            told = f"{name!r:.100}" if isinstance(raw, dict) else "it is no object"
            self._note(
                f"a tool was left out: its name is no text of 1 to {MAX_NAME_LENGTH} characters: {told}"
            )
            return None
        odd = [
            key for key, kind in _KINDS.items() if raw.get(key) is not None and not isinstance(raw[key], kind)
        ]
        if odd:
            self._note(f"tool {name!r}: not of the type that MCP says: {', '.join(odd)}")
        known = {key: value for key, value in raw.items() if key not in odd}
        annotations = known.get("annotations") or {}
        if "annotations" in odd and raw["annotations"]:
            # It may have said that it destroys. An empty list is what some languages make of an empty object.
            annotations = {"destructiveHint": raw["annotations"]}
        schema = known.get("inputSchema")
        # Some servers send them beside the specification, by the names that clients know.
        examples = raw.get("inputExamples", raw.get("input_examples"))
        if schema is None:
            self._note(f"tool {name!r}: without an inputSchema any arguments are accepted")
        return RecordedTool(
            name=name,
            description=known.get("description") or "",
            input_schema={"type": "object"} if schema is None else schema,
            output_schema=known.get("outputSchema"),
            annotations=annotations,
            title=known.get("title"),
            examples=tuple(examples[:MAX_EXAMPLES]) if isinstance(examples, list) else (),
        )


@dataclass(frozen=True)
class Offer:
    """What the portal knows of an upstream without asking it."""

    tools: tuple[RecordedTool, ...]
    server: str
    instructions: str | None


class ListingStore:
    """What a lazy upstream offered when it was last listed, kept on disk (mode 0600) from one portal to the next.

    With another section in the manifest it is another one: `written` is that section with references as such; without
    it the command or URL count. A file that cannot be read counts as none.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        spec: StdioUpstream | HttpUpstream,
        working_folder: Path,
        written: Json = None,
    ) -> None:
        identity = [spec.url] if isinstance(spec, HttpUpstream) else [spec.command, list(spec.args), spec.cwd]
        text = json.dumps([name, str(working_folder.resolve()), written or identity], sort_keys=True)
        fingerprint = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        self._name = name
        self.file = folder / f"{fingerprint}.json"

    async def load(self) -> Offer | None:
        return await anyio.to_thread.run_sync(self._load)

    async def save(self, offer: Offer) -> None:
        await anyio.to_thread.run_sync(self._save, offer)

    def _load(self) -> Offer | None:
        try:
            with self.file.open("rb") as file:
                kept = json.loads(file.read(2 * MAX_LISTING_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(kept, dict) or kept.get("format") != _FORMAT:
            return None
        # Read as an upstream's own listing is, for it says what one said.
        listing = Listing(Diagnostics(Redaction(())))
        listing.add_page(kept)
        server, instructions = kept.get("server"), kept.get("instructions")
        return Offer(
            listing.tools,
            server if isinstance(server, str) else "",
            instructions if isinstance(instructions, str) else None,
        )

    def _save(self, offer: Offer) -> None:
        kept: dict[str, Json] = {
            "format": _FORMAT,
            "upstream": self._name,
            "server": offer.server,
            "instructions": offer.instructions,
            "tools": [_as_listed(tool) for tool in offer.tools],
        }
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self.file, json.dumps(kept).encode(), is_lasting=False)
        except OSError as error:
            log.warning("listing_not_kept", upstream=self._name, reason=error.strerror)


def _as_listed(tool: RecordedTool) -> dict[str, Json]:
    listed = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": tool.annotations,
        "inputExamples": list(tool.examples) or None,
    }
    return {key: value for key, value in listed.items() if value is not None}


Listed: TypeAlias = Literal["resources", "resourceTemplates", "prompts"]

LISTING_METHODS: Final[dict[Listed, str]] = {
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
    "prompts": "prompts/list",
}

MAX_IDENTIFIER_CHARACTERS: Final = 8_192
"""Of a URI or a name; what has a longer one is left out."""

_KINDS_OFFERED: Final[dict[Listed, tuple[str, type[BaseModel]]]] = {
    "resources": ("uri", Resource),
    "resourceTemplates": ("uriTemplate", ResourceTemplate),
    "prompts": ("name", Prompt),
}
_FIELDS: Final = {"uri", "uri_template", "name", "title", "description", "mime_type", "size", "arguments"}


async def read_offered(listed: Listed, read_page: PageReader) -> list[dict[str, Json]]:
    """All rows that are as MCP has them: `uri`, `uriTemplate`, `name`, `title`, `description`, `mimeType`, `size` and
    `arguments` of each, as far as it has them. A server that does not know the method offers nothing.

    Raises:
        UpstreamError: The first page could not be had. A later one that fails ends the listing instead.
    """
    rows: dict[str, dict[str, Json]] = {}
    try:
        async for page in pages(read_page, lambda text: None):
            found = page.get(listed)
            for raw in found[:MAX_LISTED] if isinstance(found, list) else []:
                identifier, row = _row(listed, raw)
                if identifier and len(rows) < MAX_LISTED:
                    rows.setdefault(identifier, row)
    except UpstreamRefusedError as error:
        if error.rpc_code != METHOD_NOT_FOUND:
            raise
    return [*rows.values()]


def _row(listed: Listed, raw: Json) -> tuple[str, dict[str, Json]]:
    """Its identifier, "" if it cannot be used, and what is kept of it."""
    key, kind = _KINDS_OFFERED[listed]
    try:
        read = kind.model_validate({"name": raw[key], **raw}, by_name=False)
    except (ValidationError, TypeError, KeyError, IndexError):
        return "", {}
    row: dict[str, Json] = read.model_dump(mode="json", by_alias=True, exclude_none=True, include=_FIELDS)
    if listed == "prompts":
        row["arguments"] = [{"required": False, **each} for each in row.get("arguments", [])]
    return (row[key] if len(row[key]) <= MAX_IDENTIFIER_CHARACTERS else ""), row
