"""What a manifest says of tools, arguments, budgets and flows holds for every call, and each refusal names its rule."""

from pathlib import Path

import pytest

from manifests.json_value import Json
from tests.portal.peers import CHANGED_WHILE_RUNNING, Peer, opened, raw, raw_tools, schema, states, tool
from tests.upstreams.faults.http_server import Fault, FaultyHttpServer, status


def peer() -> Peer:
    return Peer(tool("read"), tool("write", schema("path", path={"type": "string"})))


@pytest.mark.parametrize(
    ("annotations", "code"), [({"destructiveHint": True}, "not_granted"), ({"title": "Other"}, None)]
)
async def test_tool_that_becomes_destructive_while_a_script_runs_is_refused(
    tmp_path: Path, annotations: Json, code: str | None
) -> None:
    async with opened(tmp_path, {"up": raw(tools=raw_tools("change", "echo"))}) as portal:
        script = CHANGED_WHILE_RUNNING.format(change=f"annotations={annotations}")
        assert await portal.result_of(script) == code


GATHER = """\
import asyncio
answers = await asyncio.gather(*(up.read(n=n) for n in range({calls})), return_exceptions=True)
sum(not isinstance(answer, Exception) for answer in answers)
"""


@pytest.mark.parametrize(
    ("fault", "code", "state"),
    [
        (status("503 Busy"), "upstream_answer", "unknown"),
        (status("429 Slow", Retry_After="0"), "upstream_busy", "failed"),
        (status("401 Who"), "upstream_unauthorized", "failed"),
    ],
)
async def test_repeat_beyond_the_budget_is_not_sent_and_the_call_ends_as_it_did_before(
    tmp_path: Path, fault: Fault, code: str, state: str
) -> None:
    for calls, ended in ((1, (code, state)), (2, (None, "done"))):
        tools: Json = {"budgets": [{"tool": "up.look", "calls": calls}]}
        async with (
            FaultyHttpServer(fault).serving() as up,
            opened(tmp_path, {"up": {"url": up.url}}, capabilities={"tools": tools}) as portal,
        ):
            answer = await portal.run("await up.look()")
        [row] = answer["calls"]
        assert (row.get("error", {}).get("code"), row["state"]) == ended
        assert up.arrivals["look"] == calls


async def test_calls_a_minute_are_counted_over_all_runs(tmp_path: Path) -> None:
    up = peer()
    tools: Json = {"budgets": [{"tool": "up.read", "per_minute": 3}]}
    async with opened(tmp_path, {"up": up}, capabilities={"tools": tools}) as portal:
        assert await portal.result_of(GATHER.format(calls=2)) == 2
        answer = await portal.run(GATHER.format(calls=2))
        assert answer["result"] == 1
        assert [row["error"]["code"] for row in answer["calls"] if "error" in row] == ["rate_limited"]
        assert (await portal.run("await up.write(path='x')"))["status"] == "ok"
    assert [name for name, _ in up.calls] == ["read"] * 3 + ["write"]


FLOWS: Json = {"flows": [{"from": "mail", "not_to": "web"}]}


async def flowing(
    tmp_path: Path, code: str, **arguments: Json
) -> tuple[dict[str, Json], list[str], list[str]]:
    mail, web = Peer(tool("read")), Peer(tool("post"))
    async with opened(tmp_path, {"mail": mail, "web": web}, capabilities=FLOWS) as portal:
        answer = await portal.run(code, **arguments)
    return answer, [name for name, _ in mail.calls], [name for name, _ in web.calls]


async def test_what_came_from_one_upstream_does_not_go_to_the_other(tmp_path: Path) -> None:
    answer, mail, web = await flowing(tmp_path, "await web.post(x=await mail.read())")
    assert states(answer) == [("mail.read", "done"), ("web.post", "refused")]
    assert answer["error"]["code"] == "not_granted"
    assert "capabilities.flows.0" in answer["error"]["message"]
    assert (mail, web) == (["read"], [])


async def test_a_session_remembers_where_its_data_came_from(tmp_path: Path) -> None:
    mail, web = Peer(tool("read")), Peer(tool("post"))
    async with opened(tmp_path, {"mail": mail, "web": web}, capabilities=FLOWS) as portal:
        session = (await portal.run("letter = await mail.read()", session="new"))["session"]
        answer = await portal.run("await web.post(x=letter)", session=session)
        assert states(answer) == [("web.post", "refused")]
        assert states(await portal.run("await web.post()")) == [("web.post", "done")]
    assert len(web.calls) == 1


async def test_no_answer_of_a_call_in_flight_slips_by(tmp_path: Path) -> None:
    """Whatever is sent to `web` was made up before anything of `mail` could have been there."""
    code = """\
import asyncio
async def leak(n):
    letter = await mail.read(n=n)
    await web.post(letter=letter)
answers = await asyncio.gather(
    *(web.post(n=n) for n in range(20)), *(leak(n) for n in range(20)), *(web.post(n=n) for n in range(20)),
    return_exceptions=True,
)
"""
    mail, web = Peer(tool("read")), Peer(tool("post"))
    limits: Json = {"parallel_calls": 3}
    async with opened(
        tmp_path, {"mail": mail, "web": web}, capabilities={**FLOWS, "limits": limits}
    ) as portal:
        await portal.run(code)
    assert not [arguments for _, arguments in web.calls if "letter" in arguments]
    assert mail.calls


async def test_fetching_is_going_to_the_network(tmp_path: Path) -> None:
    capabilities: Json = {
        "flows": [{"from": "mail", "not_to": "network"}],
        "network": {"allow": ["nowhere.invalid"]},
    }
    fetch = (
        "import portal\ntry:\n    await portal.fetch('https://nowhere.invalid/')\n"
        "except ToolError as error:\n    code = error.code\ncode"
    )
    mail = Peer(tool("read"))
    async with opened(tmp_path, {"mail": mail}, capabilities=capabilities) as portal:
        assert await portal.result_of(fetch) != "not_granted"
        assert await portal.result_of(f"await mail.read()\n{fetch}") == "not_granted"
