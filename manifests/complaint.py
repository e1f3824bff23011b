"""A validation error in the words of the person who wrote the file: what is there, what may be, what to do.

A value is shown only where it cannot be a secret: not if any of it came from the environment, and never under
`env`, `environment`, `headers`, `args`, `url`, `token` and `client_secret`.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from difflib import get_close_matches
from typing import get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from manifests.constraints import UNUSABLE, Section
from manifests.errors import Problem
from manifests.json_value import Json
from manifests.portal_manifest import PortalManifest
from manifests.tool_rules import RULE_KINDS
from manifests.upstream_sections import UPSTREAM_KIND, HttpUpstream, StdioUpstream
from manifests.yaml_source import KeyPath, Place, nearest

_PRIVATE = frozenset({"env", "environment", "headers", "args", "url", "token", "client_secret"})
_SHOWN = 60
_CLIENTS_SECTIONS = frozenset({"mcpServers", "servers", "mcp_servers"})
"""Under which MCP clients list their servers: Claude and Cursor, VS Code, Codex."""

_IMPORT = (
    "Upstreams stand under `upstreams`; `mcp-code-portal import` takes over the servers of Claude, Cursor, VS Code, "
    "Codex and others."
)
_KEY_ERROR = "[key]"  # pydantic's mark, at the end of a location, for an error in the key itself
_WANTED = {
    "tuple_type": "a list, like [a, b]",
    "dict_type": "a mapping of names to values",
    "model_type": "a mapping of keys to values",
}


@dataclass(frozen=True)
class Complaint:
    """Turns validation errors into problems: `places` is where things stand, `filled` what holds environment."""

    places: Mapping[KeyPath, Place]
    filled: Set[KeyPath]

    def problem(self, error: ErrorDetails) -> Problem:
        path, kind, is_key = self._subject(error["loc"])
        if error["type"] == "extra_forbidden":
            message, hint = _unknown_key(path, kind)
            is_key = True
        elif error["type"] == "missing":
            message, hint, is_key = f"{_label(path[:-1])} needs {path[-1]}", "", True
        elif error["type"] == UPSTREAM_KIND:
            message, hint = _kindless_upstream(path, error["input"])
            is_key = True
        elif error["type"] == UNUSABLE:
            message, hint = f"{_label(path)} {error['msg']}", error["ctx"]["hint"]
        elif is_key:
            message, hint = f"the key {_label(path)} {_demand(error)}", ""
        else:
            message, hint = self._wrong_value(path, error)
        place = nearest(self.places, path)
        line, column = (place.line, place.column) if is_key else (place.value_line, place.value_column)
        return Problem(message, line, column, hint, ".".join(map(str, path)))

    def _subject(self, location: KeyPath) -> tuple[KeyPath, str, bool]:
        """The path in the file, the kind of upstream it is in, and whether the key itself is meant."""
        has_kind = location[:1] == ("upstreams",) and location[2:3] in (("command",), ("url",))
        path, kind = (location[:2] + location[3:], str(location[2])) if has_kind else (location, "")
        path = _without_rule_kind(path)
        is_key = path[-1:] == (_KEY_ERROR,) and path not in self.places
        return path[:-1] if is_key else path, kind, is_key

    def _wrong_value(self, path: KeyPath, error: ErrorDetails) -> tuple[str, str]:
        shown = "a value from the environment" if path in self.filled else _shown(path, error["input"])
        message = f"{_label(path)} is {shown}; it {_demand(error)}"
        if error["type"] != "string_type" or isinstance(error["input"], list | dict):
            return message, ""
        is_empty = error["input"] is None
        return message, 'An empty string is written "".' if is_empty else "Put it in quotes."


def _demand(error: ErrorDetails) -> str:
    """What the value must be, as pydantic says it; none of its texts repeats the value."""
    if error["type"] in _WANTED:
        return f"must be {_WANTED[error['type']]}"
    return f"must {error['msg'].partition(' should ')[2]}"


def _parts(annotation: object) -> Iterator[object]:
    """Everything that a type is made of, also what stands in `Annotated`."""
    yield annotation
    for part in get_args(annotation):
        yield from _parts(part)


def _unknown_key(path: KeyPath, kind: str) -> tuple[str, str]:
    if path[0] in _CLIENTS_SECTIONS:
        return f"unknown key {_label(path)}", _IMPORT
    key, section = str(path[-1]), _section_at(path[:-1], kind)
    allowed = list(_keys(section)) if section else []
    message = f"unknown key {_label(path)}"
    other: type[Section] = HttpUpstream if kind == "command" else StdioUpstream
    if kind and len(path) == 3 and key in other.model_fields:
        wrong = "started with a command" if kind == "command" else "reached by url"
        message = f"{key} has no meaning for an upstream that is {wrong}"
    near = get_close_matches(key, allowed, n=1)
    return message, f"{f'Did you mean {near[0]}? ' if near else ''}Allowed here: {', '.join(allowed)}."


def _kindless_upstream(path: KeyPath, value: Json) -> tuple[str, str]:
    name = _label(path)
    if not isinstance(value, dict):
        return f"the upstream {name} must be a mapping of keys to values", "Give it a command or a url."
    if "command" in value and "url" in value:
        return f"the upstream {name} has both command and url", "Keep one: command starts it, url reaches it."
    hint = "command starts a program and speaks to it over stdio; url reaches a running server."
    for key in list(value)[:20]:
        if near := get_close_matches(key, ("command", "url"), n=1):
            hint = f"Did you mean {near[0]} where you wrote {key}? {hint}"
    return f"the upstream {name} has neither command nor url", hint


def _section_at(path: KeyPath, kind: str) -> type[Section] | None:
    """The section at a path; None where the file has a list or a mapping of names."""
    section: type[Section] | None = PortalManifest
    rest = list(path)
    while rest and section:
        field = _keys(section).get(str(rest.pop(0)))
        parts = [] if field is None else list(_parts(field.annotation))
        if any(get_origin(part) in (dict, tuple) for part in parts):
            if not rest:
                return None
            del rest[0]  # a name, or an index
        inside = [part for part in parts if isinstance(part, type) and issubclass(part, Section)]
        section = inside[-1 if kind == "url" else 0] if inside else None
    return section


def _without_rule_kind(path: KeyPath) -> KeyPath:
    """The path without the word for which of two things an item of `allow` or `deny` was taken for."""
    return tuple(
        part
        for index, part in enumerate(path)
        if not (part in RULE_KINDS and index > 1 and path[index - 2] in ("allow", "deny"))
    )


def _keys(section: type[Section]) -> dict[str, FieldInfo]:
    """The fields of a section by what the file calls them."""
    return {field.alias or name: field for name, field in section.model_fields.items()}


def _label(path: KeyPath) -> str:
    """What to call the thing at a path: its key, or `item 2 of args`."""
    if not path:
        return "the manifest"
    if isinstance(path[-1], int):
        return f"item {path[-1] + 1} of {_label(path[:-1])}"
    return path[-1] if path[-1].isidentifier() and len(path[-1]) <= _SHOWN else _cut(path[-1])


def _shown(path: KeyPath, value: Json) -> str:
    if value is None:
        return "empty"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a mapping"
    if not _PRIVATE.isdisjoint(path):
        return (
            "text" if isinstance(value, str) else "true or false" if isinstance(value, bool) else "a number"
        )
    return str(value).lower() if isinstance(value, bool) else _cut(value)


def _cut(value: str | int | float) -> str:
    """As Python writes it, which escapes what a terminal would obey."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
