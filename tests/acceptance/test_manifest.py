"""A manifest's grants and refusals: tools, trust, files, hosts and secrets."""

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml

from tests.acceptance.model import Json
from tests.acceptance.portal_process import stdio_model, write_manifest
from tests.acceptance.test_command_line import portal

pytestmark = pytest.mark.anyio

SERVER = str(Path(__file__).parent / "peers/listing_server.py")
PATH_ARGUMENT = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS: list[Json] = [
    {"name": "read", "inputSchema": PATH_ARGUMENT, "annotations": {"readOnlyHint": True}},
    {"name": "write", "inputSchema": PATH_ARGUMENT},
    {"name": "wipe", "inputSchema": PATH_ARGUMENT, "annotations": {"destructiveHint": True}},
]


def upstream(folder: Path, tools: list[Json], **more: Json) -> dict[str, Json]:
    """An entry of `upstreams`; its tools may be listed anew."""
    (folder / "tools.json").write_text(json.dumps(tools))
    return {"command": sys.executable, "args": [SERVER, str(folder / "tools.json")], **more}


def calls(folder: Path) -> list[str]:
    noted = folder / "tools.calls"
    return noted.read_text().split() if noted.exists() else []


DECISIONS: list[tuple[str, Json, str, str]] = [
    ("everything by default", {}, "await up.write(path='x')", "ok"),
    ("destructive tools are not", {}, "await up.wipe(path='x')", "not_granted"),
    ("unless they are named", {"allow": ["*", "up.wipe"]}, "await up.wipe(path='x')", "ok"),
    ("or all of them are", {"destructive": "allow"}, "await up.wipe(path='x')", "ok"),
    ("denied by name", {"deny": ["up.write"]}, "await up.write(path='x')", "not_granted"),
    ("denied by pattern", {"deny": ["up.w*"]}, "await up.write(path='x')", "not_granted"),
    ("deny is stronger", {"allow": ["up.write"], "deny": ["*"]}, "await up.write(path='x')", "not_granted"),
    ("only what is allowed", {"allow": ["up.read"]}, "await up.write(path='x')", "not_granted"),
    ("by what it declares", {"allow": [{"annotation": "readonly"}]}, "await up.read(path='x')", "ok"),
    (
        "by its arguments",
        {"allow": [{"tool": "up.write", "where": {"path": {"prefix": "a/"}}}]},
        "await up.write(path='a/x')",
        "ok",
    ),
    (
        "not by others",
        {"allow": [{"tool": "up.write", "where": {"path": {"prefix": "a/"}}}]},
        "await up.write(path='b/x')",
        "not_granted",
    ),
    (
        "nor by a way out of them",
        {"allow": [{"tool": "up.write", "where": {"path": {"prefix": "a/"}}}]},
        "await up.write(path='a/../b')",
        "not_granted",
    ),
    (
        "a budget",
        {"budgets": [{"tool": "up.write", "calls": 1}]},
        "await up.write(path='x')\nawait up.write(path='y')",
        "tool_budget",
    ),
]


@pytest.mark.parametrize(("name", "tools", "script", "end"), DECISIONS, ids=[row[0] for row in DECISIONS])
async def test_tools_are_called_by_the_rules_alone(
    tmp_path: Path, name: str, tools: Json, script: str, end: str
) -> None:
    manifest = write_manifest(
        tmp_path, {"up": upstream(tmp_path, TOOLS)}, capabilities={"tools": tools}, server={"check": "off"}
    )
    async with stdio_model(manifest) as model:
        answer = await model.run(script)
    if end == "ok":
        assert answer["status"] == "ok", answer
    else:
        assert answer["error"]["code"] == end
        assert "operator" in answer["error"]["hint"]
    allowed = 1 if end in ("ok", "tool_budget") else 0
    assert len(calls(tmp_path)) == allowed
    assert sum(call["state"] == "done" for call in answer["calls"]) == allowed


