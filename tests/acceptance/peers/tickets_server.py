"""An MCP server with issues: what it answers is declared, and every call counts."""

from typing import Literal

from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

server = MCPServer("tickets")


class Person(BaseModel):
    name: str
    email: str


class Issue(BaseModel):
    id: int
    title: str
    labels: list[str]
    author: Person


@server.tool()
async def get_issue(id: int) -> Issue:
    """One issue."""
    return _issue(id)


@server.tool()
async def list_issues(state: Literal["open", "closed"] = "open", limit: int = 3) -> list[Issue]:
    """The issues of a state."""
    return [_issue(number) for number in range(1, limit + 1)]


@server.tool()
async def add_label(id: int, label: str) -> Issue:
    """Add a label to an issue."""
    return _issue(id, "bug", label)


@server.tool()
async def set_labels(id: int, labels: list[str]) -> list[str]:
    """Replace the labels of an issue."""
    return labels


@server.tool()
async def search(text: str, fuzzy: bool = False) -> list[int]:
    """The issues with a text."""
    return [len(text)]


@server.tool(structured_output=False)
async def export(id: int) -> str:
    """An issue as JSON text."""
    return f'{{"id": {id}, "title": "Kettle leaks"}}'


@server.tool(structured_output=False)
async def say(text: str) -> str:
    """Answer the text."""
    return text


def _issue(number: int, *labels: str) -> Issue:
    author = Person(name="Ada", email="ada@example.com")
    return Issue(id=number, title=f"Issue {number}", labels=[*labels], author=author)


server.run()
