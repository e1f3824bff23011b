"""No text that reaches a model says how to approve, grant, accept or start something. The twin: operators are told.

What a model can do, a stranger can tell it to do, and many models have a shell.
"""

import ast
import gc
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

import manifests
import portal
import sandbox_runtime
from manifests.json_value import Json
from tests.portal.commands import portal_command
from tests.portal.peers import Opened, Peer, opened, raw, raw_tools, tool, write_manifest
from tests.portal.pinning import accept

pytestmark = pytest.mark.anyio

RECIPE = re.compile(
    r"mcp-code-portal (?!check)|runs approve|lock --|--accept|--yes|--config|portal\.yaml:\d|[Tt]o grant it|"
    r"\b(?:write|set|add|remove) (?:\"|server|capabilities|runs|upstreams|profiles)",
    re.IGNORECASE,
)
DESTRUCTIVE: Json = {"annotations": {"destructiveHint": True}}
RULES: Json = {
    "tools": {
        "allow": ["*", {"tool": "up.write", "where": {"path": {"equals": "a"}}}],
        "deny": ["up.secret", "portal.fetch"],
        "ask": ["up.ask"],
        "budgets": [{"tool": "up.once", "calls": 1}, {"tool": "up.rare", "per_minute": 0}],
    },
    "network": {"allow": ["a.example"]},
    "flows": [{"from": "up", "not_to": "network"}],
}
SCRIPTS = [
    "await up.wipe()",
    "await up.secret()",
    "await up.write(path='b')",
    "await up.once()\nawait up.once()",
    "await up.rare()",
    "await up.ask()",
    "await portal.approve('?')",
    "await up.read()\nawait portal.fetch('https://a.example')",
    "await portal.event('x')",
    "await new.tool()",
    "open('/workspace/x')",
    "await nothing.at_all()",
]


def peer() -> Peer:
    path: Json = {"type": "object", "properties": {"path": {"type": "string"}}}
    return Peer(
        tool("wipe", **DESTRUCTIVE),
        tool("write", path),
        *map(tool, ("read", "secret", "once", "rare", "ask")),
    )


async def texts(own: Opened) -> list[str]:
    """Everything that a model reads about these scripts and tools."""
    found = [str(await own.client.list_tools())]
    for code in SCRIPTS:
        result = await own.call("execute_code", code=code)
        found.append(f"{code}: {result.content}")
        run = (result.structured_content or {}).get("run_id")
        found.append(str((await own.call("execute_code", code="", run=run or "run_unknown")).content))
    for name in ("wipe", "secret", "write", "ask", "fetch", ""):
        found += [str(await own.search(name)), await own.search_text(f"up.{name}", detail="full")]
        described = await own.call("execute_code", code=f"await portal.describe('up.{name}')")
        found.append(str(described.content))
    return found


@pytest.mark.parametrize("check", ["strict", "off"])
async def test_no_text_for_a_model_is_a_recipe(tmp_path: Path, check: str) -> None:
    await accept(tmp_path, {"up": peer()})
    runs: Json = {"park_after_seconds": 0.1}
    async with opened(
        tmp_path,
        {"up": peer(), "new": Peer(tool("tool"))},
        capabilities=RULES,
        runs=runs,
        server={"check": check},
    ) as own:
        with structlog.testing.capture_logs() as logged:
            found = await texts(own)
    assert [match[0] for text in found for match in RECIPE.finditer(text)] == []
    assert len([text for text in found if "ask" in text.lower() and "operator" in text]) > 5
    fixes = " ".join(each["fix"] for each in logged if each["event"] == "call_refused")
    assert '"up.wipe"' in fixes and "Remove" in fixes and "lock --accept" in fixes


def test_operator_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = portal_command(monkeypatch, capsys)
    write_manifest(tmp_path, {"up": raw(tools=raw_tools("echo"))}, capabilities={"tools": {"deny": ["up.*"]}})
    told = run("explain", "up.echo", cwd=tmp_path).stdout
    assert "Remove" in told and "portal.yaml:" in told


HINTS = {"CallError": 2, "RuleError": 2, "FetchError": 2, "RunsError": 2}
"""The errors of calls and of requests, and which of their arguments is the hint."""


@pytest.fixture
def no_collections() -> Iterator[None]:
    """Python 3.11 may fail to parse if it collects garbage meanwhile."""
    gc.disable()
    yield
    gc.enable()


def test_no_refusal_is_without_a_hint(no_collections: None) -> None:
    silent = []
    for package in (portal, manifests, sandbox_runtime):
        for file in Path(package.__file__).parent.rglob("*.py"):
            if "guest" in file.parts:  # what runs inside refuses nothing
                continue
            for node in ast.walk(ast.parse(file.read_text())):
                name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
                if name not in HINTS or any(isinstance(each, ast.Starred) for each in node.args):
                    continue
                named = [each.value for each in node.keywords if each.arg in ("hint", None)]
                hint = next(iter([*named, *node.args[HINTS[name] :]]), ast.Constant(""))
                if isinstance(hint, ast.Constant) and not hint.value:
                    silent.append(f"{file.name}:{node.lineno}")
    assert silent == []
