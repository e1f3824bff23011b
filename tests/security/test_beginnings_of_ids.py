"""A beginning of an id leads to nothing where ids are secrets, and reveals nothing about the runs of others.

Without a token callers cannot be told apart: four digits, tried 65,536 times, would find all runs. The twin is the
whole id, or the owner.
"""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import httpx2
import pytest

from manifests.json_value import Json
from portal.base.caller import WITHOUT_TOKEN
from portal.base.errors import RunsError
from portal.records.store.records import short_id
from tests.portal.app.test_http_app import client, served
from tests.portal.kept_runs import ALICE, BOB, BOUND, KeptRuns, kept_runs
from tests.portal.peers import DEADLINE_SECONDS, Opened, Peer, opened, tool
from tests.portal.runs.test_kept_results import LONG, earlier, find
from tests.portal.server.test_callers import visitor
from tests.portal.server.test_http_runs import ROUTES, error_of
from tests.portal.server.test_tasks import DECLARED, Wire
from tests.security.test_deciding import SECTIONS, TOKENS, of

pytestmark = pytest.mark.anyio

NONE = "0" * 8
ALL = [*ROUTES, ("GET", "/runs/{run}", None)]


@pytest.fixture
async def nameless(tmp_path: Path) -> AsyncIterator[KeptRuns]:
    """Runs over HTTP for whoever reaches the port."""
    async with kept_runs(tmp_path, may_decide=False) as kept:
        yield kept


async def begun(http: httpx2.AsyncClient, kept: KeptRuns, headers: dict[str, str]) -> str:
    run = (await http.post("/runs", json={"code": "ask"}, headers=headers)).json()["run_id"]
    await kept.until(run, "waiting")
    return str(run)


@pytest.mark.parametrize(("method", "path", "body"), ALL)
async def test_no_route_takes_part_of_an_id(nameless: KeptRuns, method: str, path: str, body: Json) -> None:
    async with nameless.client() as http:
        run = await begun(http, nameless, {})
        for written in [run[start : 4 + size] for size in (4, 8, 31) for start in (0, 4)]:
            with anyio.fail_after(DEADLINE_SECONDS):
                guessed = await http.request(method, path.format(run=written), json=body)
            none = await http.request(method, path.format(run=NONE), json=body)
            assert error_of(guessed) == (404, "unknown_run")
            assert guessed.text.replace(written, NONE) == none.text
        with pytest.raises(RunsError, match="there is no run"):
            await nameless.runs.answer(short_id(run), WITHOUT_TOKEN)
        assert (await http.get(f"/runs/{run}")).json()["run_id"] == run


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_without_a_token_no_client_gets_what_begins_with_it(tmp_path: Path, mode: str) -> None:
    async with (
        opened(tmp_path) as portal,
        served(portal) as origin,
        client(origin, mode) as first,
        client(origin, mode) as second,
        httpx2.AsyncClient(base_url=origin, timeout=DEADLINE_SECONDS) as http,
    ):
        own, stranger = Opened(portal.portal, first), Opened(portal.portal, second)
        kept = (await own.run(LONG))["kept"]["result"]
        run = (await http.post("/runs", json={"code": "1 + 1"})).json()["run_id"]
        for each in (own, stranger):
            assert await each.result_of(find(short_id(kept))) == ["unknown_handle"] * 2
            assert await earlier(each, short_id(run)) == "unknown_run"
        assert (await own.result_of(find(kept)))[0] > 100_000
        assert await earlier(own, run) == ""
        wire = Wire(http, portal, DECLARED, Peer(), Peer())
        for method in ("tasks/get", "tasks/cancel", "tasks/update"):
            more: dict[str, Json] = {"inputResponses": {}} if method == "tasks/update" else {}
            assert await wire.code_of(method, taskId=short_id(run), **more) == -32602
            assert "result" in await wire.send(method, taskId=run, **more)


async def test_session_is_found_by_its_beginning_in_its_own_mcp_session_only(tmp_path: Path) -> None:
    async with opened(tmp_path) as portal, served(portal) as origin:
        url = f"{origin}/mcp"
        async with visitor(url) as one, visitor(url) as other, visitor(url, "auto") as modern:
            session = await one.begin("x = 1")
            nobodys = await modern.begin("x = 2")  # belongs to any caller who knows the whole id
            for each, written in ((other, session), (modern, session), (modern, nobodys), (one, nobodys)):
                code, message = await each.error_of("x", short_id(written))
                none = await each.error_of("x", NONE)
                assert (code, message.replace(short_id(written), NONE)) == none
                assert code == "unknown_session"
            assert (await one.run("x", session=short_id(session)))["result"] == 1
            assert (await modern.run("x", session=nobodys))["result"] == 2


@pytest.mark.parametrize(("method", "path", "body"), ALL)
async def test_beginnings_of_others_are_unknown(tmp_path: Path, method: str, path: str, body: Json) -> None:
    async with kept_runs(tmp_path, tokens=BOUND) as kept, kept.client() as http:
        run = await begun(http, kept, ALICE)
        short = short_id(run)
        with anyio.fail_after(DEADLINE_SECONDS):
            theirs = await http.request(method, path.format(run=short), json=body, headers=BOB)
        none = await http.request(method, path.format(run=NONE), json=body, headers=BOB)
        assert error_of(theirs) == (404, "unknown_run")
        assert (theirs.text.replace(short, NONE), theirs.headers.raw) == (none.text, none.headers.raw)
        assert (await http.get(f"/runs/{short}", headers=ALICE)).json()["state"] == "waiting"


