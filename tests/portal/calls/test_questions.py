"""An upstream's requests to the person, the model and the roots of a client, and its progress."""

import itertools
from collections.abc import AsyncIterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import (
    INVALID_PARAMS,
    ClientCapabilities,
    CreateMessageResult,
    ElicitationCapability,
    ElicitResult,
    ErrorData,
    TextContent,
    UrlElicitationCapability,
)
from pydantic import BaseModel

from manifests.json_value import Json
from manifests.portal_manifest import HttpUpstream, StdioUpstream
from portal.calls.questions import elicitation, missing_key
from tests.portal.app.test_http_app import client
from tests.portal.chatty_server import SECRET
from tests.portal.clients import (
    CLIENTS,
    UPSTREAMS,
    Ear,
    Person,
    chatty_upstreams,
    client_of,
    ear_of,
    served,
)
from tests.portal.peers import DEADLINE_SECONDS, states, write_manifest
from tests.upstreams.peers import http_peer
from upstreams.errors import UpstreamIncompleteError
from upstreams.questions import QuestionError, ServerRequestRouter
from upstreams.transports.notifications import AbandonedRequests

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")


CODES = "[e.code for e in await asyncio.gather({}, return_exceptions=True)]"
ERRORS = CODES.replace("e.code", "[e.code, e.hint]", 1)


class Greeting(BaseModel):
    who: str


