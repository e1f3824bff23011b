"""Two tenants of one portal: what there is is listed here, with who may read it, and each attacks the other on each.

Rule 1: what is new has to be listed here: a table, a route, a method of MCP, a folder in the state folder.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestParams, ElicitResult, InputRequiredResult
from starlette.routing import Route

from manifests.json_value import Json
from manifests.own_files import state_folder
from portal.server.server import build_server
from tests.portal.app.test_profiles import bearing
from tests.portal.peers import DEADLINE_SECONDS, Opened, Peer, http_app, opened, tool
from tests.portal.server.test_callers import visitor
from tests.upstreams.peers import http_peer

pytestmark = pytest.mark.anyio

MARKER = "red-only-7f3a91"
"""In all that belongs to the tenant red: scripts, arguments, results, questions, events, files."""

OWNED = "the owner of the run"
TABLES = {
    **dict.fromkeys(("runs", "events", "calls", "results", "log", "trail"), OWNED),
    "hooks": "whoever has the token, whose sha256 is stored",
    "deliveries": "the receiver that the manifest names: states and functions, no results",
    "key_values": "the portal: types of results, guest components, names of callers; or the person that is its owner",
    "audit": "the operator: who called what, without arguments and results",
    "meta": "the portal: its format, and a check of its key",
    "replicas": "the portal: which replicas live, and where",
    "sqlite_sequence": "SQLite itself",
}
ROUTES = {
    "/mcp": "attacked below, by method",
    "/healthz": "anybody: says ok",
    "/readyz": "anybody: counts of upstreams; their names for any token",
    **dict.fromkeys(("/runs", "/runs/{run}", "/runs/{run}/events", "/runs/{run}/cancel"), OWNED),
    **dict.fromkeys(("/runs/{run}/fork", "/runs/{run}/answers/{seq:int}"), OWNED),
    "/hooks/{token}": "whoever has the token",
    "/ui": "anybody: leads to /ui/",
    "/ui/{path:path}": "whoever a ticket of the operator let in; or the owner of a token, who sees what is its own",
    "/metrics": "telemetry.metrics_token: numbers without names of callers, tenants and sessions",
}
METHODS = {
    "tools/list": "everybody: two tools, by profile",
    "tools/call": "attacked below: sessions, runs, handles, requestState",
    **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), OWNED),
    **dict.fromkeys(("ping", "server/discover", "initialize", "notifications/initialized"), "everybody"),
}
FOLDERS = {
    "runs": "SQLite, sealed with runs.key",
    "observed": "types of results, without values",
    "listings": "what upstreams offer",
}


@dataclass
class Portal:
    opened: Opened
    origin: str
    folder: Path

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"


@dataclass(frozen=True)
class Belongings:
    """The names of red's things, or made-up names."""

    run: str
    waiting: str
    handle: str
    session: str
    mcp_session: str
    state: str


NONE = "0" * 32
MADE_UP = Belongings(
    f"run_{NONE}", f"run_{NONE}", f"kept_{NONE}", session="0" * 24, mcp_session=NONE, state="0" * 43
)


async def later(context: Any, params: ElicitRequestParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"decision": "approve"})


