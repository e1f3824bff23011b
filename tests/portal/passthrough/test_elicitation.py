"""What an upstream wants to know of the person at the client reaches that person, in every era."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ClientCapabilities,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
)

from manifests.json_value import Json
from manifests.upstream_sections import HttpUpstream
from portal.caller import LOCAL, Caller
from portal.ledger import Ledger
from portal.passthrough.asking import Ask, Asking
from portal.passthrough.audience import NOBODY, Audience
from portal.passthrough.clean_json import Scrub, clean_json, one_line
from portal.passthrough.elicitation import MAX_SCHEMA_CHARACTERS, elicitation
from portal.passthrough.form_answer import as_meant, is_ambiguous
from portal.passthrough.parking import MAX_PARKED, Parking
from portal.passthrough.sampling import Depths
from tests.portal.passthrough.chatty_server import SECRET, STATE, Chatty
from tests.portal.passthrough.peers import CLIENTS, UPSTREAMS, Ear, chatty_upstreams, client_of, ear_of
from tests.portal.peers import DEADLINE_SECONDS, states
from tests.upstreams.peers import http_peer
from upstreams.errors import UpstreamHalfwayError
from upstreams.questions import QuestionDesk, QuestionError

pytestmark = pytest.mark.anyio


class Person:
    """Answers what is asked, and remembers it."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.action = "accept"

    async def __call__(self, context: Any, params: Any) -> ElicitResult:
        self.asked.append(params)
        is_form = params.mode == "form" and self.action == "accept"
        form = params.requested_schema["properties"] if is_form else {}
        content = {name: field.get("enum", ["Ada"])[-1] for name, field in form.items()} if is_form else None
        return ElicitResult(action=self.action, content=content)


@pytest.fixture(scope="module", params=CLIENTS, ids="-".join)
async def met(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Ear, Person]]:
    transport, mode = request.param
    person, folder = Person(), tmp_path_factory.mktemp("elicitation")
    async with (
        chatty_upstreams() as upstreams,
        client_of(folder, upstreams, transport, mode, {"elicitation_callback": person}) as ear,
    ):
        yield ear, person


@pytest.fixture
def ear(met: tuple[Ear, Person]) -> Ear:
    met[1].asked.clear()
    met[1].action = "accept"
    return met[0]


@pytest.fixture
def person(met: tuple[Ear, Person]) -> Person:
    return met[1]


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_the_person_is_asked_and_told_who_asks(ear: Ear, person: Person, upstream: str) -> None:
    answer = await ear.run(f"x = 1\n[await {upstream}.ask(), x]")
    assert answer["result"] == ["accept {'who': 'Ada'}", 1]
    assert [params.message for params in person.asked] == [f"{upstream} asks: Whom to greet?"]
    assert person.asked[0].requested_schema["properties"] == {"who": {"type": "string"}}


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_no_reaches_the_upstream(ear: Ear, person: Person, action: str) -> None:
    person.action = action
    calls = [f"await {upstream}.ask()" for upstream in UPSTREAMS]
    assert (await ear.run(f"[{', '.join(calls)}]"))["result"] == [f"{action} None"] * 4


