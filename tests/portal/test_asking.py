"""A call whose tool asks is decided as any other, then waits for a person; what it counts can be restored."""

import json
from pathlib import Path
from typing import Any

import pytest

from manifests.json_value import Json
from portal.catalog.authority import ApprovalNeeded, Authority, Authorization, CallRates, CallRequest, Permit
from sandbox_runtime.call_port import CallError
from tests.portal.commands import portal_command
from tests.portal.passthrough.peers import one_chatty
from tests.portal.peers import (
    Opened,
    Peer,
    opened,
    raw,
    raw_tools,
    schema,
    sleeper,
    states,
    tool,
    write_manifest,
)

pytestmark = pytest.mark.anyio

SOON: Json = {"park_after_seconds": 0.1}
PATH = schema("path", path={"type": "string"})
RULES: Json = {
    "allow": ["*", {"tool": "up.write", "where": {"path": {"prefix": "reports/"}}}],
    "ask": ["up.write", {"annotation": "destructive"}],
    "budgets": [{"tool": "up.*", "calls": 2, "per_minute": 3}],
}


def peer() -> Peer:
    return Peer(tool("read"), tool("write", PATH), tool("wipe", annotations={"destructiveHint": True}))


async def test_call_that_asks_waits_and_is_not_sent(tmp_path: Path) -> None:
    up = peer()
    async with opened(tmp_path, {"up": up}, capabilities={"tools": RULES}, runs=SOON) as portal:
        result = await portal.call("execute_code", code="await up.read()\nawait up.wipe()")
        answer = result.structured_content
        assert isinstance(answer, dict)
        summaries = {row["name"]: row["summary"] for row in (await portal.search("wipe read"))["functions"]}
        full = await portal.search_text("up.wipe")
    assert (answer["status"], result.is_error) == ("waiting", False)
    assert states(answer) == [("up.read", "done"), ("up.wipe", "not_started")]
    assert answer["waiting"][0]["asked"]["rule"] == "capabilities.tools.ask: destructive tools"
    assert [name for name, _ in up.calls] == ["read"]
    assert summaries["up.wipe"].startswith("(asks a person first)") and "asks" not in summaries["up.read"]
    assert '"""(asks a person first)' in full


async def test_fetch_that_asks_waits(tmp_path: Path) -> None:
    grants: Json = {"tools": {"ask": ["portal.fetch"]}, "network": {"allow": ["nowhere.invalid"]}}
    async with opened(tmp_path, capabilities=grants, runs=SOON) as portal:
        result = await portal.call("execute_code", code="await portal.fetch('https://nowhere.invalid/')")
    answer = result.structured_content
    assert isinstance(answer, dict)
    assert (answer["status"], answer["waiting"][0]["function"]) == ("waiting", "portal.fetch")


async def test_call_that_asks_is_refused_if_there_is_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no-folder").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "no-folder"))
    up = peer()
    async with opened(tmp_path, {"up": up}, capabilities={"tools": RULES}) as portal:
        error = await portal.error_of("await up.wipe()")
        assert await portal.result_of("await up.read()") == {}
    assert error["code"] == "runs_unavailable"
    assert [name for name, _ in up.calls] == ["read"]


async def test_resource_whose_method_asks_is_not_read(tmp_path: Path) -> None:
    grants: Json = {"tools": {"ask": ["resources/read"]}}
    read = (
        "import portal\nfound = await portal.resources()\nawait portal.read_resource(found['resources'][0])"
    )
    async with one_chatty() as (_, up), opened(tmp_path, {**up}, capabilities=grants) as portal:
        answer = await portal.run(read)
    assert answer["error"]["code"] == "approval_required"
    assert states(answer) == [("portal.resources", "done"), ("portal.read_resource", "refused")]


async def test_tool_that_asks_by_the_time_of_sending_is_not_called(tmp_path: Path, own_state: None) -> None:
    behaviour, effect = tmp_path / "behaviour.json", tmp_path / "effect"
    [late] = raw_tools("crash")

    def declares(annotations: Json) -> None:
        behaviour.write_text(json.dumps({"tools": [{**late, "annotations": annotations}]}))

    grants: Json = {"tools": {"ask": [{"annotation": "open_world"}]}}
    declares({})
    async with opened(tmp_path, {"raw": sleeper(behaviour)}) as portal:
        await portal.search("crash")
    declares({"openWorldHint": True})
    async with opened(tmp_path, {"raw": sleeper(behaviour)}, capabilities=grants) as portal:
        answer = await portal.run(f"await raw.crash(acts_on={str(effect)!r})")
    assert answer["error"]["code"] == "approval_required"
    assert not effect.exists()