class Model:
    """Says the same to everything; `before` may do something first."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.before: Any = None

    async def __call__(self, context: Any, params: Any) -> CreateMessageResult:
        self.asked.append(params)
        if self.before is not None:
            await self.before()
        return CreateMessageResult(role="assistant", model="m", content=TextContent(text="hello"))


@dataclass
class Met:
    """A client of a portal over all upstreams, and who answers at it."""

    ear: Ear
    person: Person
    model: Model

    @property
    def told(self) -> list[str]:
        return [message or "" for _, _, message in self.ear.progress]

    @property
    def counted(self) -> list[str]:
        """The progress that upstreams reported."""
        return [message for message in self.told if ".count: " in message]


@pytest.fixture(scope="module", params=CLIENTS, ids="-".join)
async def opened(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Met]:
    transport, mode = request.param
    person, model = Person(), Model()
    options = {"elicitation_callback": person, "sampling_callback": model}
    folder, server = tmp_path_factory.mktemp("questions"), {"progress_seconds": 0.2}
    async with (
        chatty_upstreams(sampling={"max_tokens": 150}, roots=["file:///srv/data"]) as upstreams,
        client_of(folder, upstreams, transport, mode, options, server=server) as ear,
    ):
        yield Met(ear, person, model)


@pytest.fixture
def met(opened: Met) -> Met:
    opened.person.asked.clear()
    opened.person.action = "accept"
    opened.model.asked.clear()
    return opened


async def test_person_and_model_are_asked_and_told_who_asks(met: Met) -> None:
    sample = f"sample(tokens=100, words='the token is {SECRET}')"
    calls = [f"[await {name}.ask(), await {name}.{sample}, await {name}.roots()]" for name in UPSTREAMS]
    answer = await met.ear.run(f"[{', '.join(calls)}]")
    assert answer["result"] == [["accept {'who': 'Ada'}", "hello", ["file:///srv/data"]]] * 4
    for name, person, model in zip(UPSTREAMS, met.person.asked, met.model.asked, strict=True):
        assert person.message == f"{name} asks: Whom to greet?"
        assert person.requested_schema["properties"] == {"who": {"type": "string"}}
        assert (model.max_tokens, model.messages[0].content.text) == (100, "the token is [hidden]")
        assert name in model.system_prompt


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_no_reaches_the_upstream(met: Met, action: str) -> None:
    met.person.action = action
    calls = [f"await {upstream}.ask()" for upstream in UPSTREAMS]
    assert (await met.ear.run(f"[{', '.join(calls)}]"))["result"] == [f"{action} None"] * 4


async def test_error_of_the_client_says_why_there_is_no_answer(tmp_path: Path) -> None:
    async def person(context: Any, params: Any) -> ErrorData:
        return ErrorData(code=INVALID_PARAMS, message="no window to show it in")

    async with (
        chatty_upstreams() as upstreams,
        client_of(tmp_path, upstreams, "http", "legacy", {"elicitation_callback": person}) as ear,
    ):
        calls = ", ".join(f"{name}.ask()" for name in UPSTREAMS)
        answer = await ear.run(ERRORS.format(calls))
        for code, hint in answer["result"]:
            assert (code, "no window to show it in" in hint) == ("question_unanswered", True)


async def test_nobody_is_asked_for_what_is_named_like_a_secret(met: Met) -> None:
    """The names are in tests/security/test_words_of_upstreams.py."""
    calls = "http_modern.ask(field='api_key'), stdio_legacy.ask(field='api_key')"
    answer = await met.ear.run(CODES.format(calls))
    assert answer["result"] == ["elicitation_refused"] * 2
    assert met.person.asked == []
    # An older upstream hears of it and says how the call ended; a newer one is left in the middle of the call.
    assert states(answer) == [("http_modern.ask", "unknown"), ("stdio_legacy.ask", "failed")]


PAGES = {
    "https://Login.Example:8443/x?a=%20#b": "login.example",
    "http://127.0.0.1:8000/": "127.0.0.1",
    "http://[::1]:8000/": "::1",
    "https://xn--gthub-n4a.example/": "xn--gthub-n4a.example",
    "http://login.example/": None,
    "https://safe.example@evil.example/": None,
    "javascript:alert(1)": None,
    "https://": None,
    "https://x.example/\u202e": None,
    "https://x.example/" + "x" * 2_000: None,
    "https://evil.example\\.github.com/login": None,
    "https://login.example%2eevil.example/": None,
    "https://evil.example;github.com/": None,
    "https://github.com:443 .evil.example/": None,
    "https://github.com:99999/": None,
    "https://a<b>.example/": None,
    "https://x.example/a\\b": None,
}
"""Pages that an upstream wants opened, and the host shown to the person; None if no one is asked."""


@pytest.mark.parametrize(("url", "host"), PAGES.items())
def test_the_host_that_is_told_is_the_one_that_is_opened_and_no_other_page_is(
    url: str, host: str | None
) -> None:
    can = ClientCapabilities(elicitation=ElicitationCapability(url=UrlElicitationCapability()))
    with nullcontext() if host else pytest.raises(QuestionError, match="plain https URL"):
        page = elicitation("up", {"mode": "url", "url": url, "message": "Log in"}, lambda text, _: text, can)
        assert (page.params.url, page.params.message) == (
            url,
            f"up asks you to open a page of {host}: Log in",
        )


async def test_a_page_is_opened(met: Met) -> None:
    url = "https://login.example/"
    assert (await met.ear.run(f"await http_modern.open_page(url={url!r})"))["result"] == "accept"
    assert [asked.url for asked in met.person.asked] == [url]


async def test_secrets_of_the_portal_stay_behind(met: Met) -> None:
    await met.ear.run(f"await stdio_modern.ask(words='Is it {SECRET}? \\ud800')")
    assert SECRET not in met.person.asked[0].message
    words = f"\\n{SECRET}\\x1b[31m" + "x" * 1000
    await met.ear.run(f"await stdio_modern.count(to=1, words='{words}')")
    (message,) = met.counted
    assert message.startswith("stdio_modern.count: 1 of 1: step 1 [hidden] [31mxxx")
    assert len(message) <= 200


async def test_a_question_ends_with_the_time_of_its_call(tmp_path: Path) -> None:
    async def never(context: Any, params: Any) -> ElicitResult:
        await anyio.sleep_forever()
        return ElicitResult(action="cancel")

    options = {"elicitation_callback": never}
    async with (
        chatty_upstreams(call_seconds=3) as upstreams,  # each question has to arrive in this time
        client_of(tmp_path, upstreams, "http", "legacy", options) as ear,
    ):
        calls = ", ".join(f"{upstream}.ask()" for upstream in UPSTREAMS)
        assert (await ear.run(CODES.format(calls)))["result"] == ["question_unanswered"] * 4


@pytest.mark.parametrize(
    "requests",
    [
        [],
        {"a": None},
        {"a": {"method": 7}},
        {"a": {"method": "elicitation/create", "params": [1]}},
        {"a": {"method": "tools/call", "params": {"name": "wipe"}}},
        {str(number): {"method": "elicitation/create", "params": {}} for number in range(11)},
    ],
)
async def test_what_asks_in_no_sensible_way_ends_its_call(requests: Json) -> None:
    router = ServerRequestRouter(HttpUpstream(url="http://x"), AbandonedRequests())

    async def ask(answers: dict[str, Json]) -> dict[str, Json]:
        return {"resultType": "input_required", "inputRequests": requests, "requestState": "s"}

    async def end(answers: dict[str, Json]) -> dict[str, Json]:
        return {"content": []}

    call = router.begin(None)
    with anyio.fail_after(DEADLINE_SECONDS), pytest.raises(UpstreamIncompleteError):
        await router.rounds(ask, call)
    assert await router.rounds(end, call) == {"content": []}


async def test_what_the_manifest_or_the_client_does_not_permit_is_not_asked(tmp_path: Path) -> None:
    person, model = Person(), Model()
    options = {"elicitation_callback": person, "sampling_callback": model}
    asks, samples, roots = (
        ", ".join(f"{name}.{tool}()" for name in UPSTREAMS) for tool in ("ask", "sample", "roots")
    )
    async with chatty_upstreams(elicitation=False) as upstreams:
        async with client_of(tmp_path, upstreams, "http", "auto", options) as ear:
            assert len((await ear.run(CODES.format(f"{asks}, {samples}, {roots}")))["result"]) == 12
            assert (person.asked, model.asked) == ([], [])
            for tool, key in (("roots", "roots"), ("sample", "sampling")):
                for name in UPSTREAMS:
                    error = (await ear.run(f"await {name}.{tool}()"))["error"]
                    by_itself = name.endswith("legacy")
                    told = f"`upstreams.{name}.{key}`" if by_itself else f"`{key}` of the upstream"
                    assert told in error["hint"], "which key permits it"
        able = {name: {**each, "elicitation": True, "sampling": {}} for name, each in upstreams.items()}
        async with client_of(tmp_path, able, "http", "auto") as ear:
            assert (await ear.run(CODES.format(asks)))["result"] == ["elicitation_unsupported"] * 4
            assert (await ear.run(CODES.format(samples)))["result"] == ["sampling_unsupported"] * 4


@pytest.mark.parametrize(
    "failure",
    [
        "This model does not support sampling parameters such as temperature",
        "Audio sampling not supported at 11 kHz",
        "Negative roots not supported",
    ],
)
def test_error_about_something_else_names_no_key(failure: str) -> None:
    assert missing_key("up", StdioUpstream(command="x"), failure) == ""


async def test_server_that_asks_by_request_can_ask_after_the_handshake(tmp_path: Path) -> None:
    """The SDK's servers, and all made with it, have such functions, but not since 2026-07-28."""
    server, person = MCPServer("asking"), Person()

    @server.tool()
    async def ask(context: Context[Any, Any]) -> str:
        return str((await context.elicit("Whom to greet?", Greeting)).action)

    async with http_peer(server.streamable_http_app()) as peer:
        place = {"url": f"http://127.0.0.1:{peer.port}/mcp"}
        upstreams = {"newest": place, "older": {**place, "handshake": True}}
        async with client_of(tmp_path, upstreams, "http", "auto", {"elicitation_callback": person}) as ear:
            assert (await ear.run("await older.ask()"))["result"] == "accept"
            assert "`upstreams.newest.handshake`" in (await ear.run("await newest.ask()"))["error"]["hint"]
    assert [asked.message for asked in person.asked] == ["older asks: Whom to greet?"]


