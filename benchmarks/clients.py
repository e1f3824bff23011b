"""What three kinds of client show their model of a real portal's answers, counted in tokens (o200k_base).

- structured: `structuredContent` where there is one, else the text: Claude Code, VS Code, Codex
- content: the text: Claude Desktop, Gemini CLI
- both: Copilot CLI, ChatGPT
"""

from collections import Counter
from pathlib import Path
from typing import Any, Final

from mcp import Client
from mcp_types import CallToolResult, TextContent

from benchmarks.first_scripts import CLASSES, first_scripts, repeated
from benchmarks.scene import placed, real_portal
from portal.base.tokens import compact, count_tokens

CLIENTS: Final = ("structured", "content", "both")

SEARCHES: Final = {
    "git": "show the commit history",
    "files": "read a text file",
    "excel": "write rows into a worksheet",
    "memory": "add observations about a person",
    "sqlite": "run a select query",
    "time": "convert a time between time zones",
    "a task": "count the lines of each log in a folder",
}
FULL: Final = ("git.git_log", "filesystem.read_text_file")
WHOLE: Final = {"filesystem": 14, "memory": 9, "everything": 15, "git": 12, "sqlite": 6}


def _mixed(reads: int, sums: int, logs: int, queries: int, missing: int = 0) -> str:
    return f"""
reports = [filesystem.read_text_file(path=f"$FILES/reports/r{{i % 6 + 1}}.log") for i in range({reads})]
others = [everything.get_sum(a=i, b=1) for i in range({sums})]
others += [git.git_log(repo_path="$REPO") for _ in range({logs})]
others += [sqlite.read_query(query="SELECT 1 AS one") for _ in range({queries})]
others += [filesystem.read_text_file(path=f"$FILES/nope{{i}}") for i in range({missing})]
done = await asyncio.gather(*reports, *others, return_exceptions=True)
"""


SCRIPTS: Final = {
    "trivial": "1 + 1",
    "5 mixed calls": """
listing = await filesystem.list_directory(path="$FILES/reports")
notes = await filesystem.read_text_file(path="$FILES/notes.md")
sales = await filesystem.read_text_file(path="$FILES/sales.csv")
log = await git.git_log(repo_path="$REPO", max_count=3)
tables = await sqlite.list_tables()
{"files": listing["content"].count("[FILE]"), "lines": len(notes["content"].splitlines()), "tables": len(tables)}""",
    "28 mixed calls": _mixed(10, 8, 6, 4) + "len(done)",
    "28 calls, 2 failed and returned": _mixed(8, 8, 6, 4, missing=2)
    + "[len(done), [str(each) for each in done if isinstance(each, ToolError)]]",
    "150 calls, 2 failed": _mixed(50, 60, 8, 30, missing=2) + "len(done)",
    "tool error, caught and printed": """
try:
    await filesystem.read_text_file(path="$FILES/missing.md")
except ToolError as error:
    print("failed:", error)
""",
    "tool error": """
async def read(name):
    return (await filesystem.read_text_file(path=f"$FILES/{name}"))["content"]

[await read(name) for name in ("notes.md", "missing.md")]""",
    "Python error in a helper": """
def total(text):
    rows = [line.split(",") for line in text.splitlines()]
    return sum(int(row[1]) for row in rows)

log = await git.git_log(repo_path="$REPO", max_count=1)
total((await filesystem.read_text_file(path="$FILES/sales.csv"))["content"])""",
    "refused: argument": 'await git.git_log(repo="$REPO")',
    "refused: name": 'await filesystem.read(path="$FILES/notes.md")',
    "refused: two findings": 'await git.git_log(repo="$REPO")\nawait filesystem.read(path="$FILES/notes.md")',
    "repairs and awaits": """
log = git.git_log("$REPO", max_count="2")
text = filesystem.read_text_file("$FILES/notes.md")["content"]
[bool(log), len(text)]""",
    "224,000 characters": '(await filesystem.read_text_file(path="$FILES/long.log"))["content"]',
    "2,800 rows": 'await sqlite.read_query(query="SELECT a.* FROM orders a, orders b LIMIT 2800")',
    "image, not emitted": "await everything.get_tiny_image()",
    "waiting: approve": 'log = await git.git_log(repo_path="$REPO")\nawait portal.approve("Push 3 commits?")',
    "waiting: sleep": "await portal.sleep(hours=6)",
    "background": "await portal.sleep(hours=6)",
    "session": "x = 1\nx",
}
_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "background": {"background": True},
    "session": {"session": "new"},
}
_SESSION: Final = (
    *("definitions", "instructions", "search: git", "search: files", "search: sqlite", "full: git.git_log"),
    *("5 mixed calls", "28 mixed calls", "tool error"),
)
"""The items of a session: what a model reads from its first look to the end of its task."""


