"""Runs in the background as tasks, for clients of revision 2026-07-28 that declare the extension."""

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Request,
    RequestParams,
    Result,
)

from manifests.json_value import Json
from manifests.loader import load_manifest
from portal.app.composition import open_portal
from portal.base.caller import LOCAL
from portal.base.requests import ExecuteCode
from portal.records.store.records import CallRow, RunState
from portal.records.store.run_tables import RunTables
from portal.runs.answer import Answer
from portal.runs.past import HEAD, RunHead, new_row, new_run_id
from portal.server.server import build_server
from portal.server.tasks import TASKS
from tests.portal.app.test_http_app import BEARER, TOKEN, served
from tests.portal.peers import DEADLINE_SECONDS, Opened, Peer, never, opened, tool, write_manifest
from upstreams.secret_sources import fetch_secrets

REVISION = "2026-07-28"
MISSING_REQUIRED_CLIENT_CAPABILITY = -32021
DECLARED: dict[str, Json] = {"extensions": {TASKS: {}}, "elicitation": {"form": {}}}
METHODS = ["tasks/get", "tasks/update", "tasks/cancel"]
APPROVE = {"action": "accept", "content": {"decision": "approve"}}
RUNS: dict[str, Json] = {"store": "runs.sqlite", "keep_days": 2, "max_age_days": 3}


