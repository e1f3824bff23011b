"""A person at the client is asked by a form, in both eras, and the answer comes in the same request."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp_types import ClientCapabilities, ElicitationCapability, ElicitResult

from manifests.json_value import Json
from portal.calls.channel import ClientChannel
from portal.calls.questions import Questions, SamplingDepths
from portal.identity.approvers import Decider
from portal.records.store.run_tables import RunTables
from portal.records.store.writer import RunStore
from tests.portal.app.test_http_app import BEARER, TOKEN, client, served
from tests.portal.kept_runs import kept_runs
from tests.portal.peers import DEADLINE_SECONDS, Opened, Peer, opened, tool
from tests.portal.rows import failing
from tests.portal.runs.test_waiting import ASKS, KEPT

APPROVE = ElicitResult(action="accept", content={"decision": "approve"})
DENY = ElicitResult(action="accept", content={"decision": "deny"})
MERGE = """
try:
    found = await git.merge(id=7)
except ToolError as error:
    found = [error.code, str(error)]
found
"""


@dataclass
class Person:
    """Answers each form by `act`."""

    act: Callable[[], Awaitable[ElicitResult]] | None = None
    asked: list[str] = field(default_factory=list)

    async def __call__(self, context: Any, params: Any) -> ElicitResult:
        assert {"approve", "deny"} <= {*params.requested_schema["properties"]["decision"]["enum"]}
        self.asked.append(params.message)
        return await self.act()

    def answers(self, answer: ElicitResult) -> None:
        async def act() -> ElicitResult:
            return answer

        self.act = act


@dataclass
class Desk:
    """A portal, what its upstream was told, and a client with a person at it."""

    portal: Opened
    peer: Peer
    person: Person

    async def execute(self, code: str) -> dict[str, Json]:
        return (await self.portal.call("execute_code", code=code)).structured_content

    async def until_parked(self, times: int = 1) -> str:
        """The run, once it waits in the store for this many times."""
        runs, store = self.portal.portal.runs, self.portal.portal.runs.store_or_error()
        with anyio.fail_after(DEADLINE_SECONDS):
            while True:
                news = runs.changes.news
                for row in await store.read(partial(RunTables.listed, is_open=True)):
                    log = await store.read(partial(RunTables.log_after, n=0, run=row.id))
                    kinds = [each.kind for each in log if not each.seq]
                    if row.state == "waiting" and kinds.count("waiting") == times:
                        return row.id
                await news.wait()


@pytest.fixture(scope="module")
async def opened_portal(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Opened, Peer, str]]:
    peer, folder = Peer(tool("merge"), tool("push")), tmp_path_factory.mktemp("asking")
    async with (
        opened(folder, {"git": peer}, capabilities=ASKS, runs=KEPT) as portal,
        served(portal, TOKEN) as origin,
    ):
        yield portal, peer, origin


@pytest.fixture(params=["legacy", "auto"])
async def desk(
    request: pytest.FixtureRequest, opened_portal: tuple[Opened, Peer, str]
) -> AsyncIterator[Desk]:
    portal, peer, origin = opened_portal
    peer.calls.clear()
    person = Person()
    async with client(origin, request.param, BEARER, elicitation_callback=person) as answering:
        yield Desk(Opened(portal.portal, answering), peer, person)


async def test_answer_comes_in_the_same_request_however_long_the_person_takes_for_each_question(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def old(store: RunStore, *work: Any, read: Any = RunStore.read) -> Any:
        found = await read(store, *work)
        await anyio.sleep(0.05)
        return found  # which no longer holds

    monkeypatch.setattr(RunStore, "read", old)
    waits = iter([1, 2])

    async def late() -> ElicitResult:
        await desk.until_parked(next(waits))
        return APPROVE

    desk.person.act = late
    answer = await desk.execute(
        "print('once')\n[await git.merge(id=1), await portal.approve('And now?'), await git.push(id=2)]"
    )
    assert (answer["status"], answer["stdout"]) == ("ok", "once\n")
    assert answer["result"] == [{"id": 1}, True, {"id": 2}]
    first, second = desk.person.asked
    assert "git.merge" in first and "And now?" in second
    assert desk.peer.calls == [("merge", {"id": 1}), ("push", {"id": 2})]


@pytest.mark.parametrize(("desk", "is_parked"), [("legacy", True), ("auto", False)], indirect=["desk"])
async def test_decision_from_elsewhere_wins_while_the_form_is_open(desk: Desk, is_parked: bool) -> None:
    is_over = anyio.Event()

    async def overtaken() -> ElicitResult:
        run = await desk.until_parked() if is_parked else desk.person.asked[-1].split("run ")[1].split(")")[0]
        await desk.portal.portal.runs.decide(
            run, 1, Decider("ann"), is_approved=False, reason="ann was faster"
        )
        is_over.set()
        return APPROVE

    desk.person.act = overtaken
    answer = await desk.execute(MERGE)
    assert is_over.is_set()
    code, message = answer["result"]
    assert code == "denied" and "ann was faster" in message
    assert desk.peer.calls == []


# Since 2026-07-28 the request is over while a form is open, and the SDK's client shows one form after the other.
@pytest.mark.parametrize("desk", ["legacy"], indirect=True)
@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_answer_does_not_wait_for_a_form_that_nobody_needs_any_more(
    desk: Desk, is_cancelled: bool
) -> None:
    runs = desk.portal.portal.runs

    async def ignored() -> ElicitResult:
        run = await desk.until_parked()
        if is_cancelled:
            await runs.cancel(run, None)
        else:
            await runs.decide(run, 1, Decider("ann"), is_approved=True)
        await anyio.sleep_forever()
        return DENY

    desk.person.act = ignored
    answer = await desk.execute(MERGE)
    assert (answer["status"], len(desk.peer.calls)) == (("cancelled", 0) if is_cancelled else ("ok", 1))


async def test_gathered_calls_are_decided_together_ten_by_ten_and_questions_by_themselves(desk: Desk) -> None:
    async def by_arguments() -> ElicitResult:
        return DENY if "id: 2\n" in desk.person.asked[-1] else APPROVE

    desk.person.act = by_arguments
    code = """