async def measure_clients(folder: Path) -> dict[str, Any]:
    """`items` (tokens by item and client), `session`, the `first_scripts` by class, and what is `repeated`."""
    async with real_portal(folder) as client:
        items = {
            "definitions": _plain(await _definitions(client)),
            "instructions": _plain(client.instructions or ""),
        }
        answers = [
            *[each async for each in _searched(client)],
            *[each async for each in _run(client, folder)],
        ]
        items |= {item: _shown(result) for item, result in answers}
        told = {item: repeated(_text(result)) for item, result in answers if item in SCRIPTS}
        scripts = await _first_scripts(client, folder, told)
    items["first scripts, mean"] = scripts.pop("tokens")
    session = {each: sum(items[item][each] for item in _SESSION) for each in CLIENTS}
    return {
        "items": items,
        "session": session,
        **scripts,
        "repeated": {item: len(texts) for item, texts in told.items() if texts},
    }


def shown(text: str, data: Any) -> dict[str, int]:
    """The tokens of an answer by client; `data` is its structuredContent, if any."""
    content = count_tokens(text)
    structured = content if data is None else count_tokens(compact(data))
    return dict(
        zip(CLIENTS, (structured, content, content if data is None else content + structured), strict=True)
    )


async def _searched(client: Client) -> Any:
    """The items of docs_search, before any script has run."""
    for item, query in SEARCHES.items():
        yield f"search: {item}", await client.call_tool("docs_search", {"query": query})
    for name in FULL:
        yield f"full: {name}", await client.call_tool("docs_search", {"query": name})
    for namespace, tools in WHOLE.items():
        asked = {"query": "", "detail": "full", "upstream": namespace, "limit": tools}
        yield f"whole: {namespace}", await client.call_tool("docs_search", asked)
    yield "list: sqlite", await client.call_tool("docs_search", {"upstream": "sqlite"})
    yield "empty query", await client.call_tool("docs_search", {})


async def _run(client: Client, folder: Path) -> Any:
    for item, code in SCRIPTS.items():
        asked = {"code": placed(code, folder).strip("\n"), **_OPTIONS.get(item, {})}
        yield item, await client.call_tool("execute_code", asked)


async def _first_scripts(client: Client, folder: Path, told: dict[str, list[str]]) -> dict[str, Any]:
    classes: dict[str, str] = {}
    tokens: Counter[str] = Counter()
    scripts = [each.placed(lambda text: placed(text, folder)) for each in first_scripts()]
    for script in scripts:
        result = await client.call_tool("execute_code", {"code": script.code})
        tokens.update(_shown(result))
        classes[script.name] = script.judged(_text(result), is_error=result.is_error)
        told[script.name] = repeated(_text(result))
    mean = {each: round(tokens[each] / len(scripts)) for each in CLIENTS}
    counts = Counter(classes.values())
    return {"tokens": mean, "classes": {each: counts[each] for each in CLASSES}, "first_scripts": classes}


async def _definitions(client: Client) -> str:
    tools = (await client.list_tools()).tools
    return compact(
        [
            {"name": each.name, "description": each.description, "inputSchema": each.input_schema}
            for each in tools
        ]
    )


def _shown(result: CallToolResult) -> dict[str, int]:
    return shown(_text(result), result.structured_content)


def _plain(text: str) -> dict[str, int]:
    return dict.fromkeys(CLIENTS, count_tokens(text))


def _text(result: CallToolResult) -> str:
    return "\n".join(each.text for each in result.content if isinstance(each, TextContent))
