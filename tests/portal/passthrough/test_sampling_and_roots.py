"""Upstreams use the client's model and hear of roots only as far as the manifest says."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CreateMessageResult, TextContent

from manifests.json_value import Json
from tests.portal.passthrough.chatty_server import SECRET
from tests.portal.passthrough.peers import CLIENTS, UPSTREAMS, Ear, chatty_upstreams, client_of

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]


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


@pytest.fixture(scope="module", params=CLIENTS, ids="-".join)
async def met(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Ear, Model]]:
    transport, mode = request.param
    model, folder = Model(), tmp_path_factory.mktemp("sampling")
    options = {"sampling_callback": model}
    async with (
        chatty_upstreams(sampling={"max_tokens": 150}, roots=["file:///srv/data"]) as upstreams,
        client_of(folder, upstreams, transport, mode, options) as ear,
    ):
        yield ear, model


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_the_model_is_asked_and_told_who_asks(met: tuple[Ear, Model], upstream: str) -> None:
    ear, model = met
    model.asked.clear()
    answer = await ear.run(f"await {upstream}.sample(tokens=100, words='the token is {SECRET}')")
    assert answer["result"] == "hello"
    (asked,) = model.asked
    assert (asked.max_tokens, asked.messages[0].content.text) == (100, "the token is [hidden]")
    assert upstream in asked.system_prompt


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_no_more_tokens_are_sampled_for_a_script_than_the_manifest_says(
    met: tuple[Ear, Model], upstream: str
) -> None:
    ear, model = met
    model.asked.clear()
    answer = await ear.run(f"for _ in range(3):\n    await {upstream}.sample(tokens=100)")
    assert answer["error"]["code"] == "sampling_refused"
    assert [asked.max_tokens for asked in model.asked] == [100, 50]


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_samples_within_samples_are_refused(met: tuple[Ear, Model], upstream: str) -> None:
    ear, model = met
    inner: list[dict[str, Json]] = []
    model.asked.clear()

    async def run_a_script() -> None:
        model.before = None
        result = await ear.client.call_tool("execute_code", {"code": f"await {upstream}.sample()"})
        inner.append(result.structured_content)

    model.before = run_a_script
    answer = await ear.run(f"await {upstream}.sample()")
    assert answer["result"] == "hello"
    # On a connection that is shared by callers whom nobody knows, it is not even clear whose model to ask.
    assert [each["error"]["code"] in ("sampling_refused", "question_refused") for each in inner] == [True]
    assert len(model.asked) == 1
    assert (await ear.run(f"await {upstream}.sample()"))["result"] == "hello"


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_roots_are_those_of_the_manifest(met: tuple[Ear, Model], upstream: str) -> None:
    assert (await met[0].run(f"await {upstream}.roots()"))["result"] == ["file:///srv/data"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_both_are_off_unless_the_manifest_says_so(tmp_path: Path, mode: str) -> None:
    model = Model()
    options = {"sampling_callback": model}
    async with chatty_upstreams() as upstreams, client_of(tmp_path, upstreams, "http", mode, options) as ear:
        for upstream in UPSTREAMS:
            for tool in ("sample", "roots"):
                assert (await ear.run(f"await {upstream}.{tool}()"))["status"] == "error"
    assert model.asked == []


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_without_a_model_is_told_so(tmp_path: Path, mode: str) -> None:
    async with (
        chatty_upstreams(sampling={}) as upstreams,
        client_of(tmp_path, upstreams, "http", mode) as ear,
    ):
        for upstream in UPSTREAMS:
            answer = await ear.run(f"await {upstream}.sample()")
            assert answer["error"]["code"] == "sampling_unsupported"
