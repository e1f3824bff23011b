"""Every way to decide about a waiting call, times everyone who must not: nothing is sent. The twin decides."""

import ast
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

import portal
from manifests.errors import ManifestError
from manifests.json_value import Json
from manifests.loader import load_manifest
from portal.base.caller import Bearer
from portal.identity.approvers import Approvers, Decider
from portal.server.server import build_server
from tests.portal.app.test_http_app import served
from tests.portal.app.test_signed_in_streams import HELLO
from tests.portal.issuer import AUDIENCE, issuing
from tests.portal.kept_runs import KeptRuns, kept_runs
from tests.portal.peers import DEADLINE_SECONDS, Opened, Peer, http_app, opened, tool, write_manifest
from tests.portal.server.test_tasks import APPROVE, DECLARED, Wire
from tests.security.hostile import words
from tests.upstreams.peers import http_peer

pytestmark = pytest.mark.anyio

ASK: Json = {"tools": {"ask": ["up.mark"]}}
SOON: Json = {"park_after_seconds": 0.1}
MARK = "await up.mark(text='x')"
FILES = sorted(Path(portal.__file__).parent.rglob("*.py"))


def test_decisions_are_written_in_one_place_which_wants_to_know_who_decides(no_collections: None) -> None:
    """A new way to decide has to be added below, too."""
    written, decided = [], []
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                text = ast.unparse(node)
                if text.startswith("tables.decide("):
                    written.append(file.name)
                elif "decide_call" in (ast.unparse(node.func), *map(ast.unparse, node.args[:1])):
                    decided.append((file.name, "ecider" in text))
    assert written == ["decisions.py"]
    assert decided == [("runs.py", True), ("source.py", True), ("decisions.py", True), ("service.py", True)]


def runs_decide() -> list[str]:
    """The files that decide through the service of runs, whose second argument is who decides."""
    ways = ("self.runs.decide(", "self.decide(")
    return [each.name for each in FILES if any(way in each.read_text() for way in ways)]


def test_ways_to_decide_are_those_that_are_attacked_here() -> None:
    assert runs_decide() == ["service.py", "http_runs.py", "tasks.py"]


# Without a token


async def accepts(context: Any, params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"decision": "approve"})


@asynccontextmanager
async def form_client(origin: str, mode: str) -> AsyncIterator[Client]:
    async with httpx2.AsyncClient(timeout=DEADLINE_SECONDS) as http:
        transport = streamable_http_client(f"{origin}/mcp", http_client=http)
        async with Client(transport, mode=mode, elicitation_callback=accepts) as client:
            yield client


async def test_without_a_token_nothing_but_a_terminal_decides(tmp_path: Path) -> None:
    up = Peer(tool("mark"))
    async with (
        opened(tmp_path, {"up": up}, capabilities=ASK, runs=SOON) as own,
        served(own) as origin,
        httpx2.AsyncClient(base_url=origin, timeout=DEADLINE_SECONDS) as http,
    ):
        for mode in ("legacy", "auto"):
            async with form_client(origin, mode) as client:
                answer = (await client.call_tool("execute_code", {"code": MARK})).structured_content
                assert answer is not None and answer["status"] == "waiting"
        run = answer["run_id"]
        over_http = await http.post(f"/runs/{run}/answers/1", json={"decision": "approve"})
        assert (over_http.status_code, over_http.json()["error"]["code"]) == (403, "token_required")
        wire = Wire(http, own, DECLARED, up, up)
        task = await wire.get(run)
        assert (task["status"], "inputRequests" in task) == ("working", False)
        updated = await wire.send("tasks/update", taskId=run, inputResponses={"call-1": APPROVE})
        assert "token_required" in updated["error"]["message"]
        assert up.calls == []
        await own.portal.runs.decide(run, 1, Decider("cli ann"), is_approved=True)
        assert (await wire.until(run, "completed"))["result"]["isError"] is False
        assert [name for name, _ in up.calls] == ["mark"]


# With another token than the one that began the request