async def requests(portal: Opened) -> tuple[Authorization, Any]:
    """The authorization of a run, and what makes a request for a call of a function of `up`."""
    await portal.search()  # which waits for the upstreams
    functions = (await portal.portal.catalog.fresh()).library.functions
    authorization = Authorization(portal.portal.authority, set())

    def request(name: str, arguments: Json, seq: int) -> CallRequest:
        listed = portal.portal.fleet["up"].tools
        function = functions[f"up.{name}"]
        return authorization.of_function(function, listed, lambda: arguments, seq)

    return authorization, request


async def test_call_needs_approval_only_if_all_else_permits_it(tmp_path: Path) -> None:
    async with opened(tmp_path, {"up": peer()}, capabilities={"tools": RULES}) as portal:
        authorization, request = await requests(portal)
        refused = authorization.authorize(request("write", {"path": "x"}, 1))
        needed = authorization.authorize(request("write", {"path": "reports/x"}, 2))
        assert isinstance(refused, CallError) and refused.code == "not_granted"
        assert isinstance(needed, ApprovalNeeded)
        assert (needed.arguments, needed.rule) == ({"path": "reports/x"}, "capabilities.tools.ask: up.write")
        assert needed.where.startswith("portal.yaml:")
        assert authorization.counted == {}

        wrong = authorization.authorize(request("write", {"path": "x"}, 3), is_approved=True)
        assert isinstance(wrong, CallError) and wrong.code == "not_granted"
        permit = authorization.authorize(request("write", needed.arguments, 4), is_approved=True)
        assert isinstance(permit, Permit) and permit.is_approved
        assert isinstance(authorization.authorize(request("read", {}, 5)), Permit)
        assert [*authorization.counted] == [4, 5]
        spent = authorization.authorize(request("write", {"path": "reports/x"}, 6))
        assert isinstance(spent, CallError) and spent.code == "tool_budget"


async def test_fetch_is_permitted_once_approved(tmp_path: Path) -> None:
    grants: Json = {"tools": {"ask": ["portal.*"]}, "network": {"allow": ["nowhere.invalid"]}}
    async with opened(tmp_path, capabilities=grants) as portal:
        authorization = Authorization(portal.portal.authority, set())
        kinds = [
            type(authorization.authorize(authorization.of_fetch("portal.fetch", dict, 1), is_approved=each))
            for each in (False, True)
        ]
    assert kinds == [ApprovalNeeded, Permit]


async def test_counts_of_calls_before_a_restart_are_restored(tmp_path: Path) -> None:
    grants: Json = {"tools": RULES, "flows": [{"from": "mail", "not_to": "up"}]}
    async with opened(tmp_path, {"up": peer(), "mail": Peer(tool("read"))}, capabilities=grants) as portal:
        before, request = await requests(portal)
        assert isinstance(before.authorize(request("read", {}, 1)), Permit)
        keys = {seq: [budget.keys for budget in budgets] for seq, budgets in before.counted.items()}
        restarted = Authority(portal.portal.manifest, CallRates())

        def resumed(source: str, age: float | None, *, calls: int = 1) -> tuple[Authorization, str]:
            authorization = Authorization(restarted, set())
            for seq in range(1, calls + 1):
                authorization.prime(seq, [*keys[1], ("capabilities", "tools", "budgets", 7)], [source], age)
            answer = authorization.authorize(request("read", {}, 3))
            return authorization, answer.code if isinstance(answer, CallError) else "permitted"

        assert resumed("up", None, calls=2)[1] == "tool_budget"
        assert resumed("mail", None)[1] == "not_granted"
        same, answer = resumed("up", 60.0)
        assert answer == "permitted" and same.counted[1] == before.counted[1]
        assert resumed("up", 30.0)[1] == "permitted"
        assert 0 < restarted.rates.wait_seconds(before.counted[1][0]) <= 30
        assert resumed("up", None)[1] == "rate_limited"


def test_explain_and_check_tell_which_tool_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    portal = portal_command(monkeypatch, capsys)
    up = raw(tools=raw_tools("echo", "crash"))
    write_manifest(tmp_path, {"up": up}, capabilities={"tools": {"ask": ["up.echo"]}})
    [told] = json.loads(portal("explain", "up.echo", "--json", cwd=tmp_path).stdout)
    [silent] = json.loads(portal("explain", "up.crash", "--json", cwd=tmp_path).stdout)
    assert (told["verdict"], told["asks"]) == ("allow", "capabilities.tools.ask: up.echo")
    assert told["asks_where"].startswith("portal.yaml:") and silent["asks"] == ""
    assert (
        "capabilities.tools.ask: up.echo (portal.yaml:" in portal("explain", "up.echo", cwd=tmp_path).stdout
    )
    rows = portal("check", "up", cwd=tmp_path).stdout.split("\n")
    [asking] = [row for row in rows if row.startswith("up.echo")]
    assert "after approval: capabilities.tools.ask: up.echo" in asking