async def test_owner_does_everything_by_the_beginning(tmp_path: Path) -> None:
    async with kept_runs(tmp_path, tokens=BOUND) as kept, kept.client(**ALICE) as http:
        run = await begun(http, kept, ALICE)
        short = f"/runs/{short_id(run)}"
        decided = await http.post(f"{short}/answers/1", json={"decision": "approve"})
        assert (decided.status_code, decided.json()["run_id"]) == (200, run)
        await kept.until(run, "ok")
        assert f'"run_id":"{run}"' in (await http.get(f"{short}/events")).text
        assert error_of(await http.post(f"{short}/fork", json={"at": 1})) == (404, "unknown_call")
        hanging = (await http.post("/runs", json={"code": "hang"})).json()["run_id"]
        await kept.until(hanging, "running")
        over = await http.post(f"/runs/{hanging[4:12]}/cancel")
        assert (over.json()["run_id"], over.json()["state"]) == (hanging, "cancelled")


async def test_approver_decides_by_the_beginning_of_what_it_sees_and_of_nothing_else(tmp_path: Path) -> None:
    async with kept_runs(tmp_path, tokens=TOKENS, sections=SECTIONS) as kept, kept.client() as http:
        theirs, run = await begun(http, kept, of("spy")), await begun(http, kept, of("ann"))
        for name, written in (("ops", theirs), ("spy", run)):
            path = f"/runs/{short_id(written)}"
            told = [await http.get(each, headers=of(name)) for each in (path, f"/runs/{NONE}")]
            assert told[0].text.replace(short_id(written), NONE) == told[1].text
            decided = await http.post(f"{path}/answers/1", json={"decision": "approve"}, headers=of(name))
            assert error_of(decided) == (404, "unknown_run")
        path = f"/runs/{short_id(run)}"
        assert (await http.get(path, headers=of("ops"))).json()["run_id"] == run
        assert (await http.post(f"{path}/cancel", headers=of("ops"))).status_code == 404
        decided = await http.post(f"{path}/answers/1", json={"decision": "approve"}, headers=of("ops"))
        assert (decided.status_code, decided.json()["run_id"]) == (200, run)


async def test_token_of_an_event_has_no_beginning(nameless: KeptRuns) -> None:
    async with nameless.client() as http:
        run = (await http.post("/runs", json={"code": "event"})).json()["run_id"]
        await nameless.until(run, "waiting")
        hook = await nameless.hook(run)
        assert [(await http.post(each)).status_code for each in (hook[:-1], hook[:15], hook)] == [
            404,
            404,
            202,
        ]


SCRIPT = 'print("ran")\nawait store.echo()\nx'
GUESSES: dict[str, Callable[[str], str]] = {
    "all but the first": lambda own: own[1:],
    "too little of it": lambda own: own[:3],
    "with a blank behind": lambda own: own + " ",
    "with a line break": lambda own: own + "\n",
    "in wide letters": lambda own: "".join(chr(ord(letter) + 0xFEE0) for letter in own),
    "as a pattern": lambda own: own[:3] + "*",
    "as code": lambda own: "' or 1 or '",
    "endless": lambda own: own * 20_000,
}


@pytest.fixture(scope="module")
def store() -> Peer:
    return Peer(tool("echo"))


@pytest.fixture(scope="module")
async def portal(store: Peer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    folder = tmp_path_factory.mktemp("ids")
    async with opened(folder, {"store": store}, server={"check": "off", "sessions": 2}) as portal:
        yield portal


@pytest.fixture(scope="module")
async def own(portal: Opened) -> str:
    answer = await portal.run("x = 1", session="new")
    assert isinstance(answer["session"], str)
    return answer["session"]


@pytest.mark.parametrize("name", GUESSES)
async def test_what_is_not_the_id_leads_nowhere(portal: Opened, store: Peer, own: str, name: str) -> None:
    before = len(store.calls)
    answer = await portal.run(SCRIPT, session=GUESSES[name](own))
    assert (answer["status"], answer["error"]["code"]) == ("refused", "unknown_session")
    assert (answer["stdout"], answer["calls"], len(store.calls)) == ("", [], before)
    assert own not in answer["error"]["message"] or own in GUESSES[name](own)
    twin = await portal.run(SCRIPT, session=own)
    assert (twin["result"], twin["stdout"], len(store.calls)) == (1, "ran\n", before + 1)


@pytest.mark.parametrize("session", [["x"], 7])
async def test_what_is_no_text_is_no_id(portal: Opened, store: Peer, own: str, session: Json) -> None:
    before = len(store.calls)
    result = await portal.call("execute_code", code=SCRIPT, session=session)
    assert (result.is_error, len(store.calls)) == (True, before)
    assert await portal.result_of("x", session=own) == 1


async def test_ids_have_nothing_in_common(portal: Opened) -> None:
    ids = [(await portal.run("1", session="new"))["session"] for _ in range(8)]
    assert len({identifier[start : start + 8] for identifier in ids for start in (0, 8, 16)}) == 24
    assert all(len(identifier) >= 20 for identifier in ids)