@asynccontextmanager
async def asking(folder: Path, up: Peer) -> AsyncIterator[tuple[Opened, Callable[[str], httpx2.AsyncClient]]]:
    """A portal whose approvers have the scope `approve`, and clients of one person by the scope of their tokens."""
    async with issuing() as issuer:
        server = {"auth": {"issuer": issuer.url, "audience": AUDIENCE}}
        grants: Json = {**ASK, "approvers": ["claim:scope=approve"]}
        async with (
            opened(folder, {"up": up}, server=server, capabilities=grants, runs=SOON) as own,
            http_peer(http_app(own.portal)) as peer,
        ):

            def client(scope: str) -> httpx2.AsyncClient:
                headers = {"Authorization": f"Bearer {issuer.token(scope=scope)}"}
                at = f"http://127.0.0.1:{peer.port}"
                return httpx2.AsyncClient(base_url=at, headers=headers, timeout=DEADLINE_SECONDS)

            yield own, client


FORM: dict[str, Json] = {"elicitation": {"form": {}}}


@pytest.mark.parametrize(
    ("answers", "is_sent"), [("mcp", False), ("mcp approve", True), ("approve more mcp", True)]
)
async def test_token_of_the_answer_decides_a_form(tmp_path: Path, answers: str, is_sent: bool) -> None:
    up = Peer(tool("mark"))
    async with (
        asking(tmp_path, up) as (own, client),
        client("mcp approve") as first,
        client(answers) as second,
    ):
        sent = {"name": "execute_code", "arguments": {"code": MARK}}
        asked = await Wire(first, own, FORM, up, up).result("tools/call", **sent)
        (key,) = asked["inputRequests"]
        answer = {"requestState": asked["requestState"], "inputResponses": {key: APPROVE}}
        answered = await Wire(second, own, FORM, up, up).result("tools/call", **sent, **answer)
        assert answered["structuredContent"]["status"] == ("ok" if is_sent else "waiting")
    assert len(up.calls) == is_sent


async def test_of_two_forms_each_is_decided_by_the_token_of_its_own_answer(tmp_path: Path) -> None:
    up = Peer(tool("mark"))
    code = "import asyncio\nawait asyncio.gather(*[up.mark(text=each) for each in range(11)])"
    sent = {"name": "execute_code", "arguments": {"code": code}}
    async with asking(tmp_path, up) as (own, client), client("mcp approve") as may, client("mcp") as must_not:
        strong, weak = (Wire(each, own, FORM, up, up) for each in (may, must_not))
        asked = await strong.result("tools/call", **sent)
        for wire in (weak, strong):
            (key,) = asked["inputRequests"]
            answer = {"requestState": asked["requestState"], "inputResponses": {key: APPROVE}}
            asked = await wire.result("tools/call", **sent, **answer)
        [run] = (await may.get("/runs?waiting=true")).json()["runs"]
    assert len(run["waiting"]) == 10 and len(up.calls) <= 1


@pytest.mark.parametrize(
    ("answers", "status"), [("mcp", 404), ("mcp approve", 202), ("approve more mcp", 202)]
)
async def test_session_of_an_approver_is_no_use_to_others(tmp_path: Path, answers: str, status: int) -> None:
    up = Peer(tool("mark"))
    hello = {**HELLO["params"], "capabilities": FORM}
    call = {"name": "execute_code", "arguments": {"code": MARK}}

    def message(method: str, **more: Json) -> Json:
        return {"json": {"jsonrpc": "2.0", "method": method, **more}}

    async with asking(tmp_path, up) as (_, client), client("mcp approve") as first, client(answers) as second:
        for each in (first, second):
            each.headers["Accept"] = "application/json, text/event-stream"
        began = await first.post("/mcp", **message("initialize", id=1, params=hello))
        for each in (first, second):
            each.headers["mcp-session-id"] = began.headers["mcp-session-id"]
        await first.post("/mcp", **message("notifications/initialized"))
        posted = first.stream("POST", "/mcp", **message("tools/call", id=2, params=call))
        statuses = []
        async with posted as stream:
            async for line in stream.aiter_lines():
                told = json.loads(line[5:]) if line.startswith("data: {") else {}
                if told.get("method") == "elicitation/create":
                    answer = {"jsonrpc": "2.0", "id": told["id"], "result": APPROVE}
                    statuses.append((await second.post("/mcp", json=answer)).status_code)
                if told.get("id") == 2 or statuses == [404]:
                    break
    assert statuses == [status] and len(up.calls) == (status == 202)


# Approvers

RED, BLUE = "red/dev/1", "blue/dev/2"


def person(owner: str, **claims: Json) -> Decider:
    return Decider("x", owner, Bearer("x", owner.split("/")[1], token_claims=claims))


