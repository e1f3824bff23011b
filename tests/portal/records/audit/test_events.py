"""With `audit` in the manifest every run and call is written down, and what cannot be written is not done."""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from manifests.json_value import Json
from manifests.loader import load_manifest
from portal.base.caller import Caller
from portal.base.errors import AuditError
from portal.records.audit.audit import open_audit
from portal.records.audit.chain import verify
from tests.portal.commands import PortalCommand
from tests.portal.peers import Peer, never, opened, states, text, tool, write_manifest
from tests.portal.records.audit.test_chain import written

AUDIT: Json = {"to": "audit.jsonl"}
SECRET = "s3cret-argument"
READS = {"annotations": {"readOnlyHint": True}}


def events(folder: Path, event: str = "") -> list[dict[str, Json]]:
    lines = [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]
    return [line for line in lines if event in line["event"]]


async def failing(arguments: Json) -> Json:
    return text("no", is_error=True)


async def test_each_call_has_one_decision_before_and_one_outcome_after(tmp_path: Path) -> None:
    up = Peer(tool("read", **READS), tool("write"), tool("fail"), fail=failing)
    code = f"await up.write(note='{SECRET}')\ntry:\n    await up.fail()\nexcept ToolError:\n    pass\nawait up.read()"
    async with opened(tmp_path, {"up": up}, audit=AUDIT) as portal:
        answer = await portal.run(code)
    assert [event["event"] for event in events(tmp_path)] == [
        "portal_started",
        "run_began",
        *["call_decided", "call_ended"] * 3,
        "run_ended",
        "portal_stopped",
    ]
    decided, ended = events(tmp_path, "call_decided"), events(tmp_path, "call_ended")
    assert [each["function"] for each in decided] == ["up.write", "up.fail", "up.read"]
    assert {each["decision"] for each in decided} == {"allow"} and all(each["rule"] for each in decided)
    assert [(each["state"], each["code"]) for each in ended] == [
        ("done", None),
        ("failed", "tool_error"),
        ("done", None),
    ]
    assert {each["run"] for each in [*decided, *ended]} == {answer["run_id"]}
    assert [each["call"] for each in ended] == [1, 2, 3]
    [began] = events(tmp_path, "run_began")
    assert began["who"] == "local"
    assert SECRET not in (tmp_path / "audit.jsonl").read_text()
    assert verify([tmp_path / "audit.jsonl"]).problems == []


async def test_rule_whose_condition_is_met_is_written_also_if_calls_are_counted(tmp_path: Path) -> None:
    rules: list[Json] = [{"tool": "up.write", "where": {"n": {"equals": n}}} for n in (1, 2)]
    tools: Json = {"tools": {"allow": rules, "budgets": [{"tool": "up.*", "calls": 2}]}}
    async with opened(tmp_path, {"up": Peer(tool("write"))}, audit=AUDIT, capabilities=tools) as portal:
        await portal.run("await up.write(n=1)\nawait up.write(n=2)")
    assert len({each["where"] for each in events(tmp_path, "call_decided")}) == 2


async def test_a_person_is_named_whole_and_of_an_mcp_session_only_a_hash_is_written(tmp_path: Path) -> None:
    """A caller who knows the id of a session may use it. A person's name may contain its words."""
    audit = await open_audit(load_manifest(write_manifest(tmp_path, {}, audit=AUDIT), {}))
    long = f"person {'x' * 255} of {'t' * 100} as {'p' * 100}"
    for key in ("person a session b of red", long, "session 0123"):
        audit.run("r", Caller(key, ""), None).began("1")
    person, whole, session = (event["who"] for event in events(tmp_path, "run_began"))
    assert (person, whole) == ("person a session b of red", long)
    assert session.startswith("session ") and "0123" not in session


