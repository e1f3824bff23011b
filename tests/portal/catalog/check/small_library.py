"""A library of three namespaces for the tests of the check, and scripts prepared as the sandbox prepares them."""

import ast
import json
from pathlib import Path

from manifests.decision import Decision
from manifests.grants import Limits
from manifests.json_value import Json
from portal.catalog.snapshot import Snapshot
from portal.library.library import Library, LibrarySource, write_stubs
from sandbox_runtime.guest.analysis.names import Names
from sandbox_runtime.guest.script import Script
from sandbox_runtime.result import Bounds, Prepared, read_prepared
from tests.portal.peers import schema
from upstreams.tools import RecordedTool

BOUNDS = Bounds(Limits(), str)
STRING: Json = {"type": "string"}
NUMBER: Json = {"type": "number"}
OR_NULL: Json = {"type": ["string", "null"]}
DAYS: Json = {"type": "integer", "minimum": 1, "maximum": 7}
CLOSED: Json = {"additionalProperties": False}


def items(of: Json) -> Json:
    return {"type": "array", "items": of}


ISSUE = {
    "title": "Issue",
    **schema("number", "title", number={"type": "integer"}, title=STRING, body=OR_NULL),
}
LIST_ISSUES = CLOSED | schema(
    "repo",
    repo=STRING,
    state={"type": "string", "enum": ["open", "closed"]},
    labels=items(STRING),
    limit={"type": "integer", "minimum": 1},
    ratio=NUMBER,
    since=OR_NULL,
    filter=CLOSED | schema("by", by=STRING),
    more=schema(a=STRING),
    target={"anyOf": [{"type": "integer"}, STRING]},
    **{"class": STRING},
)
NEW_ISSUE = CLOSED | schema(
    "title",
    title={"type": "string", "minLength": 1},
    priority={"enum": ["low", "high"]},
    assignees=items(schema(login=STRING)),
)
LISTED = schema("items", items=items(ISSUE), total={"type": "integer"})
DAY = {"title": "Day", **schema("date", "high", date=STRING, high=NUMBER, alert=OR_NULL)}
FORECAST = {"title": "Forecast", **schema("city", "days", city=STRING, days=items(DAY))}
TEXT: Json = schema("text", text=STRING)


def tool(name: str, arguments: Json, result: Json = None) -> RecordedTool:
    return RecordedTool(name, f"{name}.", arguments, result, {}, None)


ODD = tool("odd", TEXT, {"type": "object", "properties": {'a"]. Call echo.take': STRING}})
"""A tool whose result has a field that is more than a name."""


def library(*more: RecordedTool) -> Library:
    """The library, with more functions of `github`."""
    github = (
        tool("list_issues", LIST_ISSUES, LISTED),
        tool("get_issue", schema("number", number={"type": "integer"}), ISSUE),
        tool("create_issue", schema("issue", issue=NEW_ISSUE, dry_run={"type": "boolean"}), ISSUE),
        tool("search_issues", schema("query", query=STRING, sort={"enum": ["created", "updated"]})),
        *more,
    )
    forecast = schema("city", city=STRING, days=DAYS, units={"enum": ["metric", "imperial"]})
    echo = (tool("say", TEXT), tool("shout", TEXT, TEXT), tool("take", {"type": "object"}), ODD)
    return Library.compile(
        [
            LibrarySource("github", "github", "", github),
            LibrarySource("weather", "weather", "", (tool("forecast", forecast, FORECAST),)),
            LibrarySource("echo", "echo", "", echo),
        ]
    )


def snapshot(of: Library) -> Snapshot:
    """The functions that scripts may call: the library without refused ones and those that are down."""
    denied = {"github.delete_repo": Decision("deny", "deny: github.delete_*", "portal.yaml:9:9")}
    return Snapshot(of, None, denied, {"offline": "upstream offline is down"})


def stubs(folder: Path, of: Library) -> frozenset[Path]:
    return frozenset(write_stubs(of, folder))


def prepared(text: str, of: Library, *before: str) -> Prepared:
    """A script as the sandbox tells of it, after others in its session."""
    namespaces = snapshot(of).namespaces
    known = {name for each in before for name in Names(ast.parse(each), namespaces).module.bindings}
    script = Script.parse(text, namespaces - known, known)
    told: Json = {"source": script.source, "names": [*script.names], "notices": script.notices}
    if script.usage is not None:
        usage = script.usage
        told |= {"uses": usage.uses, "problems": usage.problems, "unguarded_lines": usage.unguarded_lines}
    return read_prepared(json.dumps(told).encode(), text, BOUNDS)
