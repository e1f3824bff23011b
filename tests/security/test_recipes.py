"""No text that reaches a model says how to approve, grant, accept or start something. The twin: operators are told.

What a model can do, a stranger can tell it to do, and many models have a shell.
"""

import ast
import itertools
import re
import secrets
from pathlib import Path
from typing import Any

import anyio.lowlevel
import pytest
import structlog
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

import manifests
import portal
import sandbox_runtime
from manifests.json_value import Json
from manifests.portal_manifest import PortalManifest
from portal.app.http_access import HttpAccess
from portal.app.serving import _readiness
from portal.records.store.records import QuotaError, TooManyRunsError
from portal.runs.forms import approval_form
from portal.runs.journal import unwritten
from tests.portal.commands import PortalCommand
from tests.portal.kept_runs import kept_runs
from tests.portal.peers import Opened, Peer, opened, raw, raw_tools, tool, write_manifest
from tests.portal.pinning import accept
from tests.security.hostile import words
from tests.upstreams.peers import http_peer

pytestmark = pytest.mark.anyio

RECIPE = re.compile(
    r"mcp-code-portal (?!check|login)|runs approve|lock --|--accept|--yes|--config|portal\.yaml:\d|[Tt]o grant it|"
    r"\b(?:write|set|add|remove|raise) (?:\"|server|capabilities|runs|upstreams|profiles)|set by|"
    r"args: \[|on PATH;|full path|in the manifest(?!\\?')|`?oauth\.|transport: |if that is intended|log out and|"
    r"try socks|in portal\.yaml",
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
    *(f"await up.{call}" for call in ("wipe()", "secret()", "write(path='b')", "rare()", "ask()")),
    "await up.once()\nawait up.once()",
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
        tool("wipe", **DESTRUCTIVE), tool("write", path), *map(tool, words("read secret once rare ask"))
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
    rules: Json = {"capabilities": RULES, "runs": {"park_after_seconds": 0.1}, "server": {"check": check}}
    async with opened(tmp_path, {"up": peer(), "new": Peer(tool("tool"))}, **rules) as own:
        with structlog.testing.capture_logs() as logged:
            found = await texts(own)
    assert [match[0] for text in found for match in RECIPE.finditer(text)] == []
    assert len([text for text in found if "ask" in text.lower() and "operator" in text]) > 5
    fixes = " ".join(each["fix"] for each in logged if each["event"] == "call_refused")
    assert '"up.wipe"' in fixes and "Remove" in fixes and "lock --accept" in fixes


async def refusing(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers as its path says."""
    status = int(first) if (first := scope["path"].split("/")[1]).isdigit() else 404
    headers = {"WWW-Authenticate": 'Bearer scope="wide"'} if status == 403 else {}
    moved = {"Location": "https://elsewhere.example/mcp"} if status == 302 else {}
    error: Json = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "no"}}
    is_json = scope["path"].endswith("/json/sse")
    answer = JSONResponse(error, status) if is_json else Response("no", status, {**headers, **moved})
    await answer(scope, receive, send)


STDIO: dict[str, dict[str, Json]] = {
    "split": {"command": "npx -y some-server"},
    "absent": {"command": "no-such-program"},
    "npx": {"command": "npx", "env": {"PATH": "/nowhere"}},
    "away": {"command": "./no-such-program -y"},
    "folder": {"command": "sh", "cwd": "nowhere"},
    "crash": {"command": "sh", "args": ["-c", "echo the-reason >&2; exit 3"]},
}
URLS = {"a401": "401/mcp", "a403": "403/mcp", "sse": "405/sse", "moved": "302/mcp", "json": "404/json/sse"}
REASONS = {
    "split": "'npx -y some-server' was not found on PATH",
    "folder": "does not exist",
    "crash": "the-reason",
    "a401": "HTTP 401",
    "a403": "the scope 'wide'",
    "sse": "HTTP 405",
    "login": "not signed in; run: mcp-code-portal login login",
    "own": "got no token: ",
}
REMEDIES = {
    "split": "args: [-y, some-server]",
    "npx": "Node.js",
    "a401": "`headers`",
    "a403": "`oauth.scope`",
    "sse": "transport: sse",
    "own": "`oauth.token_url`",
}


@pytest.mark.usefixtures("own_state")
async def test_upstream_that_is_down_tells_models_why_and_the_operator_what_to_do(tmp_path: Path) -> None:
    async with http_peer(refusing) as peer:
        at = f"http://127.0.0.1:{peer.port}"
        urls: dict[str, dict[str, Json]] = {name: {"url": f"{at}/{path}"} for name, path in URLS.items()}
        own: Json = {"grant": "client_credentials", "client_id": "x", "client_secret": "y-long", "issuer": at}
        urls |= {
            "login": {"url": f"{at}/401/mcp", "oauth": {}},
            "own": {"url": f"{at}/404/mcp", "oauth": own},
        }
        down: Any = {**STDIO, **urls}
        with structlog.testing.capture_logs() as logged:
            async with opened(tmp_path, down, server={"check": "off"}) as portal:
                fleet = portal.portal.fleet
                read = {name: [await portal.search_text(name)] for name in down}
                scripts = ["await portal.describe('{}.x')", "await portal.resources('{}')", "await {}.x()"]
                for name, code in itertools.product(down, scripts):
                    read[name].append(str(await portal.run(code.format(name))))
                told = {each.name: str(each.state) for each in fleet}
                while not (noted := str(*fleet["json"].diagnostics)):  # the next attempt begins without
                    await anyio.lowlevel.checkpoint()
                ready = str(_readiness(portal.portal, shows_names=True))
    found = {name: RECIPE.findall(text) for name, texts in read.items() for text in texts}
    assert {name: each for name, each in found.items() if each} == {}
    for name, reason in REASONS.items():
        assert all(reason in text for text in (read[name][0], read[name][-1], told[name])), name
        assert "mcp-code-portal check" in read[name][-1]
    assert "transport: sse" in noted
    for name, remedy in REMEDIES.items():
        assert all(remedy in text for text in (told[name], ready)), name
        assert any(remedy in each.get("remedy", "") for each in logged), name


def test_doors_say_which_rule_refuses_and_not_what_to_write() -> None:
    keys = {"token": "x" * 20}, {"tokens": [{"token": "y" * 20}]}
    found = [PortalManifest.model_validate({"server": each}) for each in keys]
    access, by_tokens = (HttpAccess("127.0.0.1", each) for each in found)
    evil = ({"host": "evil.example"}, {"host": "localhost", "origin": "https://evil.example"})
    refusals = [access.refusal(Headers(each)) for each in evil]
    for refused in [*refusals, by_tokens.metrics_refusal(Headers({"host": "localhost"}))]:
        assert refused is not None
        told = bytes(refused.body).decode()
        assert re.search(r"server\.allowed_|telemetry\.metrics_token", told) and RECIPE.findall(told) == []
    assert access.refusal(Headers({"host": "localhost", "origin": "http://localhost:3000"})) is None


def test_form_says_which_rule_asks_and_not_where_it_is() -> None:
    asked: Json = {"function": "up.ask", "upstream": "up", "arguments": {}, "rule": "ask: up.*"}
    told = approval_form("run_1", [{**asked, "where": "portal.yaml:4:2"}], four_eyes=False).params.message
    assert "ask: up.*" in told and RECIPE.findall(told) == []


def test_operator_is_told(portal: PortalCommand, tmp_path: Path) -> None:
    write_manifest(tmp_path, {"up": raw(tools=raw_tools("echo"))}, capabilities={"tools": {"deny": ["up.*"]}})
    told = portal("explain", "up.echo", cwd=tmp_path).stdout
    assert "Remove" in told and "portal.yaml:" in told


HINTS = {"CallError": 2, "RuleError": 2, "FetchError": 2, "RunsError": 2, "RunError": 3}
"""The errors of calls, of requests and of runs, and which of their arguments is the hint."""

SCRIPTS_OWN = {"script_exit", "script_error", "cancelled", "diverged", "result_not_json"}
"""How runs end that nothing refused."""


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
                code = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else ""
                if isinstance(hint, ast.Constant) and not hint.value and code not in SCRIPTS_OWN:
                    silent.append(f"{file.name}:{node.lineno}")
    assert silent == []


REFUSED: list[tuple[str, dict[str, Json]]] = [
    ("execute_code", {}),
    ("execute_code", {"code": 5}),
    ("execute_code", {"code": "1", "x": 1}),
    ("execute_code", {"code": "1", "run": "run_x"}),
    ("execute_code", {"code": "", "run": "run_x"}),
    ("execute_code", {"code": "1", "background": True, "session": "new"}),
    ("docs_search", {"query": 5}),
    ("docs_search", {"query": "x", "limit": 0}),
]


async def test_arguments_that_are_refused_come_with_a_hint(tmp_path: Path) -> None:
    async with opened(tmp_path) as portal:
        for name, arguments in REFUSED:
            refused = await portal.call(name, **arguments)
            assert refused.is_error and (refused.structured_content or {})["error"]["hint"]
            assert not (await portal.call(name, **{"execute_code": {"code": "1"}}.get(name, {}))).is_error


async def test_own_limits_come_with_a_hint_at_every_door(tmp_path: Path) -> None:
    async with kept_runs(tmp_path, quota_mib=1) as kept, kept.client() as http:
        script = {"code": secrets.token_hex(400_000)}
        answers = [await http.post("/runs", json=script) for _ in range(4)]
    assert [each.status_code for each in answers[:1]] == [202]
    error = answers[-1].json()["error"]
    assert error["code"] == "quota_exceeded" and error["hint"]
    assert all(unwritten(kind("x"), "y").hint for kind in (QuotaError, TooManyRunsError))