async def test_refused_calls_are_written_with_their_rule_and_nothing_of_what_the_script_wrote(
    tmp_path: Path,
) -> None:
    typed: Json = {"n": {"type": "integer"}, "source": {"type": "string"}}
    up = Peer(tool("pay", {"properties": typed, "type": "object"}))
    code = f"""\
for arguments in ({{"source": "{SECRET}"}}, {{"n": "{SECRET}"}}, {{"{SECRET}": 1}}, None):
    try:
        await (up.pay(**arguments) if arguments else getattr(up, "x\\n\\x1b[2J")())
    except Exception:
        pass
import portal
try:
    await portal.read_resource("{SECRET}", "{SECRET}")
except ToolError:
    pass
"""
    allowed: Json = {"tools": {"allow": [{"tool": "up.pay", "where": {"source": {"prefix": "ACC-"}}}]}}
    async with opened(
        tmp_path, {"up": up}, audit=AUDIT, capabilities=allowed, server={"check": "off"}
    ) as portal:
        await portal.run(code)
    refused = [each for each in events(tmp_path, "call_refused") if each["code"] != "unknown_function"]
    assert [(each["function"], each["code"]) for each in refused] == [
        ("up.pay", "not_granted"),
        ("up.pay", "invalid_arguments"),
        ("up.pay", "invalid_arguments"),
        ("portal.read_resource", "invalid_arguments"),
    ]
    assert refused[0]["rule"] == "capabilities.tools.allow: up.pay"
    assert refused[0]["where"].startswith("portal.yaml:")
    assert SECRET not in (tmp_path / "audit.jsonl").read_text()
    assert not events(tmp_path, "call_decided")
    assert verify([tmp_path / "audit.jsonl"]).problems == []


async def test_end_of_each_run_is_written(tmp_path: Path) -> None:
    up = Peer(tool("hang"), hang=never)
    async with opened(tmp_path, {"up": up}, audit=AUDIT) as portal, anyio.create_task_group() as tasks:
        await portal.run("await up.nothing()")
        await portal.run("while True: pass", timeout_seconds=0.2)
        tasks.start_soon(portal.run, "await up.hang()\nawait up.hang(after=True)")
        await up.until(lambda: bool(up.calls))
        tasks.cancel_scope.cancel()  # as its client does
    *ended, cancelled = events(tmp_path, "run_ended")
    assert [(each["status"], bool(each["code"])) for each in ended] == [("refused", True), ("error", True)]
    assert (cancelled["status"], cancelled["code"], cancelled["calls"]) == ("cancelled", "", 1)
    assert [each["state"] for each in events(tmp_path, "call_ended")] == ["unknown"]


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Somebody else has the log, so that nothing can be written to it."""
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


async def test_while_the_log_cannot_be_written_only_what_reads_is_called(tmp_path: Path) -> None:
    up = Peer(tool("read", **READS), tool("write"))
    path = tmp_path / "audit.jsonl"
    async with opened(tmp_path, {"up": up}, audit=AUDIT, server={"check": "off"}) as portal:
        with held(path):
            answer = await portal.run("await up.read()\nawait up.write()")
        assert states(answer) == [("up.read", "done"), ("up.write", "refused")]
        assert answer["error"]["code"] == "audit_failed"
        assert (await portal.run("await up.write()"))["status"] == "ok"
    assert [name for name, _ in up.calls] == ["read", "write"]
    assert [each["lost"] > 0 for each in events(tmp_path, "audit_resumed")] == [True]
    assert verify([path]).problems == []


async def test_portal_does_not_start_with_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(AuditError):
        async with opened(tmp_path, {}, audit={"to": "no/such/folder/audit.jsonl"}):
            pass


def test_command_verifies_with_a_head_that_it_told(portal: PortalCommand, tmp_path: Path) -> None:
    path = written(tmp_path)
    head = portal("audit", "head", path.name, cwd=tmp_path).stdout.strip()
    for arguments, status in (
        ((path.name, "--head", head), 0),
        ((path.name, "--head", "x"), 2),
        (("nothing",), 2),
    ):
        assert portal("audit", "verify", *arguments, cwd=tmp_path).returncode == status
    path.write_bytes(path.read_bytes().replace(b'"number": 2', b'"number": 3'))
    done = portal("audit", "verify", path.name, cwd=tmp_path)
    assert done.returncode == 1 and "audit.jsonl:3" in done.stderr
