"""Nothing says which call a question of an older upstream is about: nobody is asked what may be about another's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client

from tests.portal.passthrough.peers import Ear, Person, chatty_upstreams, client_of, ear_of, served
from tests.portal.peers import DEADLINE_SECONDS, write_manifest

pytestmark = pytest.mark.anyio


async def test_a_question_of_an_older_upstream_is_refused_while_it_may_be_about_anothers_call(
    tmp_path: Path,
) -> None:
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


@asynccontextmanager
async def bearer(url: str, person: Person) -> AsyncIterator[Ear]:
    """A client with the one token of the portal."""
    headers = {"Authorization": "Bearer team-token"}
    options = {"elicitation_callback": person}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=DEADLINE_SECONDS) as http,
        ear_of(streamable_http_client(url, http_client=http), "auto", options) as ear,
    ):
        yield ear


async def test_clients_with_one_token_are_not_asked_for_each_other(tmp_path: Path) -> None:
    one_person, other_person = Person(), Person()
    async with chatty_upstreams() as upstreams:
        manifest = write_manifest(tmp_path, upstreams, server={"tokens": [{"token": "team-token"}]})
        async with (
            served(manifest) as url,
            bearer(url, one_person) as one,
            bearer(url, other_person) as other,
        ):
            alone = await one.run("await http_legacy.ask()")
            assert alone["result"] == "accept {'who': 'Ada'}"
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: other.run("await http_legacy.hang()"))
                asking = "await asyncio.gather(http_legacy.ask(beside=True), return_exceptions=True)"
                answer = await one.run(asking)
                tasks.cancel_scope.cancel()
    assert answer["calls"][0]["error"]["code"] == "question_refused"
    assert (len(one_person.asked), other_person.asked) == (1, [])