async def test_calls_side_by_side_ask_side_by_side(ear: Ear, person: Person) -> None:
    calls = ", ".join(f"{upstream}.ask()" for upstream in UPSTREAMS)
    answer = await ear.run(f"await asyncio.gather({calls})")
    assert answer["result"] == ["accept {'who': 'Ada'}"] * 4
    assert sorted(params.message for params in person.asked) == sorted(
        f"{upstream} asks: Whom to greet?" for upstream in UPSTREAMS
    )


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_one_script_may_be_asked_again_and_again(ear: Ear, person: Person, upstream: str) -> None:
    answer = await ear.run(f"[await {upstream}.ask(words=f'{{n}}?') for n in range(5)]")
    assert len(answer["result"]) == 5
    assert [params.message for params in person.asked] == [f"{upstream} asks: {n}?" for n in range(5)]


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize(
    "asked",
    [
        "words='Your password?'",
        "field='api_key'",
        "words='The PIN, please'",
        "field='accessToken'",
        "words='Give me your pass\\u200bword'",
        "words='Give me your p\\xadassword'",
        "field='p\\u034fassword'",
        "words='\\uff50\\uff41\\uff53\\uff53\\uff57\\uff4f\\uff52\\uff44'",
        "words='Your \\u0440\\u0430ssword'",
        "words='Your p.a.s.s.w.o.r.d'",
    ],
)
async def test_nobody_is_asked_for_what_looks_like_a_secret(
    ear: Ear, person: Person, upstream: str, asked: str
) -> None:
    answer = await ear.run(f"await {upstream}.ask({asked})")
    assert answer["error"]["code"] == "elicitation_refused"
    assert person.asked == []
    # An older upstream hears of it and says how the call ended; a newer one is left in the middle of the call.
    state = "failed" if upstream.endswith("legacy") else "unknown"
    assert states(answer) == [(f"{upstream}.ask", state)]


async def test_questions_that_are_refused_are_counted(ear: Ear, person: Person) -> None:
    code = """
for _ in range(20):
    try:
        await http_modern.ask(words='Your password?')
    except ToolError:
        pass
await http_modern.ask()
"""
    assert (await ear.run(code))["error"]["code"] == "question_refused"
    assert person.asked == []


async def test_a_huge_question_ends_only_its_call(ear: Ear, person: Person) -> None:
    answer = await ear.run("await stdio_legacy.ask(words='x' * 600_000)")
    assert (answer["status"], person.asked) == ("error", [])
    assert (await ear.run("await stdio_legacy.ask(words='x' * 100_000)"))["status"] == "ok"
    assert len(person.asked[0].message) < 2_100


def test_a_form_that_is_too_large_is_not_looked_at() -> None:
    seen: list[str] = []

    def scrub(text: str, limit: int) -> str:
        seen.append(text)
        return text[:limit]

    large: dict[str, Json] = {"a": {"type": "string", "enum": ["a"] * MAX_SCHEMA_CHARACTERS}}
    with pytest.raises(QuestionError):
        put("Which?", large, scrub)
    assert seen == ["Which?"]
    put("Which?", {"a": {"type": "string", "enum": ["a", "b"]}}, scrub)


def put(
    message: str, properties: dict[str, Json], scrub: Scrub = lambda text, limit: text[:limit]
) -> ElicitRequest:
    form = {"type": "object", "properties": properties}
    client = ClientCapabilities.model_validate({"elicitation": {"form": {}}})
    return elicitation("up", {"message": message, "requestedSchema": form}, scrub, client)


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"ok": {"type": "boolean"}},
        {"which": {"type": "string", "enum": ["a", "b"]}},
        {"which": {"type": "string", "oneOf": [{"const": "a", "title": "A"}]}},
        {"which": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}},
        {"which": {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}}},
    ],
)
def test_where_nothing_can_be_typed_a_secret_may_be_talked_of(properties: dict[str, Json]) -> None:
    asked = put("Really delete the password of ci-deploy?", properties)
    assert asked.params.message == "up asks: Really delete the password of ci-deploy?"


@pytest.mark.parametrize(
    "field",
    [
        {"type": "string"},
        {"type": "number"},
        {"type": "integer"},
        {"type": "string", "enum": []},
        {"type": "string", "oneOf": [{"const": "a", "title": "A"}, {"title": "B"}]},
        {"type": "array", "items": {"type": "string"}},
        {"type": ["boolean", "string"]},
        {},
        None,
    ],
)
def test_where_anything_can_it_may_not(field: Json) -> None:
    with pytest.raises(QuestionError):
        put("The password of ci-deploy?", {"ok": {"type": "boolean"}, "more": field})


