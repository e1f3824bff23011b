"""Lenient reading of an upstream's resources and prompts."""

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from mcp_types import METHOD_NOT_FOUND, Prompt, Resource, ResourceTemplate
from pydantic import BaseModel, ValidationError

from manifests.json_value import Json
from upstreams.errors import UpstreamRefusedError
from upstreams.tools import MAX_LISTED, PageReader, pages

Listed: TypeAlias = Literal["resources", "resourceTemplates", "prompts"]

LISTING_METHODS: Final[dict[Listed, str]] = {
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
    "prompts": "prompts/list",
}

MAX_IDENTIFIER_CHARACTERS: Final = 8_192
"""Limit of a URI or a name. Rows with a longer one are left out."""

_KINDS_OFFERED: Final[dict[Listed, tuple[str, type[BaseModel]]]] = {
    "resources": ("uri", Resource),
    "resourceTemplates": ("uriTemplate", ResourceTemplate),
    "prompts": ("name", Prompt),
}
_FIELDS: Final = {"uri", "uri_template", "name", "title", "description", "mime_type", "size", "arguments"}


async def read_offered(
    listed: Listed, read_page: PageReader, note: Callable[[str], None] = lambda text: None
) -> list[dict[str, Json]]:
    """All valid rows: `uri`, `uriTemplate`, `name`, `title`, `description`, `mimeType`, `size` and `arguments`.

    A server that does not support the method has none. Raises UpstreamError: the first page failed. A later failure
    only ends the listing.
    """
    rows: dict[str, dict[str, Json]] = {}
    try:
        async for page in pages(read_page, lambda text: note(f"{LISTING_METHODS[listed]}: {text}")):
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
    """The identifier of a row, "" if it is invalid, and its known fields."""
    key, kind = _KINDS_OFFERED[listed]
    try:
        read = kind.model_validate({"name": raw[key], **raw}, by_name=False)
    except (ValidationError, TypeError, KeyError, IndexError):
        return "", {}
    row: dict[str, Json] = read.model_dump(mode="json", by_alias=True, exclude_none=True, include=_FIELDS)
    if listed == "prompts":
        row["arguments"] = [{"required": False, **each} for each in row.get("arguments", [])]
    return (row[key] if len(row[key]) <= MAX_IDENTIFIER_CHARACTERS else ""), row
