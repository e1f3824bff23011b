"""Progress of upstream calls reaches the client, and the portal's own keeps it from giving up."""

import itertools
from collections.abc import AsyncIterator

import anyio
import pytest

from tests.portal.passthrough.chatty_server import SECRET
from tests.portal.passthrough.peers import CLIENTS, UPSTREAMS, Ear, chatty_upstreams, client_of
from tests.portal.peers import DEADLINE_SECONDS

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=CLIENTS, ids="-".join)
async def ear(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ear]:
    transport, mode = request.param
    folder = tmp_path_factory.mktemp("progress")
    async with (
        chatty_upstreams() as upstreams,
        client_of(folder, upstreams, transport, mode, server={"progress_seconds": 0.2}) as ear,
    ):
        yield ear


def messages(ear: Ear) -> list[str]:
    return [message or "" for _, _, message in ear.progress]


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_what_an_upstream_says_of_its_progress_reaches_the_client(ear: Ear, upstream: str) -> None:
    answer = await ear.run(f"await {upstream}.count(to=3)")
    assert answer["result"] == "counted"
    own = [message for message in messages(ear) if ".count: " in message]
    assert own == [f"{upstream}.count: {number} of 3: step {number}" for number in (1, 2, 3)]


async def test_some_messages_come_at_once_and_of_many_more_few(ear: Ear) -> None:
    assert (await ear.run("await http_modern.count(to=1000)"))["result"] == "counted"
    own = [message for message in messages(ear) if ".count: " in message]
    # The portal's own messages count too.
    assert own[:15] == [f"http_modern.count: {number} of 1,000: step {number}" for number in range(1, 16)]
    assert len(own) < 200


async def test_its_numbers_grow_whoever_made_progress(ear: Ear) -> None:
    calls = ", ".join(f"{upstream}.count(to=4)" for upstream in UPSTREAMS)
    await ear.run(f"import asyncio\nawait asyncio.gather({calls})")
    numbers = [number for number, _, _ in ear.progress]
    assert len(numbers) >= 16
    assert all(one < next_one for one, next_one in itertools.pairwise(numbers))


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_a_silent_upstream_does_not_keep_the_client_in_the_dark(ear: Ear, upstream: str) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ear.run, f"await {upstream}.hang()")
        await ear.until(lambda: messages(ear).count(f"waiting for 1 call: {upstream}.hang") >= 3)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_a_cancelled_request_cancels_the_call_of_the_upstream(ear: Ear, upstream: str) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ear.run, f"await {upstream}.hang()")
        await ear.until(lambda: f"waiting for 1 call: {upstream}.hang" in messages(ear))
        tasks.cancel_scope.cancel()
    with anyio.fail_after(DEADLINE_SECONDS):
        assert (await ear.run(f"await {upstream}.cancelled()"))["result"] == "cancelled"


async def test_secrets_and_line_breaks_stay_behind(ear: Ear) -> None:
    words = f"\\n{SECRET}\\x1b[31m" + "x" * 1000
    await ear.run(f"await stdio_modern.count(to=1, words='{words}')")
    (message,) = [message for message in messages(ear) if ".count: " in message]
    assert message.startswith("stdio_modern.count: 1 of 1: step 1 [hidden] [31mxxx")
    assert len(message) <= 200