def http_of(tenant: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(headers=bearing(f"token-of-{tenant}"), timeout=DEADLINE_SECONDS)


@asynccontextmanager
async def client(portal: Portal, tenant: str) -> AsyncIterator[Client]:
    async with (
        http_of(tenant) as http,
        Client(streamable_http_client(portal.url, http_client=http), elicitation_callback=later) as found,
    ):
        yield found


@pytest.fixture(scope="module")
async def portal(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Portal]:
    folder = tmp_path_factory.mktemp("tenants")
    tokens = [{"token": f"token-of-{tenant}", "tenant": tenant} for tenant in ("red", "blue")]
    key, url = "a-key-of-the-tests-0123", "http://portal.test"
    (folder / "data").mkdir()
    sections: dict[str, Json] = {
        "server": {"tokens": tokens, "output_tokens": 500, "check": "off"},
        "runs": {"key": key, "park_after_seconds": 0.1, "public_url": url},
        "capabilities": {"files": {"workspace": "data", "mode": "write", "share": "tenant"}},
        "audit": {"to": "audit.jsonl"},
        "telemetry": {"metrics": True, "metrics_token": "token-of-prometheus"},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        async with (
            opened(folder, {"box": Peer(tool("echo"))}, **sections) as found,
            http_peer(http_app(found.portal)) as served,
        ):
            yield Portal(found, f"http://127.0.0.1:{served.port}", folder)


@pytest.fixture(scope="module")
async def theirs(portal: Portal) -> Belongings:
    """Let red leave something in each place."""
    async with client(portal, "red") as red:

        async def run(code: str, **arguments: Json) -> dict[str, Any]:
            result = await red.call_tool("execute_code", {"code": code, **arguments})
            return result.structured_content

        done = await run(f"await box.echo(text={MARKER!r})\n{MARKER!r}", background=True)
        waiting = await run(f"await portal.approve('{MARKER}?')", background=True)
        kept = await run(f"open('mine.txt', 'w').write({MARKER!r})\n[{MARKER!r}] * 5000")
        session = await run(f"x = {MARKER!r}", session="new")
        with anyio.fail_after(DEADLINE_SECONDS):
            for each in (waiting, done):
                while (await run("", run=each["run_id"]))["status"] == "running":  # noqa: ASYNC110
                    await anyio.sleep(0.05)
        asking = {"code": f"await portal.approve('{MARKER}??')"}
        asked = await red.session.call_tool("execute_code", asking, allow_input_required=True)
        assert isinstance(asked, InputRequiredResult)
        assert asked.request_state
    async with visitor(portal.url, "legacy", bearing("token-of-red")) as older:
        await older.run("1")
        mcp_session = older.mcp_session
        (handle,) = kept["kept"].values()
        return Belongings(
            done["run_id"], waiting["run_id"], handle, session["session"], mcp_session, asked.request_state
        )


Attack = Callable[[Portal, httpx2.AsyncClient, Client, Belongings], Awaitable[Any]]


def over_http(method: str, path: str, **named: Any) -> Attack:
    async def attack(portal: Portal, http: httpx2.AsyncClient, client: Client, theirs: Belongings) -> Any:
        response = await http.request(method, portal.origin + path.format(**vars(theirs)), **named)
        return response.status_code, response.text

    return attack


def in_console(method: str, path: str, **form: str) -> Attack:
    async def attack(portal: Portal, http: httpx2.AsyncClient, client: Client, theirs: Belongings) -> Any:
        headers = {"Sec-Fetch-Site": "same-origin"}
        async with httpx2.AsyncClient(base_url=portal.origin, headers=headers) as browser:
            token = http.headers["authorization"].removeprefix("Bearer ")
            assert (await browser.post("/ui/enter", data={"token": token})).status_code == 303
            response = await browser.request(method, path.format(**vars(theirs)), data=form)
        return response.status_code, response.text

    return attack


def by_script(code: str, **arguments: str) -> Attack:
    async def attack(portal: Portal, http: httpx2.AsyncClient, client: Client, theirs: Belongings) -> Any:
        named = {key: value.format(**vars(theirs)) for key, value in arguments.items()}
        result = await client.call_tool("execute_code", {"code": code.format(**vars(theirs)), **named})
        return result.structured_content["error"]

    return attack


async def with_state(portal: Portal, http: httpx2.AsyncClient, client: Client, theirs: Belongings) -> Any:
    try:
        return await client.session.call_tool(
            "execute_code",
            {"code": f"await portal.approve('{MARKER}??')"},
            input_responses={"question-1": ElicitResult(action="accept", content={"decision": "approve"})},
            request_state=theirs.state,
            allow_input_required=True,
        )
    except MCPError as error:
        return str(error)


async def in_mcp_session(portal: Portal, http: httpx2.AsyncClient, client: Client, theirs: Belongings) -> Any:
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    headers = {"mcp-session-id": theirs.mcp_session, "accept": "application/json, text/event-stream"}
    answers = [
        await http.request(each, portal.url, json=ping, headers=headers) for each in ("POST", "DELETE")
    ]
    answers.append(await http.get(portal.url, headers=headers))
    return [(answer.status_code, answer.text) for answer in answers]


ATTACKS: dict[str, Attack] = {
    "show a run": over_http("GET", "/runs/{run}"),
    "watch a run": over_http("GET", "/runs/{run}/events"),
    "cancel a run": over_http("POST", "/runs/{waiting}/cancel"),
    "fork a run": over_http("POST", "/runs/{run}/fork", json={"at": 1}),
    "decide about a call": over_http("POST", "/runs/{waiting}/answers/1", json={"decision": "approve"}),
    "list runs in the console": in_console("GET", "/ui/runs"),
    "list approvals in the console": in_console("GET", "/ui/approvals"),
    "show a run in the console": in_console("GET", "/ui/runs/{run}"),
    "cancel a run in the console": in_console("POST", "/ui/runs/{waiting}/cancel"),
    "decide in the console": in_console("POST", "/ui/runs/{waiting}/answers/1", decision="approve"),
    "ask for a run": by_script("", run="{run}"),
    "recall a result": by_script("await portal.recall('{handle}')"),
    "search a result": by_script("await portal.search_text('{handle}', 'red')"),
    "use a session": by_script("x", session="{session}"),
    "read a file": by_script("open('mine.txt').read()"),
    "read a file elsewhere": by_script("open('../red/mine.txt').read()"),
    "answer a question": with_state,
    "use an MCP session": in_mcp_session,
}


async def test_what_belongs_to_others_is_as_unknown_as_nothing(portal: Portal, theirs: Belongings) -> None:
    names = [*zip(vars(theirs).values(), vars(MADE_UP).values(), strict=True)]
    async with http_of("blue") as http, client(portal, "blue") as blue:
        for name, attack in ATTACKS.items():
            told, made_up = [str(await attack(portal, http, blue, each)) for each in (theirs, MADE_UP)]
            assert MARKER not in told, name
            for own, instead in names:
                told = told.replace(own, instead)
            assert told == made_up, name
            listed = (await http.get(f"{portal.origin}/runs")).text
            assert not any(hidden in listed for hidden in (MARKER, *vars(theirs).values())), name
    await still_has(portal, theirs)


async def still_has(portal: Portal, theirs: Belongings) -> None:
    """The harmless twin: red does all of that."""
    async with http_of("red") as http, client(portal, "red") as red:
        for code in (f"await portal.recall('{theirs.handle}')", "open('mine.txt').read()"):
            result = await red.call_tool("execute_code", {"code": code})
            assert MARKER in str(result.structured_content)
        in_session = await red.call_tool("execute_code", {"code": "x", "session": theirs.session})
        assert MARKER in str(in_session.structured_content)
        assert MARKER in (await http.get(f"{portal.origin}/runs/{theirs.run}")).text
        answers = f"{portal.origin}/runs/{theirs.waiting}/answers/1"
        decided = await http.post(answers, json={"decision": "approve"})
        assert decided.status_code == 200
        answered = await with_state(portal, http, red, theirs)
        assert answered.structured_content["result"] is True


async def test_everything_that_is_stored_is_for_somebody(portal: Portal, theirs: Belongings) -> None:
    query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    found = await portal.opened.portal.runs.store_or_error().read(lambda file: file.database.rows(query))
    assert {name for (name,) in found} == TABLES.keys()
    folder = state_folder(os.environ)
    assert {each.name for each in folder.iterdir()} <= FOLDERS.keys()


async def test_nothing_of_a_tenant_lies_in_the_clear_but_its_files(
    portal: Portal, theirs: Belongings
) -> None:
    roots = (state_folder(os.environ), portal.folder)
    files = [path for root in roots for path in root.rglob("*") if path.is_file()]
    holding = [path for path in files if MARKER.encode() in path.read_bytes()]
    assert [path.relative_to(portal.folder) for path in holding] == [Path("data/red/mine.txt")]


async def test_numbers_name_nobody_and_no_tenant_reads_them(portal: Portal, theirs: Belongings) -> None:
    async with httpx2.AsyncClient() as http:
        url = f"{portal.origin}/metrics"
        for tenant in ("red", "blue"):
            refused = await http.get(url, headers=bearing(f"token-of-{tenant}"))
            assert refused.status_code in (401, 403) and "mcp_code_portal" not in refused.text
        numbers = (await http.get(url, headers=bearing("token-of-prometheus"))).text
    assert "mcp_code_portal_upstream_state" in numbers
    for hidden in (MARKER, '"red"', '"blue"', "token "):
        assert hidden not in numbers


async def test_every_route_and_method_has_somebody_who_may_use_it(portal: Portal) -> None:
    own = portal.opened.portal
    assert {route.path for route in http_app(own).routes if isinstance(route, Route)} == ROUTES.keys()
    assert {*build_server(own)._request_handlers} <= METHODS.keys()
