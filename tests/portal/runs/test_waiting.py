"""A run may wait for a person, a time or an event without a worker, and goes on where it was."""

import json
import os
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp_types import CallToolResult

from manifests.json_value import Json
from portal.identity.approvers import Approvers, Decider
from portal.records.store.records import OPEN, CallRow
from portal.records.store.run_tables import RunTables
from portal.runs import execution
from portal.runs.decisions import decide_call
from portal.runs.waits import approved_arguments
from sandbox_runtime.call_port import CallError
from sandbox_runtime.errors import ReplayInterruptedError
from tests.portal.peers import DEADLINE_SECONDS, Opened, Peer, opened, raw, schema, states, text, tool
from tests.portal.rows import opened as tables_in

ASKS: Json = {"tools": {"ask": ["git.merge"]}}
DENIES: Json = {"tools": {"ask": ["git.merge"], "deny": ["git.merge"]}}
SOON: Json = {"park_after_seconds": 0}
KEPT: Json = {"store": "runs.sqlite", "park_after_seconds": 0.1}


def git(**acts: Any) -> Peer:
    return Peer(tool("merge"), tool("status", annotations={"readOnlyHint": True}), tool("push"), **acts)


async def answer_of(portal: Opened, run: str, *, until: str = "ok") -> dict[str, Json]:
    """The answer of a run, once it has this status."""
    with anyio.fail_after(DEADLINE_SECONDS):
        while True:
            result = await portal.call("execute_code", run=run)
            answer = result.structured_content
            if answer["status"] == until:
                return answer
            assert answer["status"] in ("running", "waiting"), answer
            await anyio.sleep(0.01)


async def approved(portal: Opened, run: str, *, until: str = "ok", **decision: Json) -> dict[str, Json]:
    """The answer of a run, once a person has approved the one call that waits."""
    await portal.portal.runs.decide(run, None, Decider("ann"), is_approved=True, **decision)
    return await answer_of(portal, run, until=until)


async def found(portal: Opened, work: Callable[[RunTables], Any], is_it: Callable[[Any], bool]) -> Any:
    """The run's state in the store, once it is this one."""
    store = portal.portal.runs.store_or_error()
    with anyio.fail_after(DEADLINE_SECONDS):
        while not is_it(got := await store.read(work)):  # noqa: ASYNC110
            await anyio.sleep(0.02)
    return got


async def end_of(portal: Opened, run: str) -> str:
    """The state in which a run has ended."""
    row = partial(RunTables.row, run=run)
    return str((await found(portal, row, lambda row: row and row.state not in OPEN)).state)


async def waiting(portal: Opened, code: str, **arguments: Json) -> dict[str, Json]:
    """The answer of a run that waits."""
    result = await portal.call("execute_code", code=code, **arguments)
    answer = result.structured_content
    assert (answer["status"], result.is_error) == ("waiting", False), answer
    return answer


async def test_a_run_that_asks_waits_for_a_person_and_then_does_exactly_that(tmp_path: Path) -> None:
    merge = tool("merge", annotations={"destructiveHint": True, "openWorldHint": True})
    peer = Peer(merge, tool("status", annotations={"readOnlyHint": True}))
    code = "a = await git.status(n=1)\nb = await git.merge(id=7)\n[a, b]"
    async with opened(tmp_path, {"git": peer}, capabilities=ASKS, runs=SOON) as portal:
        answer = await waiting(portal, code)
        (asked,) = answer["waiting"]
        assert (asked["seq"], asked["kind"], asked["function"]) == (2, "ask", "git.merge")
        assert asked["asked"]["arguments"] == {"id": 7}
        (call,) = (await portal.portal.runs.load(answer["run_id"], None)).calls
        assert json.loads(call.shown)["hints"] == "destructive, open world", "the person sees it"
        assert {"hints", "where"}.isdisjoint(asked["asked"]), "and the model does not"
        assert [name for name, _ in peer.calls] == ["status"]
        done = await approved(portal, answer["run_id"])
        assert done["result"] == [{"n": 1}, {"id": 7}]
        assert states(done) == [("git.status", "done"), ("git.merge", "done")]
        assert peer.calls == [("status", {"n": 1}), ("merge", {"id": 7})]


