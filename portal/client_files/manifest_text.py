"""Upstreams as text of a manifest, for people to read and edit."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from manifests.json_value import Json
from portal.client_files.merging import Taken
from portal.client_files.servers import Origin
from portal.library.hidden_characters import respelt

HEADING: Final = """\
# What clients had as their servers, taken over by `mcp-code-portal import`. `mcp-code-portal check` tries it out.
# What scripts may do with them, capabilities says: docs/permissions.md.

upstreams:
"""

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_@./-]*")
_WORDS: Final = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n"))


def upstream_lines(taken: Sequence[Taken], home: Path) -> list[str]:
    """One block for each upstream, indented by two."""
    lines: list[str] = []
    for each in taken:
        if lines:
            lines.append("")
        lines.append(f"  # {_comment('; '.join(origin_text(origin, home) for origin in each.origins))}")
        lines.append(f"  {_scalar(each.name)}:")
        lines += [f"    {line}" for line in _mapping(each.server.spec())]
    return lines


def origin_text(origin: Origin, home: Path) -> str:
    """`Cursor, ~/.cursor/mcp.json:3`."""
    line = "" if origin.line is None else f":{origin.line}"
    return f"{origin.place.client.title}, {path_text(origin.place.path, home)}{line}"


def path_text(path: Path, home: Path) -> str:
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _mapping(spec: Mapping[str, Json]) -> Iterator[str]:
    for key, value in spec.items():
        if isinstance(value, dict) and key in ("env", "headers"):
            yield f"{key}:"
            yield from (f"  {_scalar(name)}: {_flow(item)}" for name, item in value.items())
        else:
            yield f"{key}: {_flow(value)}"


def _flow(value: Json) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_quoted, value)) + "]"
    return _scalar(str(value))


def _scalar(text: str) -> str:
    return text if _PLAIN.fullmatch(text) and text.lower() not in _WORDS else _quoted(text)


def _quoted(text: str) -> str:
    """In double quotes, with escapes for whatever YAML would not take as it is or an editor would not show."""
    escaped = json.dumps(text, ensure_ascii=False)
    return respelt(escaped, lambda character: f"\\U{ord(character):08x}")


def _comment(text: str) -> str:
    return respelt(text, lambda _: "?")
