"""A request that waits for an answer of its client goes on where it was, once, and does not wait for ever."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
)

from manifests.json_value import Json
from portal.base.caller import LOCAL
from portal.calls.questions import Questions, SamplingDepths
from portal.server.rounds import MAX_WAITING, PendingRequest, Rounds
from tests.portal.chatty_server import STATE, Chatty
from tests.portal.clients import Person, client_of, one_chatty
from tests.portal.peers import DEADLINE_SECONDS


@dataclass(frozen=True)
class RoundsClient:
    """A client of the newer revision that makes each round itself, and the portal's upstream."""

    client: Client
    up: Chatty

    async def call(self, code: str, max_tokens: int = 2_000, **more: Json) -> Any:
        arguments = {"code": code, "max_tokens": max_tokens}
        with anyio.fail_after(DEADLINE_SECONDS):
            return await self.client.session.call_tool(
                "execute_code", arguments, allow_input_required=True, **more
            )


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[RoundsClient]:
    options = {"elicitation_callback": Person()}
    async with (
        one_chatty() as (up, upstreams),
        client_of(tmp_path, upstreams, "http", "auto", options) as ear,
    ):
        yield RoundsClient(ear.client, up)


ACCEPT = {"question-1": ElicitResult(action="accept", content={"who": "Ada"})}


async def test_the_script_goes_on_where_it_was_and_nothing_is_done_twice(client: RoundsClient) -> None:
    code = "print('once')\nawait up.ask()"
    first = await client.call(code)
    assert isinstance(first, InputRequiredResult) and first.request_state
    assert STATE not in first.request_state, "the upstream's own state stays in the portal"
    last = await client.call(code, input_responses=ACCEPT, request_state=first.request_state)
    answer = last.structured_content
    assert (answer["stdout"], answer["result"]) == ("once\n", "accept {'who': 'Ada'}")
    assert (client.up.acted, len(answer["calls"])) == (1, 1)


async def test_what_a_client_wants_to_read_is_known_after_its_answer(client: RoundsClient) -> None:
    code = "await up.ask()\n['a row of the result'] * 700"
    first = await client.call(code, max_tokens=5_000)
    more = {"input_responses": ACCEPT, "request_state": first.request_state}
    last = await client.call(code, max_tokens=5_000, **more)
    assert len(json.loads(last.content[0].text)["result"]) == 700


async def test_a_state_is_good_for_one_answer_of_one_request(client: RoundsClient) -> None:
    code = "await up.ask()"
    first = await client.call(code)
    state = first.request_state
    forged: list[tuple[str, str]] = [
        (code, "x"),
        (code, state[:-1] + ("A" if state[-1] != "A" else "B")),
        (code + " ", state),
        (code, STATE),
    ]
    for script, wrong in forged:
        with pytest.raises(MCPError):
            await client.call(script, input_responses=ACCEPT, request_state=wrong)
    assert client.up.acted == 0
    last = await client.call(code, input_responses=ACCEPT, request_state=state)
    assert last.structured_content["status"] == "ok"
    with pytest.raises(MCPError):
        await client.call(code, input_responses=ACCEPT, request_state=state)
    assert client.up.acted == 1


async def test_cancelled_request_ends_its_calls_though_it_may_be_asked(client: RoundsClient) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.call, "await up.hang()")
        with anyio.fail_after(DEADLINE_SECONDS):
            await client.up.hanging.wait()
        tasks.cancel_scope.cancel()
    with anyio.fail_after(DEADLINE_SECONDS):
        await client.up.cancelled.wait()


FORM = ElicitRequest(
    params=ElicitRequestFormParams(message="?", requested_schema={"type": "object", "properties": {}})
)


class Waiting:
    """Requests that ask their client something, in rounds."""

    def __init__(self, rounds: Rounds) -> None:
        self.rounds = rounds
        self.ended = anyio.Event()

    async def round(self, state: str | None = None) -> CallToolResult | InputRequiredResult | None:
        answers = ACCEPT if state else None
        params = CallToolRequestParams(
            name="execute_code", arguments={}, request_state=state, input_responses=answers
        )
        pending = self.rounds.joined(
            LOCAL, params, lambda ask: Questions(ask, None, "", "", SamplingDepths())
        )
        self.pending = pending
        return await self.rounds.outcome(pending, self._work)

    async def _work(self, pending: PendingRequest) -> CallToolResult:
        try:
            await pending.ask(FORM)
            return CallToolResult(content=[])
        except anyio.get_cancelled_exc_class():
            self.ended.set()
            raise


async def test_the_portal_keeps_no_more_than_a_hundred_waiting() -> None:
    async with anyio.create_task_group() as tasks:
        waiting = Waiting(Rounds(tasks))
        first = await waiting.round()
        for _ in range(MAX_WAITING):
            last = await waiting.round()
        with anyio.fail_after(DEADLINE_SECONDS):
            await waiting.ended.wait()
        assert isinstance(first, InputRequiredResult) and isinstance(last, InputRequiredResult)
        with pytest.raises(MCPError):
            await waiting.round(first.request_state)
        assert isinstance(await waiting.round(last.request_state), CallToolResult)
        tasks.cancel_scope.cancel()


async def test_a_request_whose_client_never_answers_is_ended_and_asks_nothing_more() -> None:
    async with anyio.create_task_group() as tasks:
        waiting = Waiting(Rounds(tasks, seconds=0.01))
        await waiting.round()
        with anyio.fail_after(DEADLINE_SECONDS):
            with pytest.raises(MCPError):
                await waiting.pending.ask(FORM)  # as a run that goes on, in a task of its own
            await waiting.ended.wait()
