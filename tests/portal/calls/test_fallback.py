"""A fallback answers for a read-only function whose upstream is down, as if the script had called it itself."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp_types import CallToolResult

from manifests.errors import ManifestError
from manifests.json_value import Json
from manifests.loader import load_manifest
from portal.base.errors import UnreachableError
from portal.calls.broker import call_error
from tests.portal.peers import LateTool, Opened, Peer, opened, schema, states, text, tool
from tests.upstreams.faults.http_server import FaultyHttpServer, status
from upstreams import errors

READS: Json = {"readOnlyHint": True}
FALLBACK: Json = {"search.look": ["search2.web"], "search.act": ["search2.web"]}


async def fails(arguments: dict[str, Json]) -> CallToolResult:
    return text("no such page", is_error=True)


def second(**annotations: bool) -> Peer:
    """The upstream of a fallback, which takes a string `n` and answers its arguments."""
    return Peer(tool("web", schema("n", n={"type": "string"}), annotations=annotations or READS))


@asynccontextmanager
async def with_first(
    folder: Path,
    peers: Mapping[str, Peer | dict[str, Json]],
    fallback: Json = FALLBACK,
    **sections: Json,
) -> AsyncIterator[Opened]:
    """A portal with an upstream `search` that is down, and others."""
    server = FaultyHttpServer(status("503 Service Unavailable"), always=True)
    async with server.serving():
        search: Json = {"url": server.url, "call_seconds": 2, "retries": {"attempts": 1}}
        async with opened(folder, {"search": search, **peers}, fallback=fallback, **sections) as portal:
            await portal.search()  # which waits for the upstreams
            yield portal


def test_an_upstream_that_is_down_lost_or_late_may_have_a_fallback_and_one_that_answers_has_none() -> None:
    down = (
        errors.UpstreamDownError,
        errors.UpstreamCircuitOpenError,
        errors.UpstreamLostError,
        errors.UpstreamTimeoutError,
        errors.UpstreamFaultError,
    )
    others = (
        errors.UpstreamRefusedError,
        errors.UpstreamBusyError,
        errors.UpstreamCutOffError,
        errors.UpstreamSignInError,
    )
    found = [isinstance(call_error(kind("no")), UnreachableError) for kind in (*down, *others)]
    assert found == [*[True] * len(down), *[False] * len(others)]


async def test_a_fallback_answers_while_the_upstream_is_down(tmp_path: Path) -> None:
    peer = second()
    async with with_first(tmp_path, {"search2": peer}) as portal:
        answer = await portal.run("[await search.look(n=each) for each in 'ab']")
    assert answer["result"] == [{"n": "a"}, {"n": "b"}]
    assert peer.calls == [("web", {"n": "a"}), ("web", {"n": "b"})]
    assert states(answer) == [("search.look", "done")] * 2
    assert [row["answered_by"] for row in answer["calls"]] == ["search2.web"] * 2
    (notice,) = answer["notices"]
    assert notice.startswith("search.look was answered by search2.web: upstream 'search'")


async def test_a_fallback_answers_if_the_upstream_does_not_start(tmp_path: Path, own_state: None) -> None:
    late = LateTool(tmp_path, "search")
    upstreams: dict[str, Peer | dict[str, Json]] = {**late.upstreams, "search2": second()}
    late.declares(annotations=READS)
    async with opened(tmp_path, upstreams) as portal:
        await portal.search("crash")
    (tmp_path / "behaviour.json").write_text(json.dumps({"exits_with": 3}))
    async with opened(tmp_path, upstreams, fallback={"search.crash": ["search2.web"]}) as portal:
        await portal.run("await search2.web(n='')")  # a fallback that still starts gives no answer
        answer = await portal.run("await search.crash(n='a')")
    assert (answer["result"], answer["calls"][0]["answered_by"]) == ({"n": "a"}, "search2.web")


async def test_a_call_that_may_have_changed_something_has_none(tmp_path: Path) -> None:
    peer = second()
    async with with_first(tmp_path, {"search2": peer}) as portal:
        answer = await portal.run("await search.act(n='a')")
    assert answer["error"]["code"] == "upstream_answer"
    assert (peer.calls, "answered_by" in answer["calls"][0]) == ([], False)


async def test_an_error_of_the_tool_is_an_answer(tmp_path: Path) -> None:
    first, peer = Peer(tool("look", annotations=READS), look=fails), second()
    async with opened(tmp_path, {"search": first, "search2": peer}, fallback=FALLBACK) as portal:
        error = await portal.error_of("await search.look(n='a')")
    assert (error["code"], peer.calls) == ("tool_error", [])


@pytest.mark.parametrize(
    ("annotations", "capabilities", "argument", "reason"),
    [
        ({"readOnlyHint": True, "destructiveHint": True}, {}, "'a'", "readOnlyHint"),
        (READS, {}, "[1]", "invalid_arguments"),
        (READS, {"tools": {"budgets": [{"tool": "search2.web", "calls": 0}]}}, "'a'", "tool_budget"),
        (READS, {"flows": [{"from": ["vault"], "not_to": ["search2"]}]}, "'a'", "not_granted"),
    ],
)
async def test_a_fallback_that_may_not_be_called_so_leaves_the_error(
    tmp_path: Path, annotations: dict[str, bool], capabilities: Json, argument: str, reason: str
) -> None:
    peer, own = second(**annotations), {"capabilities": capabilities}
    peers = {"search2": peer, "vault": Peer(tool("get"))}
    async with with_first(tmp_path, peers, **own) as portal:
        answer = await portal.run(f"await vault.get()\nawait search.look(n={argument})")
    assert answer["error"]["code"] == "upstream_answer"
    assert "search2.web" in answer["error"]["hint"]
    assert reason in answer["error"]["hint"]
    assert states(answer) == [("vault.get", "done"), ("search.look", "unknown")]
    assert (peer.calls, answer["calls"][1]["error"]["code"]) == ([], "upstream_answer")


async def test_fallbacks_are_tried_in_order(tmp_path: Path) -> None:
    failing = Peer(tool("web", annotations=READS), web=fails)
    fallback: Json = {"search.look": ["failing.gone", "failing.web", "search2.web", "last.web"]}
    last = second()
    peers = {"failing": failing, "search2": second(), "last": last}
    async with with_first(tmp_path, peers, fallback) as portal:
        answer = await portal.run("await search.look(n='a')")
    assert (answer["result"], answer["calls"][0]["answered_by"]) == ({"n": "a"}, "search2.web")
    assert ([name for name, _ in failing.calls], last.calls) == (["web"], [])


async def test_a_fallback_counts_and_is_audited_on_its_own(tmp_path: Path) -> None:
    budgets: Json = {"tools": {"budgets": [{"tool": "search2.web", "calls": 1}]}}
    own: Json = {"capabilities": budgets, "audit": {"to": "audit.jsonl"}}
    async with with_first(tmp_path, {"search2": second()}, **own) as portal:
        answer = await portal.run("await search.look(n='a')\nawait search2.web(n='b')")
    assert answer["error"]["code"] == "tool_budget"
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    calls = [(each["event"], each["function"]) for each in lines if each.get("call") == 1]
    assert calls == [
        ("call_decided", "search.look"),
        ("call_ended", "search.look"),
        ("call_decided", "search2.web"),
        ("call_ended", "search2.web"),
    ]


async def test_data_of_a_fallback_may_not_flow_where_its_upstreams_may_not(tmp_path: Path) -> None:
    own: Json = {"capabilities": {"flows": [{"from": ["search2"], "not_to": ["mail"]}]}}
    mail = Peer(tool("send"))
    async with with_first(tmp_path, {"search2": second(), "mail": mail}, **own) as portal:
        error = await portal.error_of("await search.look(n='a')\nawait mail.send()")
    assert (error["code"], mail.calls) == ("not_granted", [])


async def test_a_fallback_that_turns_out_to_write_is_not_sent(tmp_path: Path, own_state: None) -> None:
    late = LateTool(tmp_path)
    await late.becomes(READS, {})
    async with with_first(tmp_path, late.upstreams, {"search.look": ["raw.crash"]}) as portal:
        error = await portal.error_of(late.call.replace("raw.crash", "search.look"))
    assert (error["code"], late.effect.exists()) == ("upstream_answer", False)


@pytest.mark.parametrize(
    ("fallback", "keys"),
    [
        ({"search.web": ["other.web"]}, "fallback.search.web.0"),
        ({"other.web": ["search.web"]}, "fallback.other.web"),
        ({"search.web": ["search2.web", "search.web"]}, "fallback.search.web.1"),
        ({"search": ["search2.web"]}, "fallback"),
        ({"search.web": []}, "fallback.search.web"),
    ],
)
def test_a_fallback_that_cannot_be_is_a_problem_of_the_manifest(
    tmp_path: Path, fallback: Json, keys: str
) -> None:
    up: Json = {"command": "none"}
    written = {"upstreams": {"search": up, "search2": up}, "fallback": fallback}
    (tmp_path / "portal.yaml").write_text(json.dumps(written))
    with pytest.raises(ManifestError) as raised:
        load_manifest(tmp_path / "portal.yaml", {})
    assert [each.key.startswith(keys) for each in raised.value.problems] == [True]
