"""What upstreams log while a client's calls are under way reaches that client, and nobody else."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from tests.portal.passthrough.chatty_server import SECRET
from tests.portal.passthrough.peers import (
    CLIENTS,
    UPSTREAMS,
    Ear,
    chatty_upstreams,
    client_of,
    ear_of,
    url_of,
)
from tests.portal.peers import DEADLINE_SECONDS

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]


@pytest.fixture(scope="module", params=CLIENTS, ids="-".join)
async def ear(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Ear]:
    """A client that wants `notice` and what is more severe."""
    transport, mode = request.param
    folder = tmp_path_factory.mktemp("logs")
    options = {"log_level": "notice"} if mode == "auto" else {}
    async with chatty_upstreams() as upstreams, client_of(folder, upstreams, transport, mode, options) as ear:
        if mode == "legacy":
            await ear.client.set_logging_level("notice")
        yield ear


def log_messages(ear: Ear) -> list[tuple[str, str | None, object]]:
    return [(params.level, params.logger, params.data) for params in ear.logs]


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_it_reaches_the_client_under_the_name_of_its_upstream(ear: Ear, upstream: str) -> None:
    code = f"""
await {upstream}.log(data={{"rows": [1, None]}}, level="warning", logger="db")
await {upstream}.log(data="hello", level="error")
"""
    assert (await ear.run(code))["status"] == "ok"
    await ear.until(lambda: len(ear.logs) == 2)
    assert log_messages(ear) == [
        ("warning", f"{upstream}/db", {"rows": [1, None]}),
        ("error", upstream, "hello"),
    ]


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_it_starts_at_the_level_that_the_client_wants(ear: Ear, upstream: str) -> None:
    levels = ["debug", "info", "notice", "emergency"]
    await ear.run(f"for level in {levels}:\n    await {upstream}.log(data=level, level=level)")
    await ear.until(lambda: len(ear.logs) == 2)
    assert [params.data for params in ear.logs] == ["notice", "emergency"]


async def test_secrets_stay_behind_wherever_they_stand(ear: Ear) -> None:
    data = {SECRET: ["x", {"deep": f"the token is {SECRET}!"}]}
    await ear.run(f"await stdio_modern.log(data={data!r}, level='error', logger='{SECRET}')")
    await ear.until(lambda: len(ear.logs) == 1)
    assert log_messages(ear) == [
        ("error", "stdio_modern/[hidden]", {"[hidden]": ["x", {"deep": "the token is [hidden]!"}]})
    ]


async def test_a_flood_is_capped_and_the_client_is_told_how_much_is_missing(tmp_path: Path) -> None:
    async with chatty_upstreams() as upstreams, client_of(tmp_path, upstreams, "http", "legacy") as ear:
        answer = await ear.run("await stdio_modern.flood(messages=2000)")
        assert answer["status"] == "ok"
        await ear.until(lambda: bool(ear.logs) and ear.logs[-1].logger == "mcp-code-portal")
        assert len(ear.logs) <= 1001


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_client_of_the_newer_revision_that_asks_for_none_is_sent_none(
    tmp_path: Path, transport: str
) -> None:
    async with chatty_upstreams() as upstreams, client_of(tmp_path, upstreams, transport, "auto") as ear:
        await ear.run("for _ in range(3):\n    await http_legacy.log(level='emergency')")
        assert ear.logs == []
        assert (await ear.run("await http_legacy.level()"))["result"] == "none"


async def test_nobody_hears_what_may_be_about_the_call_of_another(tmp_path: Path) -> None:
    """On one connection to an upstream nothing says which call a message is about."""
    async with chatty_upstreams() as upstreams, client_of(tmp_path, upstreams, "http", "legacy") as one:
        async with ear_of(url_of(one.client), "legacy") as other, anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: other.run("await http_modern.hang()"))
            with anyio.fail_after(DEADLINE_SECONDS):
                await one.run("while not await http_modern.hangs():\n    await asyncio.sleep(0.01)")
            await one.run("await http_modern.log(level='error')")
            assert one.logs == other.logs == []
            tasks.cancel_scope.cancel()
        await one.run("await http_modern.cancelled()\nawait http_modern.log(level='error')")
        await one.until(lambda: len(one.logs) == 1)
