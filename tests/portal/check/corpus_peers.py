"""The upstreams that the scripts of the corpus call: real MCP servers with an issue tracker, a forecast and an echo."""

import json

from mcp_types import CallToolResult

from manifests.json_value import Json
from tests.portal.check.small_library import ISSUE, LIST_ISSUES, LISTED, TEXT
from tests.portal.peers import Peer, raw, schema, structured, text, tool

FORECAST: Json = {
    "title": "Forecast",
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {
            "type": "array",
            "items": {
                "title": "Day",
                "type": "object",
                "properties": {
                    "date": {"type": "string"},
                    "high": {"type": "number"},
                    "alert": {"type": ["string", "null"]},
                },
                "required": ["date", "high"],
            },
        },
    },
    "required": ["city", "days"],
}
NEW_ISSUE: Json = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 1},
        "priority": {"enum": ["low", "high"]},
        "assignees": {
            "type": "array",
            "items": {"type": "object", "properties": {"login": {"type": "string"}}},
        },
    },
    "required": ["title"],
    "additionalProperties": False,
}
GRANTS: Json = {"tools": {"deny": ["github.delete_*", "weather.admin_reset"]}}


async def list_issues(arguments: dict[str, Json]) -> CallToolResult:
    items = [
        {
            "number": number,
            "title": f"Issue {number}",
            "body": None if number % 2 else "text",
            "state": "open",
        }
        for number in range(1, 1 + int(arguments.get("limit", 3)))
    ]
    return structured({"items": items, "total": len(items)})


async def get_issue(arguments: dict[str, Json]) -> CallToolResult:
    if arguments["number"] > 900:
        return text("there is no such issue", is_error=True)
    return structured({"number": arguments["number"], "title": "Login fails", "extra": {"from": "upstream"}})


async def search_issues(arguments: dict[str, Json]) -> CallToolResult:
    return text(json.dumps([{"id": 1, "label": "bug"}, {"id": 2}]))


async def forecast(arguments: dict[str, Json]) -> CallToolResult:
    days = [
        {"date": f"2026-11-2{at}", "high": 10.5 + at, "alert": None if at else "storm"}
        for at in range(arguments.get("days", 2))
    ]
    return structured({"city": arguments["city"], "days": days})


async def shout(arguments: dict[str, Json]) -> CallToolResult:
    return text(arguments["text"].upper())


def corpus_peers() -> dict[str, Peer]:
    """Upstreams by name, beside `offline`, which is down."""
    github = Peer(
        tool("list_issues", LIST_ISSUES, output_schema=LISTED),
        tool("get_issue", schema("number", number={"type": "integer"}), output_schema=ISSUE),
        tool(
            "create_issue", schema("issue", issue=NEW_ISSUE, dry_run={"type": "boolean"}), output_schema=ISSUE
        ),
        tool(
            "search_issues", schema("query", query={"type": "string"}, sort={"enum": ["created", "updated"]})
        ),
        tool("delete_repo", schema("repo", repo={"type": "string"})),
        list_issues=list_issues,
        get_issue=get_issue,
        search_issues=search_issues,
    )
    weather = Peer(
        tool(
            "forecast",
            schema(
                "city",
                city={"type": "string"},
                days={"type": "integer", "minimum": 1, "maximum": 7},
                units={"enum": ["metric", "imperial"]},
            ),
            output_schema=FORECAST,
        ),
        tool("admin_reset"),
        forecast=forecast,
    )
    echo = Peer(tool("say", TEXT), tool("shout", TEXT), tool("take", {"type": "object"}), shout=shout)
    return {"github": github, "weather": weather, "echo": echo}


OFFLINE: dict[str, Json] = raw(exits_with=3)