async def test_words_that_only_contain_such_a_word_are_asked(ear: Ear, person: Person) -> None:
    answer = await ear.run(
        "await http_modern.ask(words='Spinning wheel or secretary? How many tokens?', field='pinned')"
    )
    assert answer["result"] == "accept {'pinned': 'Ada'}"


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_a_page_is_opened_by_its_address_and_its_host_is_told(
    ear: Ear, person: Person, upstream: str
) -> None:
    answer = await ear.run(f"await {upstream}.open_page(url='https://login.example/x?y=1')")
    assert answer["result"] == "accept"
    assert person.asked[0].url == "https://login.example/x?y=1"
    assert person.asked[0].message == f"{upstream} asks you to open a page of login.example: Log in"


@pytest.mark.parametrize(
    "url",
    [
        "http://login.example/",
        "https://safe.example@evil.example/",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://",
        "https://x.example/\u202e",
        "https://x.example/" + "x" * 2_000,
        "https://evil.example\\.github.com/login",
        "https://evil.example\\@github.com/",
        "https://login.example%2eevil.example/",
        "https://evil.example;github.com/",
        "https://github.com:443 .evil.example/",
        "https://github.com:x/",
        "https://github.com:99999/",
        "https://ex ample.com/",
        "https://a<b>.example/",
        "https://x.example/a\\b",
    ],
)
async def test_no_other_page_is_opened(ear: Ear, person: Person, url: str) -> None:
    answer = await ear.run(f"await http_modern.open_page(url={url!r})")
    assert answer["error"]["code"] == "elicitation_refused"
    assert person.asked == []


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Login.Example:8443/x?a=%20#b", "login.example"),
        ("http://127.0.0.1:8000/", "127.0.0.1"),
        ("http://[::1]:8000/", "::1"),
        ("https://xn--gthub-n4a.example/", "xn--gthub-n4a.example"),
    ],
)
async def test_the_host_that_is_told_is_the_one_that_is_opened(
    ear: Ear, person: Person, url: str, host: str
) -> None:
    assert (await ear.run(f"await http_modern.open_page(url={url!r})"))["result"] == "accept"
    assert f" page of {host}: " in person.asked[0].message


async def test_secrets_of_the_portal_stay_behind(ear: Ear, person: Person) -> None:
    await ear.run(f"await stdio_modern.ask(words='Is it {SECRET}? \\ud800')")
    assert SECRET not in person.asked[0].message


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_the_upstream_hears_the_names_and_choices_that_it_asked_with(
    ear: Ear, person: Person, upstream: str
) -> None:
    # The result of an upstream by URL would not show its token.
    own = SECRET if "stdio" in upstream else "it"
    answer = await ear.run(f"await {upstream}.ask(field='who\\n{own}', choices=['no', 'in\\n{own}'])")
    told = "it" if own == "it" else "[hidden]"
    (form,) = [each.requested_schema["properties"] for each in person.asked]
    assert form == {f"who {told}": {"type": "string", "enum": ["no", f"in {told}"]}}
    assert answer["result"] == "accept " + repr({f"who\n{own}": f"in\n{own}"})


async def test_choices_that_would_look_the_same_are_not_offered(ear: Ear, person: Person) -> None:
    answer = await ear.run(f"await stdio_modern.ask(choices=['{SECRET}', '[hidden]'])")
    assert answer["error"]["code"] == "elicitation_refused"
    assert person.asked == []


@pytest.mark.parametrize(
    ("field", "content", "meant"),
    [
        ({"oneOf": [{"const": "a\nb", "title": "x"}, {"const": "c", "title": "y"}]}, "a b", "a\nb"),
        ({"type": "array", "items": {"enum": ["a\nb", "c"]}}, ["c", "a b"], ["c", "a\nb"]),
        ({"type": "array", "items": {"anyOf": [{"const": "a\nb"}, {"const": 1}]}}, ["a b"], ["a\nb"]),
        ({"type": "string", "default": "a\nb"}, "a b", "a\nb"),
        ({"type": "array", "default": ["a\nb"]}, ["a b"], ["a\nb"]),
        ({"type": "boolean", "default": True}, False, False),
        ({"type": "string"}, "a b", "a b"),
        ("no schema", "x", "x"),
        ({"enum": "a", "oneOf": [1], "items": None}, "x", "x"),
    ],
)
def test_an_answer_means_what_was_shown(field: Json, content: Json, meant: Json) -> None:
    asked: Json = {"properties": {"f": field}}
    shown = clean_json(asked, one_line(lambda text, limit: text), 100)
    assert not is_ambiguous(asked, shown)
    answer = {"action": "accept", "content": {"f": content, "other": 1}}
    assert as_meant(answer, asked, shown)["content"] == {"f": meant, "other": 1}
    assert as_meant({"action": "decline"}, asked, shown) == {"action": "decline"}


