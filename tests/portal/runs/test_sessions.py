"""Sessions keep variables between runs for callers who ask, and for no one else."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tests.portal.peers import DEADLINE_SECONDS, Opened, Peer, never, opened, raw, raw_tools, states, tool
from tests.processes import workers


@pytest.fixture(scope="module")
async def portal(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    peer = Peer(tool("echo"), tool("hang"), hang=never)
    async with opened(
        tmp_path_factory.mktemp("sessions"), {"store": peer, "other": Peer()}, server={"sessions": 2}
    ) as portal:
        yield portal


async def new_session(portal: Opened, code: str = "x = 1") -> str:
    identifier = (await portal.run(code, session="new"))["session"]
    assert isinstance(identifier, str) and len(identifier) >= 20
    return identifier


async def test_a_function_of_the_session_calls_what_the_script_itself_does_not_mention(
    portal: Opened,
) -> None:
    session = await new_session(portal, "async def ask(n):\n    return await store.echo(n=n)")
    assert await portal.result_of("await ask(3)", session=session) == {"n": 3}
    assert await portal.result_of("1 + 1", session=session) == 2
    assert await portal.result_of("await ask(4)", session=session) == {"n": 4}
    assert "'ask' is not defined" in (await portal.error_of("await ask(4)"))["message"]


async def test_the_session_used_least_recently_makes_room(portal: Opened) -> None:
    first, second = await new_session(portal), await new_session(portal)
    await portal.result_of("x", session=first)
    await new_session(portal)
    assert (await portal.error_of("x", session=second))["code"] == "unknown_session"
    assert await portal.result_of("x", session=first) == 1


async def test_a_session_that_a_limit_ended_is_told_and_gone(portal: Opened) -> None:
    session = await new_session(portal)
    answer = await portal.run("await store.hang()", session=session, timeout_seconds=0.3)
    assert answer["error"]["code"] == "wall_limit"
    assert "session" not in answer
    assert any("session" in notice for notice in answer["notices"])
    assert (await portal.error_of("x", session=session))["code"] == "unknown_session"


async def test_a_function_that_a_session_kept_does_not_become_another_tool(tmp_path: Path) -> None:
    tools = raw_tools("change", "echo", "raw-again")  # which is the function raw_again, as long as it may be
    async with opened(tmp_path, {"raw": raw(tools=tools)}) as portal:
        kept = "from tools.raw import raw_again as kept\nasync def mine():\n    return await raw.raw_again()"
        session = (await portal.run(kept, session="new"))["session"]
        await portal.run("await raw.change(name='raw_again')")
        with anyio.fail_after(DEADLINE_SECONDS):
            while not await has_changed(portal):
                pass

        for call in ("await kept()", "await mine()", "await raw.raw_again()"):
            answer = await portal.run(call, session=session)
            assert (answer["status"], states(answer)) == ("error", [("raw.raw_again", "refused")])
            told = "now means the tool 'raw_again'; earlier in this session it meant 'raw-again'"
            assert told in answer["error"]["message"]
        assert (await portal.run("await raw.echo(a=1)", session=session))["result"] == {"a": 1}
        assert states(await portal.run("await raw.raw_again(content=[])")) == [("raw.raw_again", "done")]


async def has_changed(portal: Opened) -> bool:
    return [each["tool"] for each in (await portal.search("raw.raw_again"))["functions"]][:1] == ["raw_again"]


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
async def test_an_idle_session_ends_and_gives_its_worker_back_though_nobody_asks(tmp_path: Path) -> None:
    async with opened(tmp_path, server={"workers": 1, "session_idle_seconds": 0.2}) as portal:
        await portal.run("1")
        without = len(workers())
        session = await new_session(portal)
        with anyio.fail_after(DEADLINE_SECONDS):
            while len(workers()) > without:
                await anyio.lowlevel.checkpoint()
        assert (await portal.error_of("x", session=session))["code"] == "unknown_session"
        assert await portal.result_of("2") == 2