async def test_a_run_that_goes_on_waits_for_an_upstream_that_starts(tmp_path: Path) -> None:
    os.mkfifo(go := tmp_path / "go")
    sections: dict[str, Json] = {"capabilities": {"tools": {"ask": ["slow.echo"]}}, "runs": KEPT}
    async with opened(tmp_path, {"slow": raw()}, **sections) as portal:
        run = (await waiting(portal, "(await slow.echo(n=1))['n']"))["run_id"]
    async with opened(tmp_path, {"slow": raw(waits_for=str(go))}, **sections) as portal:
        await portal.portal.runs.decide(run, None, Decider("ann"), is_approved=True)
        await answer_of(portal, run, until="running")
        assert await portal.result_of("1") == 1  # now the other one has come to where it waits
        await anyio.to_thread.run_sync(go.write_text, "go")
        assert (await answer_of(portal, run))["result"] == 1


async def test_a_person_may_change_the_arguments_and_they_are_authorised_again(tmp_path: Path) -> None:
    peer = git()
    rules: Json = {
        "tools": {"ask": ["git.merge"], "allow": [{"tool": "git.merge", "where": {"id": {"max": 10}}}]}
    }
    async with opened(tmp_path, {"git": peer}, capabilities=rules, runs=SOON) as portal:
        for changed, status in ((8, "ok"), (99, "error")):
            run = (await waiting(portal, "await git.merge(id=7)"))["run_id"]
            done = await approved(portal, run, until=status, arguments={"id": changed})
        assert done["error"]["code"] == "not_granted"
        assert peer.calls == [("merge", {"id": 8})]


@pytest.mark.parametrize(("code", "status"), [("cpu_limit", "error"), ("sandbox_busy", "ok")])
async def test_a_run_that_cannot_come_back_to_where_it_was_ends_unless_trying_again_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, status: str
) -> None:
    go_on = execution.resume

    async def fail_once(*given: Any, **how: Any) -> Any:
        monkeypatch.setattr(execution, "resume", go_on)
        raise ReplayInterruptedError("for a reason", code)

    async with opened(tmp_path, {"git": git()}, capabilities=ASKS, runs=SOON) as portal:
        run = (await waiting(portal, "await git.merge(id=7)"))["run_id"]
        monkeypatch.setattr(execution, "resume", fail_once)
        done = await approved(portal, run, until=status)
        assert (done["error"] or {}).get("code") == (code if status == "error" else None)


async def test_a_short_sleep_holds_the_run_and_writes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as portal:
        assert await portal.result_of("await portal.sleep(0.01)\n1") == 1
        assert await portal.portal.runs.store.read(RunTables.listed) == []


async def test_an_event_wakes_the_run_with_its_payload(tmp_path: Path) -> None:
    settings: Json = {"park_after_seconds": 0.1, "public_url": "https://portal.example"}
    async with opened(tmp_path, runs=settings) as portal:
        code = "url = await portal.event_url('deployed')\nprint(url)\n(await portal.event('deployed'))['version']"
        answer = await waiting(portal, code)
        stored = await portal.portal.runs.load(answer["run_id"], None)
        assert stored.row.state == "waiting"
        store = portal.portal.runs.store_or_error()
        token = await store.write(lambda file: file.hook(answer["run_id"], "deployed"))
        assert await portal.portal.runs.deliver(token, json.dumps({"version": 3}).encode())
        done = await answer_of(portal, answer["run_id"])
        assert done["result"] == 3
        assert done["stdout"] == f"https://portal.example/hooks/{token}\n"