@pytest.mark.parametrize(("transport", "mode"), CLIENTS)
async def test_a_client_that_cannot_ask_is_told_so(tmp_path: Path, transport: str, mode: str) -> None:
    async with chatty_upstreams() as upstreams, client_of(tmp_path, upstreams, transport, mode) as ear:
        for upstream in UPSTREAMS:
            answer = await ear.run(f"await {upstream}.ask()")
            assert answer["error"]["code"] == "elicitation_unsupported"


async def test_the_manifest_may_forbid_to_ask(tmp_path: Path) -> None:
    person = Person()
    async with chatty_upstreams() as upstreams:
        for entry in upstreams.values():
            entry["elicitation"] = False
        for mode in ("auto", "legacy"):
            options = {"elicitation_callback": person}
            async with client_of(tmp_path, upstreams, "http", mode, options) as ear:
                for upstream in UPSTREAMS:
                    assert (await ear.run(f"await {upstream}.ask()"))["status"] == "error"
    assert person.asked == []


async def test_a_question_ends_with_the_time_of_its_call(tmp_path: Path) -> None:
    async def never(context: Any, params: Any) -> ElicitResult:
        await anyio.sleep_forever()
        return ElicitResult(action="cancel")

    async with chatty_upstreams() as upstreams:
        for entry in upstreams.values():
            entry["call_seconds"] = 1.0
        async with client_of(tmp_path, upstreams, "http", "legacy", {"elicitation_callback": never}) as ear:
            for upstream in UPSTREAMS:
                answer = await ear.run(f"await {upstream}.ask()")
                assert answer["error"]["code"] == "upstream_timeout"