@pytest.mark.parametrize(
    ("entry", "fitting", "others"),
    [
        ("claim:scope=approve", [{"scope": "mcp approve"}, {"scp": ["approve"]}], [{"scope": "approver mcp"}, {}]),
        ("claim:groups=leads", [{"groups": ["a", "leads"]}, {"groups": "leads"}], [{"groups": "a leads"}]),
        ("claim:https://id/x?y=z=yes", [{"https://id/x?y=z": "yes"}], [{"https://id/x?y": "z=yes"}]),
        ("claim:realm.roles=lead", [{"realm": {"roles": ["lead"]}}], [{"realm": "lead"}]),
    ],
)  # fmt: skip
def test_claim_of_an_approver_has_to_fit(entry: str, fitting: list[Json], others: list[Json]) -> None:
    approvers = Approvers(frozenset({entry}))
    for claims in fitting:
        assert approvers.refusal(RED, person("red/dev/9", **claims)) is None
    for claims in others:
        refusal = approvers.refusal(RED, person("red/dev/9", **claims))
        assert refusal is not None and refusal.code == "not_an_approver"
        assert not approvers.oversee(RED, person("red/dev/9", **claims))


def test_nobody_is_an_approver_for_another_tenant_or_without_a_profile_or_a_name() -> None:
    approvers = Approvers(frozenset({"profile:lead", "profile:None", "token:ops"}))
    lead = person("red/lead/3")
    assert approvers.oversee(RED, lead) and not approvers.oversee(BLUE, lead)
    assert not approvers.oversee("/dev/4", lead) and not approvers.oversee("local", lead)
    assert not approvers.oversee(RED, person("red//3"))
    ops = Bearer("ops", None, entry="token:ops")
    assert approvers.oversee("local", Decider("ops", "//5", ops))
    assert not approvers.oversee("local", Decider("ops", "//5", ops, is_known=False))


def test_four_eyes_are_of_two_people_whatever_their_profiles() -> None:
    approvers = Approvers(frozenset({"profile:lead"}), four_eyes=True)
    same = approvers.refusal("red/dev/1", person("red/lead/1"))
    assert same is not None and same.code == "four_eyes"
    assert approvers.refusal("red/dev/1", person("red/lead/2")) is None
    assert approvers.refusal("red/dev/1", Decider("cli ann")) is None


def test_client_over_stdio_decides_only_if_its_profile_is_named() -> None:
    stdio, named = Decider("client", "local"), frozenset({"profile:lead"})
    assert Approvers().refusal("local", stdio) is None
    assert Approvers(named).refusal("local", stdio) is not None
    assert Approvers(named, profile="lead").refusal("local", stdio) is None
    assert Approvers(named, four_eyes=True, profile="lead").refusal("local", stdio) is not None


TOKENS: Json = [
    {"token": "token-of-ann", "tenant": "red"},
    {"token": "token-of-ops", "tenant": "red", "name": "ops"},
    {"token": "token-of-lead", "tenant": "red", "profile": "lead"},
    {"token": "token-of-spy", "tenant": "blue", "profile": "lead"},
]
SECTIONS: dict[str, Json] = {
    "profiles": {"lead": {}},
    "capabilities": {"approvers": ["token:ops", "profile:lead"], "four_eyes": True},
}


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[KeptRuns]:
    async with kept_runs(tmp_path, tokens=TOKENS, sections=SECTIONS) as kept:
        yield kept


