"""Lenient, paginated reading of an upstream's tools, and of their results."""

import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cached_property, partial
from pathlib import Path
from typing import Final

import anyio.to_thread
import structlog
from pydantic import TypeAdapter
from pydantic_core import to_json

from manifests.json_value import Json
from manifests.own_files import write_whole
from upstreams.errors import UpstreamAnswerError, UpstreamRefusedError, UpstreamTimeoutError
from upstreams.health import Diagnostics, UpstreamState


@dataclass(frozen=True)
class RecordedTool:
    """One tool as its upstream lists it: raw JSON.

    `input_schema` is a dict, but not necessarily a valid JSON Schema. `output_schema` is a dict or None. `name` has 1
    to 200 arbitrary characters.
    """

    name: str
    description: str
    input_schema: Json
    output_schema: Json | None
    annotations: dict[str, Json]
    title: str | None
    examples: tuple[Json, ...] = ()
    """The tool's `inputExamples`. They should be objects of arguments, but may be any JSON."""

    @cached_property
    def digest(self) -> str | None:
        """A hash of all fields; None if a schema nests too deeply to be serialized."""
        texts = self.name, self.description, self.title
        parts = [*texts, self.input_schema, self.output_schema, self.annotations, self.examples]
        try:
            return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        except (RecursionError, TypeError, ValueError):
            return None


class Missing(Enum):
    MISSING = "missing"


MISSING: Final = Missing.MISSING
"""The result has no structuredContent; None would be a value."""


@dataclass(frozen=True)
class ToolResult:
    """One raw result of `tools/call`: unknown block types and `_meta` are kept.

    It is not validated against the tool's outputSchema: one real result in thirteen violates its own.
    """

    content: list[dict[str, Json]]
    structured: Json | Missing
    is_error: bool


def read_result(raw: dict[str, Json], *, null_is_a_value: bool) -> ToolResult:
    """Read a raw result leniently, without dropping anything.

    Before 2026-07-28 structuredContent is an object, and some servers send null for "none". `null_is_a_value` is true
    for later revisions, where null is a value.
    """
    structured = raw.get("structuredContent", MISSING)
    if structured is None and not null_is_a_value:
        structured = MISSING
    content = _blocks(raw["content"]) if "content" in raw else []
    if not content and structured is MISSING:
        # Some servers answer a bare object, or 2024's `toolResult`.
        stray = {key: value for key, value in raw.items() if key not in _ENVELOPE}
        content = [_text_block(stray)] if stray else []
    # "true" means an error, too: mistaking a failure for a success is worse than the reverse.
    is_error = str(raw.get("isError")).lower() == "true"
    return ToolResult(content=content, structured=structured, is_error=is_error)


_ENVELOPE: Final = frozenset({"content", "structuredContent", "isError", "_meta", "resultType"})


def _blocks(content: Json) -> list[dict[str, Json]]:
    if content is None:
        return []
    blocks = content if isinstance(content, list) else [content]
    return [block if isinstance(block, dict) else _text_block(block) for block in blocks]


def _text_block(value: Json) -> dict[str, Json]:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return {"type": "text", "text": text}


log = structlog.get_logger()

MAX_LISTED: Final = 10_000
MAX_PAGES: Final = 1_000
MAX_LISTING_BYTES: Final = 64 * 1024 * 1024
"""Limits of one listing. Beyond any of the three the rest is left out."""

MAX_NAME_LENGTH: Final = 200
MAX_EXAMPLES: Final = 5

_KINDS: Final = {
    "description": str,
    "title": str,
    "inputSchema": dict,
    "outputSchema": dict,
    "annotations": dict,
}

PageReader = Callable[[Json], Awaitable[dict[str, Json]]]
"""Requests the page at a cursor (None: the first). Returns the raw result."""


async def pages(
    read_page: PageReader, note: Callable[[str], None], *, is_whole: bool = False
) -> AsyncIterator[dict[str, Json]]:
    """The pages of a listing. `note` is called with the reason if it is cut.

    Raises UpstreamError: the first page failed, or any if it has to be whole. Else a later failure only ends it.
    """
    cursor: Json = None
    seen: set[str | float] = set()
    bytes_read = 0
    while True:
        try:
            page = await read_page(cursor)
        except (UpstreamRefusedError, UpstreamAnswerError, UpstreamTimeoutError) as error:
            if cursor is None or is_whole:
                raise
            note(f"incomplete: a later page failed: {error}")
            return
        yield page
        cursor = page.get("nextCursor")
        if cursor is None:
            return
        bytes_read += len(to_json(page, inf_nan_mode="constants"))
        if type(cursor) not in (str, int, float):  # the specification allows text only
            note(f"cut after {len(seen) + 1} pages: its nextCursor is a {type(cursor).__name__}, not a text")
            return
        is_endless = cursor in seen or len(seen) + 1 >= MAX_PAGES
        if is_endless or bytes_read > MAX_LISTING_BYTES:
            note(f"cut after {len(seen) + 1} pages and {bytes_read} bytes: pagination does not end")
            return
        seen.add(cursor)


