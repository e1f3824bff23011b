"""A manifest's rules on tools, arguments, budgets, flows and people bind each call when it is sent."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from manifests.json_value import Json
from manifests.loader import load_manifest
from portal.catalog.authority import (
    ApprovalNeeded,
    Authority,
    Authorization,
    CallRequest,
    Permit,
    WithheldError,
)
from portal.library.library import Library, LibrarySource
from portal.records.audit.audit import Batch
from portal.records.ledger import Entry
from sandbox_runtime.call_port import CallError
from tests.portal.clients import one_chatty
from tests.portal.peers import Opened, Peer, opened, schema, states, tool, write_manifest
from tests.upstreams.faults.http_server import Fault, FaultyHttpServer, status
from upstreams.tools import RecordedTool

RULES: Json = {
    "allow": ["*", {"tool": "up.write", "where": {"path": {"prefix": "reports/"}}}],
    "ask": ["up.write", {"annotation": "destructive"}],
    "budgets": [{"tool": "up.*", "calls": 2, "per_minute": 3}],
}
SOON: Json = {"park_after_seconds": 0.1}
READS: Json = {"readOnlyHint": True}
FLOWS: Json = {"flows": [{"from": "mail", "not_to": "up"}]}
NOWHERE: Json = {"network": {"allow": ["nowhere.invalid"]}}
FETCH = "await portal.fetch('https://nowhere.invalid/')"


def peer() -> Peer:
    path = schema("path", path={"type": "string"})
    return Peer(tool("read"), tool("write", path), tool("wipe", annotations={"destructiveHint": True}))


@pytest.mark.parametrize(
    ("fault", "code", "state"),
    [
        (status("503 Busy"), "upstream_answer", "unknown"),
        (status("429 Slow", Retry_After="0"), "upstream_busy", "failed"),
        (status("401 Who"), "upstream_unauthorized", "failed"),
    ],
)
async def test_repeat_beyond_the_budget_is_not_sent(
    tmp_path: Path, fault: Fault, code: str, state: str
) -> None:
    for calls, ended in ((1, (code, state)), (2, (None, "done"))):
        tools: Json = {"budgets": [{"tool": "up.look", "calls": calls}]}
        async with (
            FaultyHttpServer(fault).serving() as up,
            opened(tmp_path, {"up": {"url": up.url}}, capabilities={"tools": tools}) as portal,
        ):
            answer = await portal.run("await up.look()")
        [row] = answer["calls"]
        assert (row.get("error", {}).get("code"), row["state"]) == ended
        assert up.arrivals["look"] == calls


async def test_calls_a_minute_are_counted_over_all_runs(tmp_path: Path) -> None:
    up = peer()
    tools: Json = {"budgets": [{"tool": "up.read", "per_minute": 3}]}
    async with opened(tmp_path, {"up": up}, capabilities={"tools": tools}) as portal:
        assert await portal.result_of("await up.read()") == {}
        answer = await portal.run(
            "await asyncio.gather(*(up.read() for _ in range(3)), return_exceptions=True)"
        )
        assert [row["error"]["code"] for row in answer["calls"] if "error" in row] == ["rate_limited"]
        assert await portal.result_of("await up.write(path='x')") == {"path": "x"}
    assert [name for name, _ in up.calls] == [*["read"] * 3, "write"]


async def test_no_answer_of_a_call_in_flight_slips_by(tmp_path: Path) -> None:
    """Data sent to `up` was created before any data from `mail` could exist."""
    code = """\
import asyncio
async def leak(n):
    letter = await mail.read(n=n)
    await up.read(letter=letter)
await asyncio.gather(
    *(up.read(n=n) for n in range(8)), *(leak(n) for n in range(8)), *(up.read(n=n) for n in range(8)),
    return_exceptions=True,
)
await up.read()
"""
    mail, up, limits = Peer(tool("read")), peer(), {"parallel_calls": 3}
    async with opened(tmp_path, {"mail": mail, "up": up}, capabilities={**FLOWS, "limits": limits}) as portal:
        answer = await portal.run(code)
    assert not [arguments for _, arguments in up.calls if "letter" in arguments]
    assert mail.calls and up.calls
    assert answer["error"]["code"] == "not_granted" and "capabilities.flows.0" in answer["error"]["message"]


async def test_fetching_is_going_to_the_network(tmp_path: Path) -> None:
    flows: Json = {"flows": [{"from": "mail", "not_to": "network"}]}
    async with opened(tmp_path, {"mail": peer()}, capabilities={**NOWHERE, **flows}) as portal:
        assert (await portal.error_of(FETCH))["code"] != "not_granted"
        assert (await portal.error_of(f"await mail.read()\n{FETCH}"))["code"] == "not_granted"


async def test_call_that_asks_waits_and_is_not_sent_and_search_says_so(tmp_path: Path) -> None:
    up = peer()
    async with opened(tmp_path, {"up": up}, capabilities={"tools": RULES}, runs=SOON) as portal:
        answer = (
            await portal.call("execute_code", code="await up.read()\nawait up.wipe()")
        ).structured_content
        summaries = {row["name"]: row["summary"] for row in (await portal.search("wipe read"))["functions"]}
        full = await portal.search_text("up.wipe")
    assert answer and answer["waiting"][0]["asked"]["rule"] == "capabilities.tools.ask: destructive tools"
    assert states(answer) == [("up.read", "done"), ("up.wipe", "not_started")]
    assert [name for name, _ in up.calls] == ["read"]
    assert summaries["up.wipe"].startswith("(asks a person first)") and "asks" not in summaries["up.read"]
    assert '"""(asks a person first)' in full