def of(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer token-of-{name}"}


async def test_approvers_see_and_decide_what_waits_in_their_tenant_and_nothing_else(kept: KeptRuns) -> None:
    async with kept.client() as http:

        async def began(name: str, code: str) -> str:
            run = (await http.post("/runs", json={"code": code}, headers=of(name))).json()["run_id"]
            await kept.until(run, "waiting" if code == "ask" else "running")
            return str(run)

        async def seen(name: str) -> list[str]:
            listed = (await http.get("/runs?waiting=true", headers=of(name))).json()["runs"]
            return sorted(each["run_id"] for each in listed)

        async def decide(name: str, run: str) -> tuple[int, str]:
            path = f"/runs/{run}/answers/1"
            answer = await http.post(path, json={"decision": "approve"}, headers=of(name))
            return answer.status_code, answer.json().get("error", {}).get("code", "")

        begins = (("ann", "ask"), ("ann", "hang"), ("spy", "ask"))
        first, hidden, theirs = [await began(*each) for each in begins]
        assert await seen("ops") == await seen("lead") == await seen("ann") == [first]
        assert await seen("spy") == [theirs]
        assert (await http.get("/runs", headers=of("ops"))).json() == {"runs": []}
        for name, run in (("spy", first), ("ops", theirs), ("ops", hidden)):
            told = [await http.get(f"/runs/{each}", headers=of(name)) for each in (run, "run_" + "0" * 32)]
            assert told[0].text.replace(run, "run_" + "0" * 32) == told[1].text
            assert await decide(name, run) == (404, "unknown_run")
        for path in (f"/runs/{first}/cancel", f"/runs/{first}/fork"):
            assert (await http.post(path, json={"at": 1}, headers=of("ops"))).status_code == 404
        assert await decide("ann", first) == (403, "not_an_approver")
        assert await decide("spy", theirs) == (403, "four_eyes")
        view = (await http.get(f"/runs/{first}", headers=of("ops"))).json()
        assert (view["caller"], view["tenant"]) == ("token 1 of red", "red")
        assert (await decide("ops", first))[0] == 200
        await kept.until(first, "ok")
        assert (await http.get(f"/runs/{first}", headers=of("ops"))).status_code == 404
        [decision] = (await http.get(f"/runs/{first}", headers=of("ann"))).json()["decisions"]
    assert decision["decision"].pop("at") >= view["began"]
    assert decision["decision"] == {"decision": "approved", "by": "http token ops of red"}


async def test_changed_approvers_hold_at_the_next_decision(kept: KeptRuns) -> None:
    async with kept.client() as http:
        run = (await http.post("/runs", json={"code": "ask"}, headers=of("ann"))).json()["run_id"]
        await kept.until(run, "waiting")
        path, body = f"/runs/{run}/answers/1", {"decision": "approve"}
        kept.runs.approvers = Approvers(frozenset({"profile:lead"}))
        assert (await http.post(path, json=body, headers=of("ops"))).status_code == 404
        kept.runs.approvers = Approvers()
        assert (await http.post(path, json=body, headers=of("ann"))).status_code == 200


async def test_reload_changes_who_approves(tmp_path: Path) -> None:
    async with opened(tmp_path, {}) as own:
        rules: Json = {"approvers": ["profile:lead"], "four_eyes": True}
        changed = write_manifest(tmp_path, {}, profiles={"lead": {}}, capabilities=rules)
        await own.portal.reload.apply(load_manifest(changed, {}))
        assert own.portal.runs.approvers == Approvers(frozenset({"profile:lead"}), four_eyes=True)


@pytest.mark.parametrize(("four_eyes", "status"), [(True, "waiting"), (False, "ok")])
async def test_caller_who_must_not_decide_is_not_asked(tmp_path: Path, four_eyes: bool, status: str) -> None:
    up, rules = Peer(tool("mark")), {**ASK, "four_eyes": four_eyes}
    async with (
        opened(tmp_path, {"up": up}, capabilities=rules, runs=SOON) as own,
        Client(build_server(own.portal), elicitation_callback=accepts) as client,  # as over stdio
    ):
        answer = (await client.call_tool("execute_code", {"code": MARK})).structured_content
    assert answer is not None and answer["status"] == status
    assert len(up.calls) == (status == "ok")


NOBODY = words("profile:nobody token:nobody claim:scope=approve claim:scope ann claim:groups=CN=leads")


@pytest.mark.parametrize("approver", [*NOBODY, ""])
def test_approver_that_cannot_exist_is_refused_at_load(tmp_path: Path, approver: str) -> None:
    with pytest.raises(ManifestError):
        load_manifest(write_manifest(tmp_path, {}, capabilities={"approvers": [approver]}), {})
    assert load_manifest(write_manifest(tmp_path, {}, **SECTIONS, server={"tokens": TOKENS}), {})


def test_two_tokens_have_two_names(tmp_path: Path) -> None:
    tokens = [{"token": "a", "name": "ops"}, {"token": "b", "name": "ops"}]
    with pytest.raises(ManifestError, match="repeats"):
        load_manifest(write_manifest(tmp_path, {}, server={"tokens": tokens}), {})


def test_claims_of_a_token_are_in_no_repr() -> None:
    assert "secret" not in repr(Bearer("x", None, token_claims={"a": "secret"}))