async def read_listing(
    read_page: PageReader, diagnostics: Diagnostics, *, is_whole: bool = False
) -> tuple[RecordedTool, ...]:
    """All usable tools of an upstream. `diagnostics` notes malformed and omitted ones. Raises as `pages` does."""
    note, tools = diagnostics.note, dict[str, RecordedTool]()
    async for page in pages(read_page, lambda text: note(f"tools/list: {text}"), is_whole=is_whole):
        listed = page.get("tools")
        if not isinstance(listed, list):
            note("tools/list: `tools` is not a list")
            continue
        for raw in listed:
            if len(tools) >= MAX_LISTED:
                note(f"tools/list: only the first {MAX_LISTED} tools are used")
                return (*tools.values(),)
            tool = read_tool(raw, note)
            if tool is not None and tools.setdefault(tool.name, tool) is not tool:
                note(f"tool {tool.name!r} is listed twice; the first one is used")
    return (*tools.values(),)


def read_tool(raw: Json, note: Callable[[str], None]) -> RecordedTool | None:
    """The tool in a row of a listing; None if it has no usable name. `note` is called with what is malformed."""
    name = raw.get("name") if isinstance(raw, dict) else None
    if not isinstance(raw, dict) or not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH:
        shown = f"{name!r:.100}" if isinstance(raw, dict) else "it is not an object"
        note(f"a tool was left out: its name is not a string of 1 to {MAX_NAME_LENGTH} characters: {shown}")
        return None
    odd = [key for key, kind in _KINDS.items() if raw.get(key) is not None and not isinstance(raw[key], kind)]
    if odd:
        note(f"tool {name!r}: fields of the wrong type: {', '.join(odd)}")
    known = {key: value for key, value in raw.items() if key not in odd}
    annotations = known.get("annotations") or {}
    if "annotations" in odd and raw["annotations"]:
        # They may declare the tool destructive. Some languages serialize an empty object as an empty list.
        annotations = {"destructiveHint": raw["annotations"]}
    schema = known.get("inputSchema")
    # Not in the specification; some servers send them under these names, which clients know.
    examples = raw.get("inputExamples", raw.get("input_examples"))
    if schema is None:
        note(f"tool {name!r}: it has no inputSchema, so any arguments are accepted")
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
class UpstreamListing:
    tools: tuple[RecordedTool, ...]
    server: str
    instructions: str | None


@dataclass(eq=False)
class ListedUpstream:
    """An upstream of which only a listing is known; `Upstream` connects one."""

    name: str

    def __post_init__(self) -> None:
        self.apply(UpstreamListing((), "", None))

    def apply(self, listing: UpstreamListing) -> None:
        self.tools, self.server, self.instructions = listing.tools, listing.server, listing.instructions

    @property
    def state(self) -> UpstreamState:
        return UpstreamState("idle", "", datetime.now(UTC))

    @property
    def retry_status(self) -> str:
        """When the next attempt to connect is, if it is down; else empty."""
        return ""

    async def started(self) -> None:
        """Wait until it is ready or has failed."""


_LISTING: Final = TypeAdapter(UpstreamListing)


class ListingStore:
    """A file (mode 0600) with an upstream's last listing, and whether it needs the older handshake first.

    Its key is the upstream's section in the manifest: `written` is that section with unresolved references. An
    unreadable file counts as missing.
    """

    def __init__(self, folder: Path, name: str, working_folder: Path, written: Json) -> None:
        place = [name, str(working_folder.resolve())]
        self._name = name
        self.file = folder / f"{_fingerprint([*place, written])}.json"
        self._any = folder / f"{_fingerprint(place)}.listed"

    async def load(self) -> UpstreamListing | None:
        return await anyio.to_thread.run_sync(self._load)

    async def save(self, listing: UpstreamListing) -> None:
        await anyio.to_thread.run_sync(self._write, self.file, partial(_LISTING.dump_json, listing))
        if not await self.was_listed():
            await anyio.to_thread.run_sync(self._write, self._any, bytes)

    async def was_listed(self) -> bool:
        """Whether the upstream was ever listed here, under any version of its section."""
        return await anyio.Path(self._any).exists()

    async def needs_handshake_first(self) -> bool:
        """Whether the probe of 2026-07-28 delayed an earlier start. Updated servers still know the older handshake."""
        return await anyio.Path(self.file.with_suffix(".handshake")).exists()

    async def keep_handshake_first(self) -> None:
        await anyio.to_thread.run_sync(self._write, self.file.with_suffix(".handshake"), bytes)

    def _load(self) -> UpstreamListing | None:
        try:
            with self.file.open("rb") as file:
                return _LISTING.validate_json(file.read(2 * MAX_LISTING_BYTES))
        except (OSError, ValueError, RecursionError):
            return None

    def _write(self, file: Path, dump: Callable[[], bytes]) -> None:
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(file, dump(), is_lasting=False)
        except (OSError, ValueError) as error:
            log.warning("listing_not_kept", upstream=self._name, reason=str(error))


def _fingerprint(key: Json) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()