async def test_fetch_that_asks_waits_and_is_permitted_once_approved(tmp_path: Path) -> None:
    grants: Json = {"tools": {"ask": ["portal.fetch"]}, **NOWHERE}
    async with opened(tmp_path, capabilities=grants, runs=SOON) as portal:
        answer = (await portal.call("execute_code", code=FETCH)).structured_content
        assert answer and (answer["status"], answer["waiting"][0]["function"]) == ("waiting", "portal.fetch")
        authorization = Authorization(portal.portal.authority, set())
        request = authorization.of_fetch("portal.fetch", dict, 1)
        assert isinstance(authorization.authorize(request, is_approved=True), Permit)


async def test_call_that_asks_is_refused_if_there_is_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no-folder").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "no-folder"))
    up = peer()
    async with opened(tmp_path, {"up": up}, capabilities={"tools": RULES}) as portal:
        assert (await portal.error_of("await up.wipe()"))["code"] == "runs_unavailable"
        assert await portal.result_of("await up.read()") == {}
    assert [name for name, _ in up.calls] == ["read"]


async def test_resource_whose_method_asks_is_not_read(tmp_path: Path) -> None:
    grants: Json = {"tools": {"ask": ["resources/read"]}}
    read = "found = await portal.resources()\nawait portal.read_resource(found['resources'][0])"
    async with one_chatty() as (_, up), opened(tmp_path, {**up}, capabilities=grants) as portal:
        answer = await portal.run(read)
    assert answer["error"]["code"] == "approval_required"
    assert states(answer) == [("portal.resources", "done"), ("portal.read_resource", "refused")]


def acting_on(prefix: str) -> Json:
    return {"allow": ["*", {"annotation": "open_world", "where": {"path": {"prefix": prefix}}}]}


def act(declared: Json) -> RecordedTool:
    return RecordedTool("act", "", schema("path", path={"type": "string"}), None, declared, None)


def sent(folder: Path, tools: Json, before: Json, now: Json, **audited: Any) -> str:
    """The code of the refusal to send a permitted call whose tool declares something else now; "" if it is sent."""
    written = write_manifest(folder, {"up": {"command": "up"}}, capabilities={"tools": tools})
    authorization = Authorization(Authority.fixed(load_manifest(written, {})), set())
    (function,) = Library.compile([LibrarySource("up", "up", "", (act(before),))]).functions.values()

    def request(declared: Json) -> CallRequest:
        return authorization.of_function(function, (act(declared),), lambda: {"path": "/x"}, 1)

    permit, entry = authorization.authorize(request(before)), Entry(1, "up.act", 0.0)
    assert isinstance(permit, Permit)
    try:
        authorization.confirm(request(now), replace(permit, **audited), entry, was_seen=False)
    except WithheldError as error:
        assert entry.state == "not_started"
        return error.call_error.code
    assert entry.state == "unknown"
    return ""


@pytest.mark.parametrize(
    ("tools", "now", "code"),
    [
        ({"ask": [{"annotation": "open_world"}]}, "openWorldHint", "approval_required"),
        (acting_on("/nowhere/"), "openWorldHint", "not_granted"),
        (acting_on("/"), "openWorldHint", ""),
        ({}, "destructiveHint", "not_granted"),
        ({}, "idempotentHint", ""),
    ],
)
def test_rules_for_what_the_tool_declares_when_it_is_sent_hold(
    tmp_path: Path, tools: Json, now: str, code: str
) -> None:
    """A call that waited for a connection is decided anew: its tool may be another one by then.

    That it is decided then shows tests/portal/library/test_pinning.py.
    """
    assert sent(tmp_path, tools, {}, {now: True}) == code


@pytest.mark.parametrize("audited", [{"is_recorded": False}, {"unwritten": Batch()}])
def test_unwritten_call_is_not_sent_to_what_reads_no_more(tmp_path: Path, audited: Any) -> None:
    assert sent(tmp_path, {}, READS, READS, **audited) == ""
    assert sent(tmp_path, {}, READS, {}, **audited) == "audit_failed"
    assert sent(tmp_path, {}, READS, {}, unwritten=Batch(is_written=True)) == ""


async def requests(portal: Opened) -> tuple[Authorization, Any]:
    """The authorization of a run, and what makes a request for a call of a function of `up`."""
    await portal.search()  # which waits for the upstreams
    functions = (await portal.portal.catalog.fresh()).library.functions
    authorization = Authorization(portal.portal.authority, set())

    def request(name: str, arguments: Json, seq: int) -> CallRequest:
        listed = portal.portal.fleet["up"].tools
        return authorization.of_function(functions[f"up.{name}"], listed, lambda: arguments, seq)

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


async def test_what_a_run_did_before_a_restart_counts_in_it_and_not_in_the_rates(tmp_path: Path) -> None:
    grants: Json = {"tools": RULES, **FLOWS}
    async with opened(tmp_path, {"up": peer(), "mail": Peer(tool("read"))}, capabilities=grants) as portal:
        before, request = await requests(portal)
        assert isinstance(before.authorize(request("read", {}, 1)), Permit)
        keys = [budget.keys for budget in before.counted[1]]
        restarted = Authority.fixed(portal.portal.manifest)

        def resumed(source: str, *, calls: int = 1) -> tuple[Authorization, str]:
            authorization = Authorization(restarted, set())
            for seq in range(1, calls + 1):
                authorization.prime(seq, [*keys, ("capabilities", "tools", "budgets", 7)], [source])
            answer = authorization.authorize(request("read", {}, 3))
            return authorization, answer.code if isinstance(answer, CallError) else "permitted"

        assert resumed("up", calls=2)[1] == "tool_budget"
        assert resumed("mail")[1] == "not_granted"
        same, answer = resumed("up")
        assert answer == "permitted" and same.counted[1] == before.counted[1]
        assert [resumed("up")[1] for _ in range(3)] == ["permitted", "permitted", "rate_limited"]