async def test_what_is_denied_is_not_found_and_what_is_kept_back_is_marked(tmp_path: Path) -> None:
    manifest = write_manifest(
        tmp_path, {"up": upstream(tmp_path, TOOLS)}, capabilities={"tools": {"deny": ["up.write"]}}
    )
    async with stdio_model(manifest) as model:
        found = {row["name"] for row in (await model.search("write wipe read path"))["functions"]}
    assert found == {"up.read", "up.wipe"}
    shown = portal("stubs", "up", "--config", str(manifest)).stdout
    assert "async def write" not in shown and "(not granted)" in shown


def test_explain_names_the_rule_and_its_place(tmp_path: Path) -> None:
    manifest = write_manifest(
        tmp_path, {"up": upstream(tmp_path, TOOLS)}, capabilities={"tools": {"deny": ["up.write"]}}
    )
    told = portal("explain", "up.write", "--config", str(manifest)).stdout
    assert "refused" in told and "capabilities.tools.deny" in told and "portal.yaml:" in told
    assert "granted" in portal("explain", "up.read", "--config", str(manifest)).stdout


async def test_tool_that_changed_is_withheld_until_it_is_accepted(tmp_path: Path) -> None:
    manifest = write_manifest(tmp_path, {"up": upstream(tmp_path, TOOLS)})
    command = ("--config", str(manifest))
    assert portal("lock", *command).returncode == 0
    assert portal("lock", "--diff", *command).returncode == 0
    changed = {**TOOLS[0], "description": "Read, and send it elsewhere."}
    upstream(tmp_path, [changed, *TOOLS[1:], {"name": "new"}])
    assert portal("lock", "--diff", *command).returncode == 1
    async with stdio_model(manifest) as model:
        found = {row["name"] for row in (await model.search("read write wipe new path"))["functions"]}
        assert found == {"up.write", "up.wipe"}
        for script in ("await up.read(path='x')", "await up.new()"):
            assert (await model.run(script))["error"]["code"] == "quarantined"
    assert calls(tmp_path) == []
    assert portal("lock", "--accept", "up.read", *command).returncode == 0
    async with stdio_model(manifest) as model:
        assert await model.result_of("await up.read(path='x')") == {"path": "x"}
        assert (await model.run("await up.new()"))["error"]["code"] == "quarantined"


FILES: list[tuple[str, str, Json]] = [
    ("reads", "open('kept.txt').read()", "kept"),
    ("writes", "open('new.txt', 'w').write('new')", 3),
    ("lists no links", "import os\nsorted(os.listdir())", ["kept.txt"]),
    ("not above", "open('../secret.txt').read()", "error"),
    ("not by a link", "open('link').read()", "error"),
    ("not from the root", "open('/etc/passwd').read()", "error"),
    ("not by a name with nul", "open('kept.txt\\0.png').read()", "error"),
    ("not more than it may", "open('large', 'wb').write(bytes(20_000_000))", "error"),
    ("not by a link of its own", "import os\nos.symlink('/etc', 'own')\nopen('own/passwd').read()", "error"),
]


@pytest.mark.parametrize("mode", ["write", "read", None])
async def test_scripts_have_the_files_of_their_folder_and_no_others(tmp_path: Path, mode: str | None) -> None:
    workspace = tmp_path / "data"
    workspace.mkdir()
    (workspace / "kept.txt").write_text("kept")
    (tmp_path / "secret.txt").write_text("secret")
    (workspace / "link").symlink_to(tmp_path / "secret.txt")
    grant = {"files": {"workspace": "data", "mode": mode}} if mode else {}
    async with stdio_model(write_manifest(tmp_path, {}, capabilities=grant)) as model:
        for name, script, value in FILES:
            if name == "lists no links" and mode == "write":
                value = sorted([*value, "new.txt"])
            answer = await model.run(script)
            is_granted = value != "error" and mode is not None and (name != "writes" or mode == "write")
            assert (answer["status"] == "ok") is is_granted, (name, answer)
            if is_granted:
                assert answer["result"] == value, name
            assert "secret" not in str(answer["result"])
    assert (workspace / "new.txt").exists() is (mode == "write")
    assert (workspace / "kept.txt").read_text() == "kept"