async def test_event_that_came_is_found_by_a_portal_without_a_url(tmp_path: Path) -> None:
    async with opened(tmp_path, runs={**KEPT, "public_url": "https://portal.example"}) as portal:
        run = (await waiting(portal, "await portal.event('deployed')"))["run_id"]
        token = await portal.portal.runs.store_or_error().read(lambda file: file.hook(run, "deployed"))
    with closing(tables_in(tmp_path)) as file, file.transaction():  # while no portal runs
        file.deliver(token, b'{"version": 3}')
    async with opened(tmp_path, runs=KEPT) as portal:
        assert (await answer_of(portal, run))["result"] == {"version": 3}
        (refused,) = (await portal.run("await portal.event('other')"))["calls"]
        assert refused["error"]["code"] == "no_public_url"


@pytest.mark.parametrize("more", [{}, {"session": "new"}], ids=["parked", "in its worker"])
async def test_a_wait_ends_when_its_time_has_come(tmp_path: Path, more: dict[str, Json]) -> None:
    code = """
print('before')
await portal.sleep(0.2)
try:
    found = await portal.event('deployed', timeout=0.2)
except ToolError as error:
    found = error.code
found"""
    async with opened(tmp_path, runs={**SOON, "public_url": "https://portal.example"}) as portal:
        run = (await portal.call("execute_code", code=code, **more)).structured_content["run_id"]
        answer = await answer_of(portal, run)
        assert (answer["result"], answer["stdout"]) == ("event_timeout", "before\n")
        rows = await portal.portal.runs.store_or_error().read(partial(RunTables.calls, run=run))
        assert [(row.kind, row.state) for row in rows] == [("sleep", "done"), ("event", "done")]