class Rounds:
    """A client of the newer revision that makes each round itself."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, code: str, **more: Json) -> Any:
        with anyio.fail_after(DEADLINE_SECONDS):
            return await self.client.session.call_tool(
                "execute_code", {"code": code}, allow_input_required=True, **more
            )


@pytest.fixture
async def rounds(tmp_path: Path) -> AsyncIterator[tuple[Rounds, Chatty]]:
    up = Chatty("modern")
    options = {"elicitation_callback": Person()}
    async with http_peer(up.server.streamable_http_app()) as peer:
        upstreams: dict[str, dict[str, Json]] = {"up": {"url": f"http://127.0.0.1:{peer.port}/mcp"}}
        async with client_of(tmp_path, upstreams, "http", "auto", options) as ear:
            yield Rounds(ear.client), up


ACCEPT = {"question-1": ElicitResult(action="accept", content={"who": "Ada"})}


async def test_the_script_goes_on_where_it_was_and_nothing_is_done_twice(
    rounds: tuple[Rounds, Chatty],
) -> None:
    client, up = rounds
    code = "print('once')\nawait up.ask()"
    first = await client.call(code)
    assert isinstance(first, InputRequiredResult) and first.request_state
    assert STATE not in first.request_state, "the upstream's own state stays in the portal"
    last = await client.call(code, input_responses=ACCEPT, request_state=first.request_state)
    answer = last.structured_content
    assert (answer["stdout"], answer["result"]) == ("once\n", "accept {'who': 'Ada'}")
    assert (up.acted, len(answer["calls"])) == (1, 1)


async def test_a_state_is_good_for_one_answer_of_one_request(rounds: tuple[Rounds, Chatty]) -> None:
    client, up = rounds
    code = "await up.ask()"
    first = await client.call(code)
    state = first.request_state
    forged: list[tuple[str, str]] = [
        (code, "x"),
        (code, ""),
        (code, state[:-1] + ("A" if state[-1] != "A" else "B")),
        (code + " ", state),
        (code, STATE),
        (code, json.dumps({"state": state})),
    ]
    for script, wrong in forged:
        with pytest.raises(MCPError):
            await client.call(script, input_responses=ACCEPT, request_state=wrong)
    assert up.acted == 0
    last = await client.call(code, input_responses=ACCEPT, request_state=state)
    assert last.structured_content["status"] == "ok"
    with pytest.raises(MCPError):
        await client.call(code, input_responses=ACCEPT, request_state=state)
    assert up.acted == 1


async def test_what_a_call_logs_after_its_question_is_heard(rounds: tuple[Rounds, Chatty]) -> None:
    heard: list[Any] = []

    async def note(params: Any) -> None:
        heard.append((params.level, params.data))

    url, code = rounds[0].client.server, "await up.ask(logs=['debug', 'error'])\nawait up.log(data='later')"
    assert isinstance(url, str)
    options: dict[str, Any] = {
        "elicitation_callback": Person(),
        "logging_callback": note,
        "log_level": "info",
    }
    async with Client(url, mode="auto", **options) as client:
        first = await Rounds(client).call(code)
        last = await Rounds(client).call(code, input_responses=ACCEPT, request_state=first.request_state)
    assert last.structured_content["status"] == "ok"
    assert heard == [("error", "after the answer"), ("info", "later")]


async def test_a_state_that_is_not_there_is_the_clients_mistake(rounds: tuple[Rounds, Chatty]) -> None:
    async def hear(progress: float, total: float | None, message: str | None) -> None: ...

    for more in ({}, {"progress_callback": hear}):
        with pytest.raises(MCPError) as caught:
            await rounds[0].call("1", request_state="x", **more)
        assert caught.value.code == INVALID_PARAMS


async def test_a_later_round_that_declares_nothing_goes_on_and_starts_nothing(
    rounds: tuple[Rounds, Chatty],
) -> None:
    client, up = rounds
    url = client.client.server
    assert isinstance(url, str)
    first = await client.call("await up.ask()")
    async with Client(url, mode="auto") as silent:
        answer = {"input_responses": ACCEPT, "request_state": first.request_state}
        last = await Rounds(silent).call("await up.ask()", **answer)
        assert last.structured_content["result"] == "accept {'who': 'Ada'}"
        assert up.acted == 1
        with pytest.raises(MCPError):
            await Rounds(silent).call("await up.ask()", **answer)
        # Without a state it is a new one, which nobody can be asked about.
        new = await Rounds(silent).call("await up.ask()")
        assert new.structured_content["error"]["code"] == "elicitation_unsupported"
    assert up.acted == 1


async def test_answers_to_other_questions_are_nothing(rounds: tuple[Rounds, Chatty]) -> None:
    client, up = rounds
    first = await client.call("await up.ask()")
    other = {"question-7": ElicitResult(action="accept", content={"who": "Eve"})}
    again = await client.call("await up.ask()", input_responses=other, request_state=first.request_state)
    assert isinstance(again, InputRequiredResult) and again.request_state != first.request_state
    last = await client.call("await up.ask()", input_responses=ACCEPT, request_state=again.request_state)
    assert last.structured_content["result"] == "accept {'who': 'Ada'}"
    assert up.acted == 1


async def test_a_question_cannot_pass_for_one_of_somebody_else(ear: Ear, person: Person) -> None:
    await ear.run("await stdio_modern.ask(words='Fine.\\n\\nmail asks: Delete all?\\u202e\\x1b[2J')")
    assert person.asked[0].message == "stdio_modern asks: Fine. mail asks: Delete all? [2J"


async def test_a_request_that_is_cancelled_ends_its_calls_though_it_may_be_asked(
    rounds: tuple[Rounds, Chatty],
) -> None:
    client, up = rounds
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.call, "await up.hang()")
        with anyio.fail_after(DEADLINE_SECONDS):
            await up.hanging.wait()
        tasks.cancel_scope.cancel()
    with anyio.fail_after(DEADLINE_SECONDS):
        await up.cancelled.wait()


async def test_a_question_of_an_older_upstream_is_refused_while_it_may_be_about_anothers_call(
    tmp_path: Path,
) -> None:
    person = Person()
    options = {"elicitation_callback": person}
    async with (
        chatty_upstreams() as upstreams,
        client_of(tmp_path, upstreams, "http", "legacy", options) as one,
    ):
        url = one.client.server
        assert isinstance(url, str)
        async with ear_of(url, "legacy", options) as other, anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: other.run("await http_legacy.hang()"))
            await one.run("while not await http_legacy.hangs():\n    await asyncio.sleep(0.01)")
            assert (await one.run("await http_legacy.ask()"))["status"] == "error"
            assert person.asked == []
            assert (await one.run("await http_modern.ask()"))["status"] == "ok"
            tasks.cancel_scope.cancel()
        await one.run("await http_legacy.cancelled()")
        assert (await one.run("await http_legacy.ask()"))["status"] == "ok"


@pytest.mark.parametrize("upstream", ["http_legacy", "stdio_legacy"])
async def test_what_belongs_to_a_call_that_was_given_up_reaches_nobody_else(
    tmp_path: Path, upstream: str
) -> None:
    person = Person()
    options = {"elicitation_callback": person}
    async with (
        chatty_upstreams() as upstreams,
        client_of(tmp_path, upstreams, "http", "legacy", options) as one,
    ):
        url = one.client.server
        assert isinstance(url, str)
        async with ear_of(url, "legacy", options) as other, anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: other.run(f"await {upstream}.deaf()"))
            await one.run(f"while not await {upstream}.hangs():\n    await asyncio.sleep(0.01)")
            tasks.cancel_scope.cancel()
        answer = await one.run(f"await {upstream}.cancelled()\nawait {upstream}.go_on()")
        assert "no answer" in answer["result"]
        assert (person.asked, one.logs) == ([], [])


@pytest.mark.parametrize("upstream", ["http_legacy", "stdio_legacy"])
async def test_what_belongs_to_a_reading_reaches_nobody_whose_call_is_under_way(
    tmp_path: Path, upstream: str
) -> None:
    person = Person()
    options = {"elicitation_callback": person}
    async with (
        chatty_upstreams() as upstreams,
        client_of(tmp_path, upstreams, "http", "legacy", options) as one,
    ):
        url = one.client.server
        assert isinstance(url, str)
        async with ear_of(url, "legacy", options) as other, anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: one.run(f"await {upstream}.hang()"))
            code = f"""
