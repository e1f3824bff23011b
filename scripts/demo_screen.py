"""How the demo looks: plain text, with colours on a terminal."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mcp_types import CallToolResult, TextContent, Tool
from rich.console import Console
from rich.syntax import Syntax
from rich.terminal_theme import MONOKAI
from rich.text import Text

from portal.base.tokens import count_tokens

WIDTH = 118


class Screen:
    """Prints the parts of the demo one after the other."""

    def __init__(self, picture: Path | None = None) -> None:
        """With `picture` what is printed is also kept, for `save_picture`."""
        self._picture = picture
        if picture is None:
            self._console = Console(highlight=False, soft_wrap=True)
        else:
            self._console = Console(
                highlight=False, soft_wrap=True, record=True, width=WIDTH, force_terminal=True
            )

    def save_picture(self) -> None:
        if self._picture is not None:
            self._console.save_svg(str(self._picture), title="scripts/demo", theme=MONOKAI)

    def show_tools(self, tools: Sequence[Tool]) -> None:
        self._title("tools/list", "all that a model ever reads of the servers behind the portal")
        self._console.print(f"  {', '.join(tool.name for tool in tools)}")

    def show_search(self, query: str, answer: CallToolResult) -> None:
        self._title("docs_search", f'"{query}"')
        for line in text_of(answer).splitlines():
            self._console.print(Syntax(_shortened(f"  {line}"), "python", background_color="default"))

    def show_run(self, script: str, answer: CallToolResult) -> None:
        self.show_script(
            "execute_code", "one round trip; the script runs in CPython 3.14 inside WebAssembly", script
        )
        self._title("answer", "all that comes back to the model")
        self._console.print(f"  {text_of(answer)}", markup=False)

    def show_script(self, name: str, rest: str, script: str) -> None:
        self._title(name, rest)
        self._console.print(Syntax(script.strip(), "python", background_color="default"))

    def show_answer(self, answer: Mapping[str, Any]) -> None:
        self._title("result", "what the script returned")
        self._console.print(f"  {json.dumps(answer['result'])}", markup=False)
        self._title("ledger", "what each call did")
        for call in answer["calls"]:
            self._console.print(
                f"  {call['seq']}  {call['function']:26} {call['state']:8} {call['ms']:7.1f} ms"
            )

    def show_lines(self, name: str, rest: str, lines: Sequence[str]) -> None:
        self._title(name, rest)
        for line in lines:
            self._console.print(f"  {line}", markup=False)

    def show_tokens(self, direct: Mapping[str, Sequence[Tool]], tools: Sequence[Tool]) -> None:
        self._title(
            "tokens", "of tool definitions that a model reads before it has done anything (o200k_base)"
        )
        costs = {name: definition_tokens(listed) for name, listed in direct.items()}
        parts = ", ".join(f"{name} {cost:,}" for name, cost in costs.items())
        before, after = sum(costs.values()), definition_tokens(tools)
        count = sum(map(len, direct.values()))
        self._console.print(
            f"  directly            {before:7,}  {count} tools of {len(direct)} servers: {parts}"
        )
        self._console.print(f"  through the portal  {after:7,}  2 tools, whatever stands behind them")

    def _title(self, name: str, rest: str) -> None:
        self._console.print(Text.assemble("\n", (name, "bold cyan"), "  ", (rest, "dim")))


def text_of(answer: CallToolResult) -> str:
    """What a model reads of an answer."""
    assert isinstance(answer.content[0], TextContent)
    return answer.content[0].text


def definition_tokens(tools: Sequence[Tool]) -> int:
    """Tokens of name, description and inputSchema as compact JSON."""
    definitions = [
        {"name": tool.name, "description": tool.description or "", "inputSchema": tool.input_schema}
        for tool in tools
    ]
    return count_tokens(json.dumps(definitions, ensure_ascii=False, separators=(",", ":")))


def _shortened(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"