async def test_no_more_tokens_are_sampled_than_the_manifest_says(met: Met) -> None:
    answer = await met.ear.run("for _ in range(3):\n    await http_modern.sample(tokens=100)")
    assert answer["error"]["code"] == "sampling_refused"
    assert [asked.max_tokens for asked in met.model.asked] == [100, 50]


@pytest.mark.parametrize("upstream", ["http_modern", "stdio_legacy"])
async def test_samples_within_samples_are_refused(met: Met, upstream: str) -> None:
    inner: list[dict[str, Json]] = []

    async def run_a_script() -> None:
        met.model.before = None
        result = await met.ear.client.call_tool("execute_code", {"code": f"await {upstream}.sample()"})
        inner.append(result.structured_content)

    met.model.before = run_a_script
    assert (await met.ear.run(f"await {upstream}.sample()"))["result"] == "hello"
    # On a connection shared by unknown callers, it is not even clear whose model to ask.
    assert [each["error"]["code"] in ("sampling_refused", "question_refused") for each in inner] == [True]
    assert len(met.model.asked) == 1
    assert (await met.ear.run(f"await {upstream}.sample()"))["result"] == "hello"


async def test_progress_of_upstreams_reaches_the_client_in_numbers_that_grow(met: Met) -> None:
    calls = ", ".join(f"{upstream}.count(to=3)" for upstream in UPSTREAMS)
    assert (await met.ear.run(f"await asyncio.gather({calls})"))["result"] == ["counted"] * 4
    for name in UPSTREAMS:
        steps = [f"{name}.count: {number} of 3: step {number}" for number in (1, 2, 3)]
        assert [each for each in met.counted if each.startswith(name)] == steps
    assert all(one < next_one for (one, *_), (next_one, *_) in itertools.pairwise(met.ear.progress))


