"""What an upstream wants to know of the person at the client reaches that person, in every era."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp_types import ElicitResult

from manifests.json_value import Json
from manifests.portal_manifest import HttpUpstream
from tests.portal.passthrough.chatty_server import SECRET
from tests.portal.passthrough.peers import CLIENTS, UPSTREAMS, Ear, Person, chatty_upstreams, client_of
from tests.portal.peers import DEADLINE_SECONDS, states
from upstreams.errors import UpstreamIncompleteError
from upstreams.questions import ServerRequestRouter

pytestmark = pytest.mark.anyio


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


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize(
    "asked",
    [
        "field='api_key'",
        "field='user_pin'",
        "field='accessToken'",
        "field='\\uff50\\uff41\\uff53\\uff53\\uff57\\uff4f\\uff52\\uff44'",
    ],
)
async def test_nobody_is_asked_for_what_is_named_like_a_secret(
    ear: Ear, person: Person, upstream: str, asked: str
) -> None:
    answer = await ear.run(f"await {upstream}.ask({asked})")
    assert answer["error"]["code"] == "elicitation_refused"
    assert person.asked == []
    # An older upstream hears of it and says how the call ended; a newer one is left in the middle of the call.
    state = "failed" if upstream.endswith("legacy") else "unknown"
    assert states(answer) == [(f"{upstream}.ask", state)]


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


async def test_a_question_ends_with_the_time_of_its_call(tmp_path: Path) -> None:
    async def never(context: Any, params: Any) -> ElicitResult:
        await anyio.sleep_forever()
        return ElicitResult(action="cancel")

    async with (
        chatty_upstreams(call_seconds=1.0) as upstreams,
        client_of(tmp_path, upstreams, "http", "legacy", {"elicitation_callback": never}) as ear,
        anyio.create_task_group() as tasks,
    ):

        async def ask(upstream: str) -> None:
            answer = await ear.run(f"await {upstream}.ask()")
            assert answer["error"]["code"] == "question_unanswered"

        for upstream in UPSTREAMS:
            tasks.start_soon(ask, upstream)


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
    router = ServerRequestRouter(HttpUpstream(url="http://x"))

    async def ask(answers: dict[str, Json]) -> dict[str, Json]:
        return raw

    async def end(answers: dict[str, Json]) -> dict[str, Json]:
        return {"content": []}

    raw: dict[str, Json] = {"resultType": "input_required", "inputRequests": requests, "requestState": "s"}
    with router.track(None) as call:
        with anyio.fail_after(DEADLINE_SECONDS), pytest.raises(UpstreamIncompleteError):
            await router.rounds(ask, call)
        assert await router.rounds(end, call) == {"content": []}


async def test_a_client_that_cannot_ask_is_told_so_and_the_manifest_may_forbid_to_ask(tmp_path: Path) -> None:
    async with chatty_upstreams() as upstreams:
        upstreams["http_legacy"]["elicitation"] = False
        async with client_of(tmp_path, upstreams, "http", "auto") as ear:
            answer = await ear.run("await stdio_modern.ask()")
            assert answer["error"]["code"] == "elicitation_unsupported"
        person = Person()
        async with client_of(tmp_path, upstreams, "http", "auto", {"elicitation_callback": person}) as ear:
            assert (await ear.run("await http_legacy.ask()"))["status"] == "error"
        assert person.asked == []
