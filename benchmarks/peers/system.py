"""What is compared: systems between an MCP client and upstreams, and how each is asked for the same things."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from mcp import Client
from mcp_types import CallToolResult, TextContent

CACHE = Path(__file__).resolve().parent.parent.parent / ".cache" / "peers"

WANTED: dict[str, object] = {
    "trivial": 2,
    "five_calls": [0, 1, 2, 3, 4],
    "five_calls_gathered": [0, 1, 2, 3, 4],
}
"""Each task and the answer that counts as one."""


class CannotError(Exception):
    """The system cannot do what is asked, or cannot be installed here; says why."""


@dataclass(frozen=True)
class Upstreams:
    echo: list[str]
    """The command of the stdio upstream that all systems call."""
    urls: dict[str, str]
    """Further upstreams, over Streamable HTTP."""
    recorded: list[Any]
    """The definitions of their tools."""

    def mcp_servers(self) -> dict[str, Any]:
        """As in the `mcpServers` of many clients."""
        stdio = {"echo": {"command": self.echo[0], "args": self.echo[1:]}}
        return stdio | {name: {"url": url} for name, url in self.urls.items()}


@dataclass(frozen=True)
class Launch:
    command: list[str]
    env: dict[str, str] = field(default_factory=dict)
    """Beside the environment of the benchmark."""


@dataclass(frozen=True)
class About:
    version: str
    language: str
    """What its scripts are written in."""
    isolation: str
    """What stands between a script and the system's own memory."""
    note: str = ""


class Tasks(Protocol):
    """How a system does what is measured."""

    def names(self) -> Collection[str]:
        """Those of `WANTED` that it can do."""

    async def perform(self, client: Client, task: str) -> object:
        """One of them, through the system; gives the answer."""

    async def keeps_state(self, client: Client) -> bool | None:
        """Whether a script sees what an earlier one left behind; None where there are no scripts."""


class System(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def tasks(self) -> Tasks: ...

    def prepare(self, upstreams: Upstreams) -> Launch:
        """Install and configure the system, with progress on stderr; gives what starts it.

        Raises:
            CannotError: It does not go.
        """

    def about(self) -> About:
        """What was prepared."""

    async def count_tools(self, client: Client) -> int:
        """How many upstream tools the running system says it offers to scripts."""


@dataclass(frozen=True)
class Scripts:
    """Tasks as scripts for one tool of a system, in the system's own idiom."""

    tool: str
    by_task: Mapping[str, str]
    leave: str
    """Leaves something behind, if it can."""
    look: str
    """Answers 1 where it sees that; may fail where it does not."""
    read: Callable[[CallToolResult], object]
    """The script's value in the tool's answer."""

    def names(self) -> Collection[str]:
        return self.by_task.keys()

    async def perform(self, client: Client, task: str) -> object:
        return await self._value(client, self.by_task[task])

    async def keeps_state(self, client: Client) -> bool | None:
        await self._value(client, self.leave)
        return await self._value(client, self.look) == 1

    async def _value(self, client: Client, code: str) -> object:
        return self.read(await client.call_tool(self.tool, {"code": code}))


def text_of(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


def json_of(result: CallToolResult) -> object:
    """The text of an answer, parsed if it is JSON."""
    text = text_of(result)
    try:
        return json.loads(text)
    except ValueError:
        return text