async def test_some_messages_come_at_once_and_of_many_more_few(met: Met) -> None:
    assert (await met.ear.run("await http_modern.count(to=1000)"))["result"] == "counted"
    # The portal's own messages count too.
    assert met.counted[:15] == [f"http_modern.count: {n} of 1,000: step {n}" for n in range(1, 16)]
    assert len(met.counted) < 200


@pytest.mark.parametrize("upstream", ["http_modern", "stdio_legacy"])
async def test_waiting_is_told_and_a_cancelled_request_cancels_the_call(met: Met, upstream: str) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(met.ear.run, f"await {upstream}.hang()")
        await met.ear.until(lambda: met.told.count(f"waiting for 1 call: {upstream}.hang") >= 2)
        # A call is waited for before it reaches its upstream, and one that does not is cancelled without a word.
        await met.ear.run(f"while not await {upstream}.hangs():\n    await asyncio.sleep(0.01)")
        tasks.cancel_scope.cancel()
    with anyio.fail_after(DEADLINE_SECONDS):
        assert (await met.ear.run(f"await {upstream}.cancelled()"))["result"] == "cancelled"


async def test_question_that_may_be_about_anothers_call_is_refused(tmp_path: Path) -> None:
    """Nothing says which call it is about."""
    person = Person()
    options = {"elicitation_callback": person}
    async with (
        chatty_upstreams() as upstreams,
        client_of(tmp_path, upstreams, "http", "legacy", options) as one,
        ear_of(one.client.server, "legacy", options) as other,
    ):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: other.run("await http_legacy.hang()"))
            await one.run("while not await http_legacy.hangs():\n    await asyncio.sleep(0.01)")
            assert (await one.run("await http_legacy.ask()"))["status"] == "error"
            assert person.asked == []
            assert (await one.run("await http_modern.ask()"))["status"] == "ok"
            tasks.cancel_scope.cancel()
        await one.run("await http_legacy.cancelled()")
        assert (await one.run("await http_legacy.ask()"))["status"] == "ok"


async def test_clients_with_one_token_are_not_asked_for_each_other(tmp_path: Path) -> None:
    one_person, other_person = Person(), Person()
    async with chatty_upstreams() as upstreams:
        manifest = write_manifest(tmp_path, upstreams, server={"tokens": [{"token": "team-token"}]})
        headers = {"Authorization": "Bearer team-token"}
        async with (
            served(manifest) as url,
            client(url.removesuffix("/mcp"), "auto", headers, elicitation_callback=one_person) as first,
            client(url.removesuffix("/mcp"), "auto", headers, elicitation_callback=other_person) as second,
        ):
            one, other = Ear(first), Ear(second)
            alone = await one.run("await http_legacy.ask()")
            assert alone["result"] == "accept {'who': 'Ada'}"
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: other.run("await http_legacy.hang()"))
                asking = "await asyncio.gather(http_legacy.ask(beside=True), return_exceptions=True)"
                answer = await one.run(asking)
                tasks.cancel_scope.cancel()
    assert answer["calls"][0]["error"]["code"] == "question_refused"
    assert (len(one_person.asked), other_person.asked) == (1, [])
