"""An approval stands for later calls of this function in this run, as a person wanted it, and for nothing else."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp_types import ElicitResult

from manifests.json_value import Json
from portal.base.errors import RunsError
from portal.calls.channel import ClientChannel
from portal.identity.approvers import Approvers, Decider
from portal.records.store.records import CallRow, RunRow
from portal.records.store.run_tables import RunTables
from portal.runs.decisions import decide_call, details, let_pass
from portal.runs.shown_calls import MAX_LATER
from portal.server.server import build_server
from tests.portal.peers import DEADLINE_SECONDS, Opened, Peer, http_app, opened, raw, raw_tools, tool
from tests.portal.rows import begun
from tests.portal.rows import opened as opened_tables
from tests.portal.runs.test_waiting import answer_of
from tests.upstreams.peers import http_peer

pytestmark = pytest.mark.anyio

ASKS: Json = {"tools": {"ask": ["git.*", "portal.fetch"]}}
BOUNDED: Json = {
    "tools": {"ask": ["git.merge"], "allow": ["*", {"tool": "git.merge", "where": {"id": {"max": 9}}}]}
}
NO_RULES, FOUR_EYES = Approvers(), Approvers(four_eyes=True)
MAY_NOT: dict[str, Any] = {"shown": b'{"arguments": {}, "may_stand": false}'}


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[RunTables]:
    tables = opened_tables(tmp_path)
    yield tables
    tables.close()


def waits(tables: RunTables, run: RunRow, seq: int, **other: Any) -> CallRow:
    shown = json.dumps({"function": "git.merge", "arguments": {}, "may_stand": True}).encode()
    call = CallRow(run.id, seq, "ask", "git.merge", "waiting", "digest", shown=shown)
    with tables.transaction():
        tables.advance(run.id, run.epoch, calls=[replace(call, **other)])
    return call


def decide(tables: RunTables, run: str, seq: int, rules: Approvers = NO_RULES, **decision: Any) -> None:
    with tables.transaction():
        decide_call(tables, run, seq, Decider("ann"), rules, **{"is_approved": True, **decision})


def stands(tables: RunTables, run: str, seq: int, rules: Approvers = NO_RULES) -> bool:
    with tables.transaction():
        return let_pass(tables, run, seq, rules)


@pytest.fixture
def run(tables: RunTables) -> RunRow:
    """A run whose first call was approved, with later ones."""
    run = begun(tables)
    waits(tables, run, 1)
    decide(tables, run.id, 1, stands=True)
    return run


def test_approval_stands_for_fifty_later_calls_each_of_them_told(tables: RunTables, run: RunRow) -> None:
    for seq in range(2, MAX_LATER + 3):
        waits(tables, run, seq)
        assert stands(tables, run.id, seq) is (seq <= MAX_LATER + 1)
    stored = tables.load(run.id)
    assert stored is not None
    told = [each["decision"] for each in details(stored)["decisions"]]
    assert (told[0]["stands"], len(told)) == ("for 50 later calls", MAX_LATER + 1)
    assert {(each["decision"], each["by"], each["through"]) for each in told[1:]} == {("approved", "ann", 1)}
    decide(tables, run.id, MAX_LATER + 2, stands=True)
    waits(tables, run, MAX_LATER + 3)
    assert stands(tables, run.id, MAX_LATER + 3)


@pytest.mark.parametrize(
    "other",
    [
        {"function": "git.push"},
        {"digest": "another definition"},
        {"kind": "approve", "function": "portal.approve"},
        {"shown": b'{"arguments": {"may_stand": true}}'},
        MAY_NOT,
    ],
)
def test_approval_does_not_stand_for_another_kind_of_call(
    tables: RunTables, run: RunRow, other: dict[str, Any]
) -> None:
    waits(tables, run, 2, **other)
    assert not stands(tables, run.id, 2)
    waits(tables, run, 3)
    assert stands(tables, run.id, 3)


def test_approval_of_one_call_stands_for_no_other(tables: RunTables) -> None:
    run = begun(tables)
    waits(tables, run, 1)
    decide(tables, run.id, 1)
    waits(tables, run, 2)
    assert not stands(tables, run.id, 2)


@pytest.mark.parametrize("denied", [1, 2])
def test_revoked_approval_asks_again(tables: RunTables, run: RunRow, denied: int) -> None:
    waits(tables, run, 2)
    assert stands(tables, run.id, 2)
    decide(tables, run.id, denied, is_approved=False)
    waits(tables, run, 3)
    assert not stands(tables, run.id, 3)
    with pytest.raises(RunsError) as error:
        decide(tables, run.id, denied, is_approved=False)
    assert error.value.code == "already_decided"


@pytest.mark.parametrize("function", ["git.merge", "git.push"])
def test_whoever_denies_a_call_is_asked_about_later_ones(
    tables: RunTables, run: RunRow, function: str
) -> None:
    waits(tables, run, 2, function=function)  # its form was open when the other one was answered
    decide(tables, run.id, 2, is_approved=False)
    waits(tables, run, 3)
    assert stands(tables, run.id, 3) is (function == "git.push")


CHANGES = [FOUR_EYES, Approvers(frozenset({"token:ops"})), Approvers(frozenset({"profile:x"}), True)]


@pytest.mark.parametrize("rules", CHANGES)
def test_approval_ends_with_a_change_of_who_decides(tables: RunTables, run: RunRow, rules: Approvers) -> None:
    waits(tables, run, 2)
    assert not stands(tables, run.id, 2, rules)
    assert stands(tables, run.id, 2)


def test_approval_holds_in_no_other_run_and_in_no_fork(tables: RunTables, run: RunRow) -> None:
    other = begun(tables)
    waits(tables, other, 2)
    assert not stands(tables, other.id, 2)
    fork = replace(begun(tables), parent=run.id)
    [approved] = tables.calls(run.id)
    with tables.transaction():
        tables.advance(fork.id, 1, calls=[replace(approved, run=fork.id)])  # as fork_run copies it
    waits(tables, fork, 2)
    assert not stands(tables, fork.id, 2)


def test_approval_ends_with_the_run(tables: RunTables, run: RunRow) -> None:
    waits(tables, run, 2)
    with tables.transaction():
        tables.finish(run.id, "ok", None)
    with pytest.raises(RunsError) as error:
        stands(tables, run.id, 2)
    assert error.value.code == "run_ended"
    with tables.transaction():
        tables.sweep(tables.now() + 1, 0)
    assert tables.get("stands", run.id, "git.merge") is None


@pytest.mark.parametrize(
    ("rules", "other", "decision"),
    [
        (FOUR_EYES, {}, {}),
        (NO_RULES, MAY_NOT, {}),
        (NO_RULES, {"kind": "approve"}, {}),
        (NO_RULES, {}, {"arguments": {"id": 1}}),  # it was approved with arguments that are not the script's
    ],
)
def test_where_no_approval_may_stand_none_is_taken(
    tables: RunTables, rules: Approvers, other: dict[str, Any], decision: dict[str, Any]
) -> None:
    run = begun(tables)
    waits(tables, run, 1, **other)
    with pytest.raises(RunsError) as error:
        decide(tables, run.id, 1, rules, stands=True, **decision)
    assert error.value.code == "may_not_stand"
    decide(tables, run.id, 1, rules, **decision)


# With a client


class Person:
    """Answers forms with these decisions, in turn, and denies further ones."""

    def __init__(self, *decisions: str) -> None:
        self.decisions = [*decisions]
        self.asked: list[str] = []
        self.offered: list[bool] = []
        self.meanwhile: Callable[[], Any] | None = None

    async def __call__(self, context: Any, params: Any) -> ElicitResult:
        self.asked.append(params.message)
        self.offered.append("approve_later" in params.requested_schema["properties"]["decision"]["enum"])
        if self.meanwhile is not None:
            await self.meanwhile()
        decision = self.decisions.pop(0) if self.decisions else "deny"
        return ElicitResult(action="accept", content={"decision": decision, "reason": "for a reason"})


@asynccontextmanager
async def at_a_client(
    folder: Path, person: Person, mode: str = "auto", **sections: Json
) -> AsyncIterator[tuple[Opened, Peer]]:
    up = Peer(tool("merge"), tool("push"))
    given: dict[str, Json] = {
        "capabilities": ASKS,
        "runs": {"store": "runs.sqlite", "park_after_seconds": 0.1},
    }
    async with (
        opened(folder, {"git": up}, **{**given, **sections}) as own,
        Client(build_server(own.portal), mode=mode, elicitation_callback=person) as client,
    ):
        yield Opened(own.portal, client), up


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_person_is_asked_once_for_later_calls_and_again_for_others(tmp_path: Path, mode: str) -> None:
    person = Person("approve_later")
    code = "found = [await git.merge(id=n) for n in range(3)]\n"
    code += "try:\n    await git.push()\nexcept ToolError as error:\n    found.append(error.code)\nfound"
    async with at_a_client(tmp_path, person, mode, audit={"to": "audit.jsonl"}) as (own, up):
        answer = (await own.call("execute_code", code=code)).structured_content
        assert answer["result"] == [*({"id": n} for n in range(3)), "denied"]
        again = (await own.call("execute_code", code="await git.merge(id=9)")).structured_content
    assert again["error"]["code"] == "denied"
    assert "for a reason" in again["error"]["message"]
    assert [name for name, _ in up.calls] == ["merge"] * 3
    assert [each.split(" of the")[0].split("\n")[-1] for each in person.asked] == [
        "git.merge",
        "git.push",
        "git.merge",
    ]
    assert [each for each in answer["notices"] if "approved with call 1" in each] == [
        f"call {seq} (git.merge) was approved with call 1" for seq in (2, 3)
    ]
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    approved = [each for each in lines if each["event"] == "call_approved"]
    assert [(each["call"], each.get("through")) for each in approved] == [(1, None), (2, 1), (3, 1)]
    assert "stands" in approved[0] and {each["by"] for each in approved} == {"client"}


async def test_approval_over_http_stands_for_a_run_in_the_background(tmp_path: Path) -> None:
    up, token = Peer(tool("merge")), {"Authorization": "Bearer token-of-ann"}
    server: Json = {"tokens": [{"token": "token-of-ann"}, {"token": "token-of-bob"}]}
    async with (
        opened(tmp_path, {"git": up}, capabilities=ASKS, server=server) as own,
        http_peer(http_app(own.portal)) as peer,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{peer.port}", headers=token) as http,
    ):

        async def until(run: str, is_it: Callable[[Any], bool]) -> Any:
            with anyio.fail_after(DEADLINE_SECONDS):
                while True:
                    news = own.portal.runs.changes.news
                    if is_it(told := (await http.get(f"/runs/{run}")).json()):
                        return told
                    await news.wait()

        async def began() -> str:
            code = "[await git.merge(id=n) for n in (1, 2)]"
            run = (await http.post("/runs", json={"code": code})).json()["run_id"]
            return str((await until(run, lambda told: told["waiting"]))["run_id"])

        first, second = await began(), await began()
        decided = await http.post(f"/runs/{first}/answers/1", json={"decision": "approve_later"})
        ended = await until(first, lambda told: told["state"] == "ok")
        other = (await http.get(f"/runs/{second}")).json()
    assert (decided.status_code, len(up.calls)) == (200, 2)
    assert [each["decision"].get("through") for each in ended["decisions"]] == [None, 1]
    assert [each["seq"] for each in other["waiting"]] == [1] and other["decisions"] == []


async def test_calls_beyond_the_first_form_are_not_asked_about(tmp_path: Path) -> None:
    person = Person("approve_later")
    # It is not parked, since a run that goes on asks about all that still waits then.
    runs: dict[str, Json] = {"store": "runs.sqlite", "park_after_seconds": 60}
    async with at_a_client(tmp_path, person, runs=runs) as (own, up):
        code = "await asyncio.gather(*(git.merge(id=n) for n in range(25)))"
        answer = (await own.call("execute_code", code=code)).structured_content
    assert (answer["status"], len(person.asked), len(up.calls)) == ("ok", 1, 25)


async def test_further_form_is_withdrawn_when_its_client_leaves(tmp_path: Path) -> None:
    person, is_shown, is_withdrawn = Person("approve"), anyio.Event(), anyio.Event()

    async def meanwhile() -> None:
        if len(person.asked) == 2:
            is_shown.set()
            try:
                await anyio.sleep_forever()
            finally:
                is_withdrawn.set()

    person.meanwhile = meanwhile
    code = "await asyncio.gather(*(git.merge(id=n) for n in range(12)))"
    # It waits that long, so that it is not parked before.
    runs: dict[str, Json] = {"store": "runs.sqlite", "park_after_seconds": 60}
    async with at_a_client(tmp_path, person, "legacy", runs=runs) as (own, _):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(own.call, "execute_code", code=code))
            await is_shown.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(5):
            await is_withdrawn.wait()


async def test_decisions_of_a_form_are_those_of_whoever_answered_it(tmp_path: Path) -> None:
    class TwoPeople(ClientChannel):
        async def ask_person(self, form: Any) -> dict[str, Json]:
            if "asks:" in form.params.message:
                is_asked.set()
                await is_answered.wait()
                self.decider = Decider("bob")
                return {"action": "accept", "content": {"decision": "deny"}}
            await runs.questions.ask(run, 3, {"question": "?"}, self)
            await is_asked.wait()
            self.decider = Decider("ann")
            is_answered.set()
            return {"action": "accept", "content": {"decision": "approve"}}

    is_asked, is_answered, channel = anyio.Event(), anyio.Event(), TwoPeople()
    code = "await asyncio.gather(git.merge(id=1), git.merge(id=2), portal.approve('?'))"
    async with at_a_client(tmp_path, Person()) as (own, _):
        runs = own.portal.runs
        started = await own.call("execute_code", code=code, background=True)
        run = started.structured_content["run_id"]

        async def until(is_it: Callable[[CallRow], bool]) -> None:
            with anyio.fail_after(DEADLINE_SECONDS):
                while True:
                    news, calls = runs.changes.news, (await runs.load(run, None)).calls
                    if sum(map(is_it, calls)) == 3:
                        return
                    await news.wait()

        await until(lambda call: call.state == "waiting")
        for seq in (1, 2):
            asked = {"upstream": "git", "function": "git.merge", "arguments": {}, "rule": "ask"}
            await runs.questions.ask(run, seq, asked, channel)
        await until(lambda call: bool(call.decided_by))
        assert [each.decided_by for each in (await runs.load(run, None)).calls] == ["ann", "ann", "bob"]


async def test_person_who_revokes_meanwhile_is_asked_again(tmp_path: Path) -> None:
    person = Person("approve_later", "approve")
    code = "await git.merge(id=1)\nawait git.merge(id=2)\nawait portal.approve('?')\nawait git.merge(id=3)"
    async with at_a_client(tmp_path, person) as (own, up):

        async def revoke() -> None:
            if len(person.asked) == 2:
                run = person.asked[-1].split("run ")[1].split(")")[0]
                await own.portal.runs.decide(run, 1, Decider("cli ann"), is_approved=False)

        person.meanwhile = revoke
        answer = (await own.call("execute_code", code=code)).structured_content
    assert (answer["error"]["code"], len(person.asked), len(up.calls)) == ("denied", 3, 2)


@pytest.mark.parametrize(("name", "code"), [("echo", "tool_changed"), ("other", None)])
async def test_tool_that_changes_meanwhile_is_not_called(tmp_path: Path, name: str, code: str | None) -> None:
    person = Person("approve_later")
    settings: dict[str, Json] = {"capabilities": {"tools": {"ask": ["up.echo"]}}}
    script = "try:\n    found = await up.echo()\nexcept ToolError as error:\n    found = {'code': error.code}\nfound"
    async with (
        opened(tmp_path, {"up": raw(tools=raw_tools("echo", "other", "change"))}, **settings) as own,
        Client(build_server(own.portal), mode="legacy", elicitation_callback=person) as client,
    ):

        async def change() -> None:
            before = own.portal.fleet["up"].tools
            await own.call("execute_code", code=f"await up.change(name='{name}', description='Deletes.')")
            with anyio.fail_after(DEADLINE_SECONDS):
                while own.portal.fleet["up"].tools is before:
                    await anyio.lowlevel.checkpoint()

        person.meanwhile = change
        answer = (await Opened(own.portal, client).call("execute_code", code=script)).structured_content
    assert answer["result"].get("code") == code and len(person.asked) == 1


@pytest.mark.parametrize(
    ("capabilities", "code"),
    [
        (BOUNDED, "git.merge(id=1)"),
        ({**ASKS, "network": {"allow": ["nowhere.invalid"]}}, "portal.fetch('https://nowhere.invalid')"),
        (ASKS, "portal.approve('later?')"),
    ],
)
async def test_where_each_call_has_to_be_seen_no_more_is_taken(
    tmp_path: Path, capabilities: Json, code: str
) -> None:
    person = Person("approve_later")
    async with at_a_client(tmp_path, person, capabilities=capabilities) as (own, up):
        answer = (await own.call("execute_code", code=f"await {code}")).structured_content
        assert (answer["status"], person.offered, up.calls) == ("waiting", [False], [])
        await own.portal.runs.decide(answer["run_id"], 1, Decider("ann"), is_approved=False)


async def test_approval_stands_after_a_restart_and_counts_nothing_twice(tmp_path: Path) -> None:
    code = "await git.merge(id=1)\nawait git.merge(id=2)\nawait portal.sleep(0.3)\nawait git.merge(id=3)"
    async with at_a_client(tmp_path, Person("approve_later")) as (own, up):
        answer = (await own.call("execute_code", code=code)).structured_content
        assert (answer["status"], len(up.calls)) == ("waiting", 2)
    async with at_a_client(tmp_path, Person()) as (own, up):
        answer = await answer_of(own, answer["run_id"])
        stored = await own.portal.runs.load(answer["run_id"], None)
        assert up.calls == [("merge", {"id": 3})]
    decisions = [json.loads(each.decision) for each in stored.calls if each.decision]
    assert [each.get("through") for each in decisions] == [None, 1, 1]
    assert sum("approved with" in each for each in answer["notices"]) == 2


async def test_secret_at_the_place_of_a_cut_is_in_no_form(tmp_path: Path) -> None:
    person, secret = Person("approve", "approve"), "canary-5b1e-zyx9"
    more: dict[str, Json] = {"server": {"token": "${KEY}"}, "environ": {"KEY": secret}}
    code = f"for n in (1, 9):\n    await git.push(text='x' * 1_992 + '{secret}' + 'y' * 3_000 * n)"
    async with at_a_client(tmp_path, person, **more) as (own, up):
        answer = (await own.call("execute_code", code=code)).structured_content
        stored = await own.portal.runs.load(answer["run_id"], None)
    assert (answer["status"], [secret in each["text"] for _, each in up.calls]) == ("ok", [True, True])
    assert all("cut: it has" in each and "[hidden]" in each and "canary" not in each for each in person.asked)
    assert len(stored.calls) == 2 and all(b"canary" not in each.shown for each in stored.calls)
