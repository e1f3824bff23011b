"""A library of two namespaces for the tests of the check, and scripts prepared as the sandbox prepares them."""

from pathlib import Path

from manifests.json_value import Json
from portal.library.library import Library
from portal.library.namespace import LibrarySource
from portal.library.stub_package import write_stubs
from portal.snapshot import Snapshot
from sandbox_runtime.guest.script import Script
from sandbox_runtime.prepared import LibraryUse, Prepared
from upstreams.recorded_tool import RecordedTool

ISSUE: Json = {
    "title": "Issue",
    "type": "object",
    "properties": {
        "number": {"type": "integer"},
        "title": {"type": "string"},
        "body": {"type": ["string", "null"]},
    },
    "required": ["number", "title"],
}
LIST_ISSUES: Json = {
    "type": "object",
    "properties": {
        "repo": {"type": "string"},
        "state": {"type": "string", "enum": ["open", "closed"]},
        "labels": {"type": "array", "items": {"type": "string"}},
        "limit": {"type": "integer", "minimum": 1},
        "ratio": {"type": "number"},
        "since": {"type": ["string", "null"]},
        "class": {"type": "string"},
        "filter": {
            "type": "object",
            "properties": {"by": {"type": "string"}},
            "required": ["by"],
            "additionalProperties": False,
        },
        "more": {"type": "object", "properties": {"a": {"type": "string"}}},
        "target": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    },
    "required": ["repo"],
    "additionalProperties": False,
}
LISTED: Json = {
    "type": "object",
    "properties": {"items": {"type": "array", "items": ISSUE}, "total": {"type": "integer"}},
    "required": ["items"],
}
TEXT: Json = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def tool(name: str, arguments: Json, result: Json = None) -> RecordedTool:
    return RecordedTool(name, f"{name}.", arguments, result, {}, None)


def library(*more: RecordedTool) -> Library:
    github = (tool("list_issues", LIST_ISSUES, LISTED), tool("get_issue", {"type": "object"}, ISSUE), *more)
    return Library.compile(
        [
            LibrarySource("github", "github", "", github),
            LibrarySource("echo", "echo", "", (tool("say", TEXT), tool("shout", TEXT))),
        ]
    )


def snapshot(of: Library) -> Snapshot:
    """What scripts may call where there is nothing but a library."""
    return Snapshot(0, of, None, {}, {})


def stubs(folder: Path, of: Library) -> frozenset[Path]:
    return frozenset(write_stubs(of, folder))


def prepared(text: str, of: Library) -> Prepared:
    script = Script.parse(text, frozenset(of.namespaces))
    uses = tuple(LibraryUse(*use) for use in script.uses)
    return Prepared(script.source, script.names, uses, tuple(script.notices))