while not await {upstream}.hangs():
    await asyncio.sleep(0.01)
import portal
len(await portal.read_resource("note://asking", "{upstream}"))
"""
            assert (await other.run(code))["result"] == 2
            assert (person.asked, one.logs) == ([], [])
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("upstream", ["http_legacy", "stdio_legacy"])
async def test_and_its_own_caller_is_still_asked_for_the_next_call(tmp_path: Path, upstream: str) -> None:
    person = Person()
    options = {"elicitation_callback": person}
    async with (
        chatty_upstreams() as upstreams,
        client_of(tmp_path, upstreams, "http", "legacy", options) as one,
    ):
        code = f"""
call = asyncio.ensure_future({upstream}.hang())
while not await {upstream}.hangs():
    await asyncio.sleep(0.01)
call.cancel()
await {upstream}.cancelled()
await {upstream}.ask()
"""
        assert (await one.run(code))["result"] == "accept {'who': 'Ada'}"


@pytest.mark.parametrize(
    "requests",
    [
        [],
        "x",
        {"a": None},
        {"a": {"method": 7}},
        {"a": {"method": "elicitation/create", "params": [1]}},
        {"a": {"method": "elicitation/create", "params": {}}},
        {"a": {"method": "tools/call", "params": {"name": "wipe"}}},
        {str(number): {"method": "elicitation/create", "params": {}} for number in range(11)},
    ],
)
async def test_what_asks_in_no_sensible_way_ends_its_call(requests: Json) -> None:
    desk = QuestionDesk(HttpUpstream(url="http://x"))

    async def again(answers: dict[str, Json]) -> dict[str, Json]:
        return raw

    raw: dict[str, Json] = {"resultType": "input_required", "inputRequests": requests, "requestState": "s"}
    with anyio.fail_after(DEADLINE_SECONDS), pytest.raises(UpstreamHalfwayError):
        await desk.rounds(raw, again, None)
    done: dict[str, Json] = {"content": []}
    assert await desk.rounds(done, again, None) == done


def asking(ask: Ask) -> Asking:
    return Asking(ask, None, "", "", Depths())


async def ask_something(audience: Audience) -> CallToolResult:
    asked = ElicitRequestFormParams(message="?", requested_schema={"type": "object", "properties": {}})
    assert audience._asking is not None
    await audience._asking._ask(ElicitRequest(params=asked))
    return CallToolResult(content=[])


async def test_the_portal_keeps_no_more_than_a_hundred_waiting() -> None:
    ended: list[str] = []

    async def work(audience: Audience) -> CallToolResult:
        try:
            return await ask_something(audience)
        except anyio.get_cancelled_exc_class():
            ended.append("ended")
            raise

    async with anyio.create_task_group() as tasks:
        parking, params = Parking(tasks), CallToolRequestParams(name="execute_code", arguments={})
        first = await parking.round(LOCAL, params, work, Ledger(), NOBODY, asking)
        assert isinstance(first, InputRequiredResult)
        for _ in range(MAX_PARKED):
            last = await parking.round(LOCAL, params, work, Ledger(), NOBODY, asking)
        while not ended:
            await anyio.lowlevel.checkpoint()
        for state, is_there in ((first.request_state, False), (last.request_state, True)):
            answered = params.model_copy(update={"request_state": state, "input_responses": ACCEPT})
            if is_there:
                done = await parking.round(LOCAL, answered, work, Ledger(), NOBODY, asking)
                assert isinstance(done, CallToolResult)
            else:
                with pytest.raises(MCPError):
                    await parking.round(LOCAL, answered, work, Ledger(), NOBODY, asking)
        assert ended == ["ended"]
        tasks.cancel_scope.cancel()


async def test_no_caller_ends_the_waiting_request_of_another_who_has_fewer() -> None:
    async with anyio.create_task_group() as tasks:
        parking, params = Parking(tasks), CallToolRequestParams(name="execute_code", arguments={})
        few, many = Caller("few", "few"), Caller("many", "many")
        first = await parking.round(few, params, ask_something, Ledger(), NOBODY, asking)
        assert isinstance(first, InputRequiredResult)
        for _ in range(MAX_PARKED + 4):
            await parking.round(many, params, ask_something, Ledger(), NOBODY, asking)
        answered = params.model_copy(update={"request_state": first.request_state, "input_responses": ACCEPT})
        done = await parking.round(few, answered, ask_something, Ledger(), NOBODY, asking)
        assert isinstance(done, CallToolResult)
        tasks.cancel_scope.cancel()


async def test_a_request_whose_client_never_answers_is_ended() -> None:
    ended = anyio.Event()

    async def work(audience: Audience) -> CallToolResult:
        try:
            return await ask_something(audience)
        finally:
            ended.set()

    async with anyio.create_task_group() as tasks:
        parking = Parking(tasks, seconds=0.01)
        params = CallToolRequestParams(name="execute_code", arguments={})
        await parking.round(LOCAL, params, work, Ledger(), NOBODY, asking)
        with anyio.fail_after(DEADLINE_SECONDS):
            await ended.wait()
    assert parking._parked == {}