@dataclass(frozen=True)
class Wire:
    """A client that speaks JSON-RPC over HTTP itself."""

    http: httpx2.AsyncClient
    portal: Opened
    capabilities: dict[str, Json]
    mail: Peer
    """A person is asked about what it sends."""
    store: Peer

    async def send(self, method: str, mcp_name: str | None = None, **params: Json) -> dict[str, Any]:
        """The message that comes back. The header `Mcp-Name` is right unless it is given."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
        }
        name = mcp_name or params.get("taskId") or params.get("name")
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": REVISION,
            "Mcp-Method": method,
            **({"Mcp-Name": str(name)} if name else {}),
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        answer = await self.http.post("/mcp", json=message, headers=headers)
        text = answer.text
        if answer.headers["content-type"].startswith("text/event-stream"):
            text = [line for line in text.splitlines() if line.startswith("data:")][-1].removeprefix("data:")
        return json.loads(text)

    async def result(self, method: str, **params: Json) -> dict[str, Any]:
        message = await self.send(method, **params)
        assert "result" in message, message
        return message["result"]

    async def code_of(self, method: str, **params: Json) -> int:
        """The code of the error that comes back."""
        message = await self.send(method, **params)
        assert "error" in message, message
        return int(message["error"]["code"])

    async def start(self, code: str, **more: Json) -> dict[str, Any]:
        arguments = {"code": code, "background": True, **more}
        return await self.result("tools/call", name="execute_code", arguments=arguments)

    async def get(self, task: str) -> dict[str, Any]:
        return await self.result("tasks/get", taskId=task)

    async def until(self, task: str, *statuses: str) -> dict[str, Any]:
        """The task as soon as it has one of these statuses."""
        with anyio.fail_after(DEADLINE_SECONDS):
            while True:
                changed = self.portal.portal.runs.changes.news
                found = await self.get(task)
                if found["status"] in statuses:
                    return found
                await changed.wait()


async def keep(
    portal: Opened, state: RunState, *calls: CallRow, owner: str = "local", answer: Answer | None = None
) -> str:
    """Put a run into the store, as a portal leaves it. Returns its id."""
    head = RunHead(ExecuteCode("1 + 1", background=True), LOCAL, None, is_background=True)
    run = new_run_id()
    row = new_row(run, owner, head, None, RUNS["max_age_days"])

    def write(file: RunTables) -> None:
        file.create(replace(row, state="waiting" if state == "waiting" else "running"), HEAD.dump_json(head))
        file.advance(run, row.epoch, calls=[replace(call, run=run) for call in calls])
        if state not in ("running", "waiting"):
            file.finish(run, state, None if answer is None else replace(answer, run_id=run).dump())

    await portal.portal.runs.store_or_error().write(write)
    return run


def asking(seq: int = 1, shown: Json = None) -> CallRow:
    """A call that waits for a person."""
    told = json.dumps(shown or {"question": "Send it?"}).encode()
    return CallRow("", seq, "approve", "portal.approve", "waiting", shown=told)


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Wire]:
    """Of one portal: each test looks at runs of its own."""
    folder, rules = tmp_path_factory.mktemp("tasks"), {"tools": {"ask": ["mail.send"]}}
    mail, store = Peer(tool("send")), Peer(tool("hang"), hang=never)
    async with (
        opened(folder, {"mail": mail, "store": store}, runs=RUNS, capabilities=rules) as portal,
        served(portal, TOKEN) as origin,
        httpx2.AsyncClient(base_url=origin, headers=BEARER, timeout=DEADLINE_SECONDS) as http,
    ):
        yield Wire(http, portal, DECLARED, mail, store)


# Creation


async def test_a_run_in_the_background_is_a_task_until_its_result(client: Wire) -> None:
    created = await client.start("print('hello')\n40 + 2")
    assert created["resultType"] == "task"
    assert created["status"] == "working"
    assert "content" not in created
    ended = await client.until(created["taskId"], "completed")
    assert ended["resultType"] == "complete"
    assert ended["taskId"] == created["taskId"] == ended["result"]["structuredContent"]["run_id"]
    assert ended["result"]["structuredContent"]["result"] == 42
    assert ended["result"]["isError"] is False
    assert "statusMessage" not in ended and "inputRequests" not in ended
    assert ended["createdAt"] == created["createdAt"] <= ended["lastUpdatedAt"]


async def test_a_task_shows_as_much_as_its_run_was_asked_for(client: Wire) -> None:
    for more, shown in (({}, dict), ({"max_tokens": 5_000}, list)):
        task = (await client.start("['a row of the result'] * 700", **more))["taskId"]
        ended = await client.until(task, "completed")
        assert isinstance(json.loads(ended["result"]["content"][0]["text"])["result"], shown)


async def test_what_does_not_run_in_the_background_is_no_task(client: Wire) -> None:
    result = await client.result("tools/call", name="execute_code", arguments={"code": "40 + 2"})
    assert result["structuredContent"]["result"] == 42
    refused = await client.start("1", session="new")
    assert refused["structuredContent"]["error"]["code"] == "invalid_arguments"


async def test_a_client_that_does_not_declare_tasks_gets_the_id_of_the_run(client: Wire) -> None:
    plain = replace(client, capabilities={})
    result = await plain.start("40 + 2")
    assert (result["resultType"], result["structuredContent"]["status"]) == ("complete", "running")
    run = result["structuredContent"]["run_id"]
    await client.until(run, "completed")
    answer = await plain.result("tools/call", name="execute_code", arguments={"run": run})
    assert answer["structuredContent"]["result"] == 42


# Announcement


class GetTaskParams(RequestParams):
    task_id: str


class GetTask(Request[GetTaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: GetTaskParams


async def test_the_extension_is_announced(client: Wire) -> None:
    found = await client.result("server/discover")
    assert found["capabilities"]["extensions"] == {TASKS: {}}


async def test_without_a_store_there_are_no_tasks(tmp_path: Path) -> None:
    manifest = load_manifest(write_manifest(tmp_path, {}), {}, fetch_secrets)
    async with (
        open_portal(manifest, lambda line: None, runs="unkept") as portal,
        Client(build_server(portal)) as client,
    ):
        assert not client.server_capabilities.extensions
        with pytest.raises(MCPError) as caught:
            await client.session.send_request(GetTask(params=GetTaskParams(task_id="x")), Result)
        assert caught.value.error.code == METHOD_NOT_FOUND


# Access


@pytest.mark.parametrize("method", METHODS)
async def test_a_request_declares_the_extension_and_names_its_task(client: Wire, method: str) -> None:
    run = await keep(client.portal, "running")
    message = await replace(client, capabilities={}).send(method, taskId=run, inputResponses={})
    assert message["error"]["code"] == MISSING_REQUIRED_CLIENT_CAPABILITY
    assert message["error"]["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    message = await client.send(method, "another", taskId=run, inputResponses={})
    assert message["error"]["code"] == HEADER_MISMATCH
    for params in ({}, {"taskId": 7}):
        assert await client.code_of(method, inputResponses={}, **params) == INVALID_PARAMS
    assert (await client.get(run))["status"] == "working"


async def test_earlier_revisions_have_runs_and_none_of_these_tasks(tmp_path: Path) -> None:
    async with opened(tmp_path, mode="legacy", runs=RUNS) as portal:
        assert not portal.client.server_capabilities.extensions
        result = await portal.call("execute_code", code="40 + 2", background=True)
        assert result.structured_content and result.structured_content["status"] == "running"
        run = await keep(portal, "running")
        with pytest.raises(MCPError) as caught:
            await portal.client.session.send_request(GetTask(params=GetTaskParams(task_id=run)), Result)
        assert caught.value.error.code == METHOD_NOT_FOUND


@pytest.mark.parametrize("method", METHODS)
async def test_the_task_of_another_owner_is_as_unknown_as_none(client: Wire, method: str) -> None:
    others = await keep(client.portal, "waiting", asking(), owner="somebody else")
    answers = {"call-1": APPROVE}
    messages = [await client.send(method, taskId=task, inputResponses=answers) for task in (others, "r-none")]
    assert {message["error"]["code"] for message in messages} == {INVALID_PARAMS}
    texts = [message["error"]["message"] for message in messages]
    assert texts[0].replace(others, "r-none") == texts[1]
    stored = await client.portal.portal.runs.load(others, None)
    assert (stored.row.state, stored.calls[0].state) == ("waiting", "waiting")


# The content of a task


async def test_a_run_that_ended_badly_completes_its_task_with_an_error(client: Wire) -> None:
    failed = await client.until((await client.start("1 / 0"))["taskId"], "completed", "failed")
    assert failed["result"]["structuredContent"]["error"]["code"] == "script_error"
    states: list[RunState] = ["refused", "expired", "stuck"]
    for task in (failed, *[await client.get(await keep(client.portal, state)) for state in states]):
        assert (task["status"], task["result"]["isError"]) == ("completed", True)
        assert task["result"]["structuredContent"]["status"] in ("error", *states)


async def test_a_run_that_waits_for_a_time_or_an_event_works(client: Wire) -> None:
    sleep = CallRow("", 1, "sleep", "portal.sleep", "waiting", due_at=time.time() + 3_600)
    event = CallRow("", 2, "event", "portal.event", "waiting", name="paid")
    task = await client.get(await keep(client.portal, "waiting", sleep, event))
    assert task["status"] == "working"
    message = task["statusMessage"]
    assert "until 20" in message and "event 'paid'" in message


async def test_a_task_lives_as_long_as_its_run_is_kept(client: Wire) -> None:
    day_ms = 86_400_000
    task = await client.get(await keep(client.portal, "running"))
    assert task["ttlMs"] == 5 * day_ms
    assert task["pollIntervalMs"] > 0
    ended = await client.get(await keep(client.portal, "ok", answer=Answer("ok", "")))
    assert 2 * day_ms <= ended["ttlMs"] < 3 * day_ms


# Questions to the person


DENY = {"action": "accept", "content": {"decision": "deny", "reason": "not now"}}


@pytest.mark.parametrize("answer", [APPROVE, DENY])
async def test_a_person_at_the_client_approves_or_denies_a_call(client: Wire, answer: Json) -> None:
    client.mail.calls.clear()
    task = (await client.start("await mail.send(to='ann')"))["taskId"]
    waiting = await client.until(task, "input_required", "completed")
    (key,) = waiting["inputRequests"]
    request = waiting["inputRequests"][key]
    assert request["method"] == "elicitation/create"
    assert request["params"]["mode"] == "form"
    assert "mail.send" in request["params"]["message"] and '"ann"' in request["params"]["message"]
    assert request["params"]["requestedSchema"]["required"] == ["decision"]
    assert client.mail.calls == []
    done = await client.result("tasks/update", taskId=task, inputResponses={key: answer})
    assert done["resultType"] == "complete"
    result = (await client.until(task, "completed"))["result"]
    stored = await client.portal.portal.runs.load(task, None)
    assert [call.decided_by for call in stored.calls] == ["client"]
    assert client.mail.calls == ([("send", {"to": "ann"})] if answer is APPROVE else [])
    assert result["isError"] is (answer is DENY)
    message = str(result["structuredContent"]["error"])
    assert all((word in message) is (answer is DENY) for word in ("denied", "not now"))


async def test_an_answer_that_decides_nothing_is_acknowledged_or_refused_by_its_shape(client: Wire) -> None:
    run = await keep(client.portal, "waiting", asking(1), asking(2))
    for answers in ({"call-1": {"action": "cancel"}}, {"call-3": APPROVE}, {"1": APPROVE, "": None}, {}):
        await client.result("tasks/update", taskId=run, inputResponses=answers)
    sampled = {"role": "assistant", "content": {"type": "text", "text": "approve"}, "model": "m"}
    contents: list[Json] = [{}, {"content": {"decision": "APPROVE"}}]
    others = [{"action": "accept", **each} for each in contents]
    for answer in (None, "approve", {"content": {"decision": "approve"}}, sampled, *others):
        answers = {"call-1": APPROVE, "call-2": answer}
        assert await client.code_of("tasks/update", taskId=run, inputResponses=answers) == INVALID_PARAMS
    assert [*(await client.get(run))["inputRequests"]] == ["call-1", "call-2"]


async def test_each_question_is_answered_by_itself(client: Wire) -> None:
    sleep = CallRow("", 3, "sleep", "portal.sleep", "waiting", due_at=time.time() + 3_600)
    run = await keep(client.portal, "running", asking(1), asking(2), sleep)
    task = await client.get(run)
    assert task["status"] == "input_required"
    assert [*task["inputRequests"]] == ["call-1", "call-2"]
    await client.result("tasks/update", taskId=run, inputResponses={"call-2": APPROVE})
    assert [*(await client.get(run))["inputRequests"]] == ["call-1"]
    deny = {"action": "decline"}
    await client.result("tasks/update", taskId=run, inputResponses={"call-1": deny, "call-2": deny})
    stored = await client.portal.portal.runs.load(run, None)
    assert [call.state for call in stored.calls] == ["denied", "approved", "waiting"]
    assert (await client.get(run))["status"] == "working"


async def test_a_client_that_shows_no_forms_is_not_asked(client: Wire) -> None:
    run = await keep(client.portal, "waiting", asking())
    for elicitation in ({}, {"elicitation": {"url": {}}}):
        formless = replace(client, capabilities={"extensions": {TASKS: {}}, **elicitation})
        task = await formless.get(run)
        assert task["status"] == "working" and "a person: Send it?" in task["statusMessage"]
        await formless.result("tasks/update", taskId=run, inputResponses={"call-1": APPROVE})
    assert [*(await client.get(run))["inputRequests"]] == ["call-1"]


# Cancellation


async def test_a_cancelled_task_is_over(client: Wire) -> None:
    run = await keep(client.portal, "waiting", asking())
    assert (await client.result("tasks/cancel", taskId=run))["resultType"] == "complete"
    await client.result("tasks/update", taskId=run, inputResponses={"call-1": APPROVE})
    task = await client.get(run)
    assert task["status"] == "cancelled"
    assert "result" not in task and "error" not in task


async def test_cancelling_stops_a_script_that_runs(client: Wire) -> None:
    task = (await client.start("await store.hang()"))["taskId"]
    await client.store.until(lambda: len(client.store.calls) == 1)
    await client.result("tasks/cancel", taskId=task)
    assert (await client.get(task))["status"] == "cancelled"
    await client.store.until(lambda: client.store.cancelled == ["hang"])


async def test_a_task_that_has_ended_stays_as_it_is(client: Wire) -> None:
    run = await keep(client.portal, "ok", answer=Answer("ok", "", result=42))
    await client.result("tasks/cancel", taskId=run)
    task = await client.get(run)
    assert (task["status"], task["result"]["structuredContent"]["result"]) == ("completed", 42)