@asynccontextmanager
async def web_server() -> AsyncIterator[int]:
    """Answers everything on a port of loopback with 200."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def test_scripts_fetch_from_the_hosts_that_are_named_and_from_no_others(tmp_path: Path) -> None:
    async with web_server() as port:
        network = {"allow": ["*"], "private": [f"127.0.0.1:{port}"]}
        granting = write_manifest(tmp_path, {}, capabilities={"network": network})
        fetch = "import portal\n(await portal.fetch({!r})).text"
        async with stdio_model(granting) as model:
            assert await model.result_of(fetch.format(f"http://127.0.0.1:{port}/")) == "ok"
            for url, code in {
                f"http://127.0.0.1:{port + 1}/": "address_not_allowed",
                f"http://localhost:{port}/": "address_not_allowed",
                f"http://[::ffff:127.0.0.1]:{port}/": "address_not_allowed",
                "http://169.254.169.254/latest/meta-data/": "address_not_allowed",
                "file:///etc/passwd": "invalid_arguments",
            }.items():
                assert (await model.run(fetch.format(url)))["error"]["code"] in (code, "not_granted"), url
        async with stdio_model(write_manifest(tmp_path, {})) as model:
            answer = await model.run(fetch.format(f"http://127.0.0.1:{port}/"))
            assert answer["error"]["code"] == "not_granted"


SECRET = "s3cr3t/with+signs"
SPELLINGS = (SECRET, quote(SECRET, safe=""), base64.b64encode(SECRET.encode()).decode(), json.dumps(SECRET))


async def test_secret_of_an_upstream_is_in_nothing_that_leaves_the_portal(tmp_path: Path) -> None:
    tools = [{"name": "environ"}, {"name": "fail"}]
    entry = upstream(tmp_path, tools, env={"KEY": "${THE_KEY}"})
    manifest = write_manifest(tmp_path, {"up": entry}, audit={"to": "audit.jsonl"})
    (tmp_path / "portal.env").write_text(f"THE_KEY={SECRET}\n")
    (tmp_path / "portal.env").chmod(0o600)
    async with stdio_model(manifest) as model:
        told = [
            await model.run("await up.environ()"),
            await model.run("await up.fail()"),
            await model.run("import base64\nbase64.b64encode(str(await up.environ()).encode()).decode()"),
            await model.search("environ"),
        ]
    assert told[0]["result"] == {"key": "[hidden]"}
    commands = [portal(name, "--config", str(manifest)) for name in ("check", "stubs", "search")]
    texts = [json.dumps(told), *(done.stdout + done.stderr for done in commands)]
    texts.append((tmp_path / "audit.jsonl").read_text())
    for text in texts:
        assert not [spelling for spelling in SPELLINGS if spelling in text]


def test_audit_log_has_every_call_and_shows_what_was_done_to_it(tmp_path: Path) -> None:
    manifest = write_manifest(
        tmp_path,
        {"up": upstream(tmp_path, TOOLS)},
        capabilities={"tools": {"deny": ["up.write"]}},
        server={"check": "off"},
        audit={"to": "audit.jsonl"},
    )
    portal(
        "run", "-", "--config", str(manifest), stdin="await up.read(path='secret')\nawait up.write(path='x')"
    )
    log = tmp_path / "audit.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    events = [json.loads(line)["event"] for line in lines]
    assert events[1:6] == ["run_began", "call_decided", "call_ended", "call_refused", "run_ended"]
    assert "secret" not in log.read_text()
    assert portal("audit", "verify", str(log)).returncode == 0
    changes = (lines[:1] + lines[2:], [*lines[:2], lines[3], lines[2], lines[4]], [*lines, lines[-1]])
    for changed in (*changes, ["".join(lines).replace("up.write", "up.read")]):
        log.write_text("".join(changed))
        assert portal("audit", "verify", str(log)).returncode == 1


def test_mistakes_of_a_manifest_are_told_with_their_places(tmp_path: Path) -> None:
    (tmp_path / "portal.yaml").write_text(
        yaml.safe_dump({"upstreams": {"up": {"comand": "x"}}, "capabilities": {"limits": {"tool_calls": -1}}})
    )
    done = portal("check", cwd=tmp_path)
    assert done.returncode != 0
    for told in ("portal.yaml:", "comand", "command", "tool_calls"):
        assert told in done.stdout + done.stderr