calls = [portal.approve("really?"), *(git.merge(id=n) for n in range(12))]
found = await asyncio.gather(*calls, return_exceptions=True)
[each.code if isinstance(each, ToolError) else each for each in found]
"""
    answer = await desk.execute(code)
    assert answer["result"] == [True, *["denied"] * 10, {"id": 10}, {"id": 11}]
    assert sorted(each["id"] for _, each in desk.peer.calls) == [10, 11]
    assert sorted(each.count("git.merge of") for each in desk.person.asked) == [0, 2, 10]


@pytest.mark.parametrize("desk", ["legacy"], indirect=True)
async def test_open_form_is_not_shown_again_when_the_run_goes_on(desk: Desk) -> None:
    async def in_turn() -> ElicitResult:
        if "id: 1" in desk.person.asked[-1]:
            await desk.until_parked(2)
        return APPROVE

    desk.person.act = in_turn
    code = """
async def later():
    await portal.sleep(0.3)
    return await git.merge(id=2)
await asyncio.gather(git.merge(id=1), later())
"""
    assert (await desk.execute(code))["result"] == [{"id": 1}, {"id": 2}]
    assert [each.count("id: 1") for each in desk.person.asked] == [1, 0]


class Answering(ClientChannel):
    """A client whose person approves each form."""

    def __init__(self, before: Callable[[], object]) -> None:
        super().__init__()
        self.before, self.asked = before, 0

    async def ask_person(self, request: Any) -> Json:
        self.asked += 1
        self.before()
        return APPROVE.model_dump()


async def test_a_call_that_was_decided_before_the_form_is_shown_is_not_asked_about(tmp_path: Path) -> None:
    """A decision that cannot be written ends no portal."""
    with ExitStack() as failure:
        async with kept_runs(tmp_path) as kept:
            client = Answering(lambda: failure.enter_context(failing(kept.store)))
            await kept.until(run := await kept.start("ask"), "waiting")
            with anyio.fail_after(DEADLINE_SECONDS):
                for is_decided in (False, True):
                    if is_decided:
                        failure.close()
                        await kept.runs.decide(run, 1, Decider("ann"), is_approved=False)
                    await kept.runs.questions.ask(run, 1, {"question": "Merge?"}, client)
                    while kept.runs.questions.are_open(run):
                        await kept.runs.changes.news.wait()
    assert client.asked == 1


async def test_client_that_has_left_is_not_asked_by_a_run_that_goes_on(tmp_path: Path) -> None:
    can = ClientCapabilities(elicitation=ElicitationCapability())
    channel = ClientChannel(Questions(Person(), can, "", "", SamplingDepths()))
    async with kept_runs(tmp_path) as kept:
        assert channel.can_ask_person
        await kept.runs.questions.ask("run_1", 1, {"question": "Merge?"}, channel)
        kept.runs.questions.leave("run_1")
    assert not channel.can_ask_person


@pytest.mark.parametrize(
    ("mode", "action", "status"),
    [("legacy", "accept", "ok"), ("auto", "accept", "ok"), ("auto", "decline", "waiting")],
)
async def test_client_is_sent_to_the_console_where_the_person_decides(
    tmp_path: Path, mode: str, action: Any, status: str
) -> None:
    asked: list[Any] = []

    async def open_page(context: Any, params: Any) -> ElicitResult:
        asked.append(params)
        if action == "accept":
            tasks.start_soon(decide)
        return ElicitResult(action=action, content={"decision": "approve"})  # which no page decides by

    async def decide() -> None:
        (row,) = await portal.portal.runs.store_or_error().read(partial(RunTables.listed, is_asking=True))
        await portal.portal.runs.decide(row.id, 1, Decider("console ann"), is_approved=True)

    runs: Json = {"ask_in": "console", "public_url": "https://portal.example", "park_after_seconds": 0.1}
    peer = Peer(tool("merge"))
    async with (
        opened(tmp_path, {"git": peer}, capabilities=ASKS, runs=runs) as portal,
        served(portal, TOKEN) as origin,
        anyio.create_task_group() as tasks,
        client(origin, mode, BEARER, elicitation_callback=open_page) as answering,
    ):
        answer = await Opened(portal.portal, answering).call("execute_code", code="await git.merge(id=7)")
        assert answer.structured_content["status"] == status
        assert [each.mode for each in asked] == ["url"]
        assert re.fullmatch(r"https://portal\.example/ui/approvals#run_[0-9a-f]{8}-1", asked[0].url)
        assert len(peer.calls) == (status == "ok")