async def test_a_declared_text_with_json_stays_a_text_for_a_run_that_began_before_it_was_data(
    tmp_path: Path,
) -> None:
    async def get(arguments: dict[str, Json]) -> CallToolResult:
        return text("[1]").model_copy(update={"structured_content": {"result": "[1]"}})

    wrapped = {"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]}
    peer = Peer(tool("status", output_schema=wrapped), status=get)
    script = "seen = [await git.status() for _ in range(3)]\nawait portal.approve('On?')\n[*seen, await git.status()]"
    async with opened(tmp_path, {"git": peer}, runs=SOON) as portal:
        answer = await waiting(portal, script)
        assert (await approved(portal, answer["run_id"]))["result"] == ["[1]"] * 4
        assert await portal.result_of("await git.status()") == [1]


async def test_call_that_the_script_gave_up_before_it_waited_still_counts(tmp_path: Path) -> None:
    arrived = anyio.Event()

    async def status(arguments: dict[str, Json]) -> CallToolResult:
        arrived.set()
        if arguments["n"] == 1:
            await anyio.sleep_forever()
        return text("seen")

    async def push(arguments: dict[str, Json]) -> CallToolResult:
        await arrived.wait()
        return text("pushed")

    peer = git(status=status, push=push)
    rules: Json = {
        "tools": {"budgets": [{"tool": "git.status", "calls": 1}, {"tool": "git.push", "calls": 1}]}
    }
    code = """
given_up = asyncio.create_task(git.status(n=1))
await git.push()
given_up.cancel()
await portal.approve('go on?')
try:
    await git.push()
except ToolError as error:
    print(error.code)
await git.status(n=2)
"""
    async with opened(tmp_path, {"git": peer}, capabilities=rules, runs=SOON) as portal:
        done = await approved(portal, (await waiting(portal, code))["run_id"], until="error")
        assert done["error"]["code"] == "tool_budget"
        assert done["stdout"] == "tool_budget\n", "one that ended counts too"
        assert ("git.status", "unknown") in states(done)
        assert [name for name, _ in peer.calls].count("status") == 1


async def test_a_secret_of_digits_leaves_the_numbers_of_a_run_that_waits(tmp_path: Path) -> None:
    account = "471147114711"
    code = (
        f"a = await git.push(n={account}, m='{account}')\nprint({account})\nawait portal.approve('On?')\n"
        f"[a, {account}, '{account}', {{'{account}': 1.{account}}}]"
    )
    more: dict[str, Json] = {"runs": SOON, "server": {"token": "${KEY}"}, "environ": {"KEY": account}}
    async with opened(tmp_path, {"git": git()}, **more) as portal:
        run = (await waiting(portal, code))["run_id"]
        done = await approved(portal, run)
        stored = await answer_of(portal, run)
        assert stored == done
    number, hidden = int(account), "[hidden]"
    assert done["result"] == [{"n": number, "m": hidden}, number, hidden, {hidden: float(f"1.{account}")}]
    assert account not in done["stdout"]


async def test_notices_of_calls_before_a_run_waited_are_in_its_answer_once(tmp_path: Path) -> None:
    texts: dict[str, Json] = {"type": "array", "items": {"type": "string"}}
    peer = Peer(tool("push", schema("n", n=texts, m={"type": "object", "additionalProperties": texts})))
    code = "await git.push(n='canary' * 3, m={'canary' * 3: 'a'})\nawait portal.approve('On?')\nawait git.push(n='b')"
    more: dict[str, Json] = {"runs": SOON, "server": {"token": "${KEY}"}, "environ": {"KEY": "canary" * 3}}
    async with opened(tmp_path, {"git": peer}, **more) as portal:
        run = (await waiting(portal, code))["run_id"]
        head = await portal.portal.runs.store_or_error().read(partial(RunTables.head, run=run))
        done = await approved(portal, run)
    assert [arguments["n"] for _, arguments in peer.calls] == [["canary" * 3], ["b"]]
    notices = done["notices"]
    assert ["was sent as" in each and "(2 times)" in each for each in notices] == [True, False]
    assert b"was sent as" in head and b"canary" * 3 not in head, (
        "it is masked like all that a script computed"
    )


@pytest.mark.parametrize(
    ("decision", "digest", "sha256", "found"),
    [
        (b"{}", "shown", "shown", {"id": 7}),
        (b'{"arguments": null}', "shown", "shown", {"id": 7}),
        (b"{}", "other", "shown", "tool_changed"),
        (b"{}", "shown", "other", "arguments_changed"),
        (b'{"arguments": {"id": 8}}', "shown", "other", {"id": 8}),
        (b'{"arguments": {"id": 8}}', "other", "shown", "tool_changed"),
    ],
)
def test_approval_counts_only_for_what_was_shown(
    decision: bytes, digest: str, sha256: str, found: Json
) -> None:
    row = CallRow("run_1", 1, "ask", "git.merge", "approved", "shown", "shown", decision=decision)
    got = approved_arguments(row, {"id": 7}, digest, sha256)
    assert (got.code if isinstance(got, CallError) else got) == found


DECISIONS: dict[str, tuple[dict[str, Any], Json]] = {
    "approved": ({"is_approved": True}, {"id": 7}),
    "denied": ({"is_approved": False}, "denied"),
    "changed": ({"is_approved": True, "arguments": {"id": 8}}, {"id": 8}),
}


@pytest.mark.parametrize("is_denied", [True, False])
async def test_decision_holds_though_its_rule_is_gone_if_the_call_is_still_allowed(
    tmp_path: Path, is_denied: bool
) -> None:
    script = "try:\n    got = await git.merge(id=7)\nexcept ToolError as error:\n    got = error.code\ngot"
    decisions = {"approved": (DECISIONS["approved"][0], "not_granted")} if is_denied else DECISIONS
    async with opened(tmp_path, {"git": git()}, capabilities=ASKS, runs=KEPT) as portal:
        runs = {name: (await waiting(portal, script))["run_id"] for name in decisions}
    with closing(tables_in(tmp_path)) as file, file.transaction():  # while no portal runs
        for name, (decision, _) in decisions.items():
            decide_call(file, runs[name], 1, Decider("ann"), Approvers(), **decision)
    peer = git()
    async with opened(tmp_path, {"git": peer}, capabilities=DENIES if is_denied else {}, runs=KEPT) as portal:
        for name, (_, found) in decisions.items():
            assert (await answer_of(portal, runs[name]))["result"] == found
    assert len(peer.calls) == (0 if is_denied else 2)
