"""What an upstream offers besides tools: resources, their templates, and prompts; as it lists them, read leniently."""

from typing import Final, Literal, TypeAlias

from mcp_types import METHOD_NOT_FOUND

from manifests.json_value import Json
from upstreams.errors import UpstreamRefusedError
from upstreams.tool_listing import PageReader, pages

Listed: TypeAlias = Literal["resources", "resourceTemplates", "prompts"]

LISTING_METHODS: Final[dict[Listed, str]] = {
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
    "prompts": "prompts/list",
}

MAX_ROWS: Final = 10_000
MAX_BYTES: Final = 16 * 1024 * 1024
"""Of one listing. Beyond either the rest is left out."""

MAX_IDENTIFIER_CHARACTERS: Final = 8_192
"""Of a URI or a name; what has a longer one is left out."""

MAX_TEXT_CHARACTERS: Final = 16_384
"""Of another text; of a longer one that much is kept."""

MAX_ARGUMENTS: Final = 100
"""Of one prompt; a prompt that has more is left out, for nobody could fill it in."""

_IDENTIFIERS: Final[dict[Listed, str]] = {
    "resources": "uri",
    "resourceTemplates": "uriTemplate",
    "prompts": "name",
}
_TEXTS: Final = ("uri", "uriTemplate", "name", "title", "description", "mimeType")


async def read_offered(listed: Listed, read_page: PageReader) -> list[dict[str, Json]]:
    """All rows that can be used: those of `uri`, `uriTemplate`, `name`, `title`, `description`, `mimeType`, `size` and
    `arguments` that are of the right kind.

    A server that does not know the method offers nothing.

    Raises:
        UpstreamError: The first page could not be had. A later one that fails ends the listing instead.
    """
    rows: dict[str, dict[str, Json]] = {}
    try:
        async for page in pages(read_page, MAX_BYTES, lambda text: None):
            found = page.get(listed)
            for raw in found[:MAX_ROWS] if isinstance(found, list) else []:
                identifier, row = _row(listed, raw)
                if identifier and len(rows) < MAX_ROWS:
                    rows.setdefault(identifier, row)
    except UpstreamRefusedError as error:
        if error.rpc_code != METHOD_NOT_FOUND:
            raise
    return [*rows.values()]


def _row(listed: Listed, raw: Json) -> tuple[str, dict[str, Json]]:
    """Its identifier, "" if it cannot be used, and what is kept of it."""
    if not isinstance(raw, dict):
        return "", {}
    row: dict[str, Json] = {
        key: raw[key][:MAX_TEXT_CHARACTERS] for key in _TEXTS if isinstance(raw.get(key), str)
    }
    if isinstance(size := raw.get("size"), int) and not isinstance(size, bool):
        row["size"] = size
    if listed == "prompts":
        given = raw.get("arguments")
        if isinstance(given, list) and len(given) > MAX_ARGUMENTS:
            return "", {}
        row["arguments"] = _arguments(given)
    identifier = row.get(_IDENTIFIERS[listed], "")
    if not isinstance(identifier, str) or len(identifier) > MAX_IDENTIFIER_CHARACTERS:
        return "", {}
    row.setdefault("name", identifier)
    return identifier, row


def _arguments(raw: Json) -> list[dict[str, Json]]:
    """Those of a prompt: `{name, description?, required}`."""
    found = []
    for each in raw if isinstance(raw, list) else []:
        name = each.get("name") if isinstance(each, dict) else None
        if isinstance(name, str) and len(name) <= MAX_IDENTIFIER_CHARACTERS:
            row: dict[str, Json] = {"name": name, "required": each.get("required") is True}
            if isinstance(each.get("description"), str):
                row["description"] = each["description"][:MAX_TEXT_CHARACTERS]
            found.append(row)
    return found
