"""What an upstream says of its tools is data: in stubs, in docs_search, in file names and in a terminal."""

import ast
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from manifests.json_value import Json
from tests.portal.peers import Opened, Peer, opened, tool

pytestmark = pytest.mark.anyio

TEXTS = [
    '"""\nimport os\nos.system("x")\n"""',
    "'''\\\"\"\"\\",
    "\\",
    "\x1b]0;pwned\x07\x1b[2J",
    "\u202e\u2066\u200b\u2028import os",
    "# type: ignore\r\nimport os\x85import os\x0cimport os",
    "\\N{DIGIT ONE}\\x",
    "{0.__class__} %s%n `]",
    "x" * 200_000,
]
NAMES = [
    "../../../../tmp/pwned",
    "/etc/passwd",
    "__init__",
    "__import__",
    "__getattr__",
    "None",
    "print",
    "lambda",
    "x\ny",
    "import os;os.system('x')",
    "\x1b[31mred\x1b[0m",
    "NUL\0x",
    "TypedDict",
    "ｅｃｈｏ",
    "echo",
]
UNSEEN = {chr(code) for code in (*range(32), *range(0x7F, 0xA0), 0x200B, 0x2028, 0x202E, 0x2066)} - {
    "\n",
    "\t",
}


def hostile(text: str) -> dict[str, Json]:
    value = {"type": "string", "description": text, "title": text, "default": text, "enum": [text]}
    return {"type": "object", "description": text, "title": text, "properties": {text[:200]: value}}


@pytest.fixture(scope="module")
async def portal(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    described = [
        tool(f"t{number}", hostile(text), description=text, output_schema=hostile(text))
        for number, text in enumerate(TEXTS)
    ]
    folder: Path = tmp_path_factory.mktemp("hostile")
    async with opened(folder, {"up": Peer(*described, *map(tool, NAMES), instructions=TEXTS[0])}) as portal:
        await portal.search()
        yield portal


async def test_stub_holds_declarations_only(portal: Opened) -> None:
    library = portal.portal.catalog.snapshot.library
    tree = ast.parse(library.module("up"))
    allowed = ast.ImportFrom | ast.ClassDef | ast.AsyncFunctionDef | ast.Assign | ast.Expr
    assert not [node for node in tree.body if not isinstance(node, allowed)]
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert called <= {"TypedDict", "_TypedDict"}
    assert {node.module for node in tree.body if isinstance(node, ast.ImportFrom)} <= {
        "typing",
        "typing_extensions",
    }


async def test_every_tool_is_a_function_of_a_plain_name(portal: Opened) -> None:
    functions = portal.portal.catalog.snapshot.library.namespaces["up"].functions
    assert len(functions) == len(TEXTS) + len(NAMES)
    assert all(name.isascii() and name.isidentifier() for name in functions)


@pytest.mark.parametrize("query", ["", "t0", "t3", "red", "up.t5"])
@pytest.mark.parametrize("detail", ["brief", "full"])
async def test_search_shows_nothing_that_steers_a_reader(portal: Opened, query: str, detail: str) -> None:
    text = await portal.search_text(query, detail=detail)
    assert not UNSEEN & set(text)
    if detail == "brief" and query in ("", "red"):
        assert all(line.startswith(("up", "portal", "#")) for line in text.splitlines())
    elif query:
        ast.parse(re.sub(r"^async def up\.", "async def ", text, flags=re.MULTILINE))
