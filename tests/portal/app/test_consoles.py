"""The consoles of all portals of a user behind one address: pages are passed on, left stores shown, runs found."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from manifests.loader import load_manifest
from manifests.own_files import state_folder
from manifests.portal_manifest import PortalManifest
from portal.app.console import PortalConsole, told_visitor
from portal.app.consoles import Consoles
from portal.app.http_access import HttpAccess
from portal.app.serving import LazyConsole
from portal.base.errors import RunsError
from portal.calls.fetch import FROM_SCRIPT
from portal.console.access import Access
from portal.console.app import console_app
from portal.console.pages import visitor_of
from portal.console.source import LeftSource
from portal.console.visitor import HEADER, Visitor
from portal.identity.approvers import Decider
from portal.records.store.places import open_tables, place_of, present
from portal.records.store.trail import TrailRow
from tests.portal.peers import DEADLINE_SECONDS, opened
from tests.portal.rows import asked, begun

pytestmark = pytest.mark.usefixtures("own_state")

ORIGIN = "http://127.0.0.1:7700"
OWN = {"Sec-Fetch-Site": "same-origin"}
ONE = {"1-a": ""}
TERMINAL = Visitor(Decider("console alice"), may_decide=True)
READER = Visitor(Decider("console alice"), may_decide=False)
STATUS = {
    "pid": 1,
    "manifest": "/a/portal.yaml",
    "transport": "stdio",
    "client": "<Claude>",
    "needs_you": [{}],
}


class Portal:
    """A portal at the other end of a socket, with a page that tells who visits and what was sent."""

    def __init__(self, folder: Path) -> None:
        place = folder / "theirs.sqlite"
        with closing(open_tables(place, None)) as tables:
            begun(tables, run=f"run_{32 * '1'}")
            begun(tables, run=f"run_1111{28 * '2'}")
        more = [Route("/me", self._me, methods=["GET", "POST"])]
        self._app = console_app(LeftSource(place, None, "/ui/@1-a", "a"), told_visitor, more)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = JSONResponse(STATUS) if scope["path"] == "/status" else self._app
        await app(scope, receive, send)

    async def _me(self, request: Request) -> Response:
        visitor, sent = visitor_of(request), (await request.body()).decode()
        told = [visitor.decider.by, visitor.may_decide, str(request.query_params), sent]
        return JSONResponse(
            [*told, sorted({"cookie", "origin", "x-forwarded-for"} & {*request.headers})], 418
        )


@asynccontextmanager
async def browser(
    folder: Path, running: Mapping[str, str] = ONE, app: ASGIApp | None = None
) -> AsyncIterator[tuple[httpx2.AsyncClient, Consoles, Access]]:
    """A browser without a session, at the consoles of `running` portals, which are names and manifests, and of the
    manifest in `folder`.
    """
    transport = httpx2.ASGITransport(app=app or Portal(folder))
    async with httpx2.AsyncClient(transport=transport, base_url="http://portal") as portal:

        async def clients() -> Mapping[str, tuple[str, httpx2.AsyncClient]]:
            return {name: (manifest, portal) for name, manifest in running.items()}

        (folder / "portal.yaml").write_text("upstreams: {}\n")
        access = Access({"127.0.0.1:7700"}.__contains__)
        consoles = Consoles(clients, load_manifest(folder / "portal.yaml", {}), access)
        inside = httpx2.ASGITransport(app=consoles.app)
        async with httpx2.AsyncClient(transport=inside, base_url=ORIGIN) as http:
            yield http, consoles, access


async def test_a_page_is_passed_on_with_who_visits_and_nothing_that_the_browser_says_of_that(
    tmp_path: Path,
) -> None:
    said = {HEADER: TERMINAL.header, "X-Forwarded-For": "x", **OWN}
    async with browser(tmp_path) as (http, _, access):
        assert (await http.get("/ui/@1-a/me", headers=said)).status_code == 401
        for visitor, status in ((READER, 403), (TERMINAL, 418)):
            await http.get(access.ticket(visitor))
            answer = await http.get("/ui/@1-a/me?a=%26&b=", headers=said)
            told = ["console alice", visitor.may_decide, "a=%26&b=", "", []]
            assert (answer.status_code, answer.json()) == (418, told)
            sent = await http.post("/ui/@1-a/me", data={"reason": "ü"}, headers=said)
            assert sent.status_code == status
        assert sent.json()[3] == "reason=%C3%BC"
        assert (await http.get("/ui/@1-a/me", headers={FROM_SCRIPT: "1"})).status_code == 403


async def test_a_page_is_compressed_only_for_a_browser_that_takes_it(tmp_path: Path) -> None:
    async with browser(tmp_path) as (http, _, access):
        await http.get(access.ticket(TERMINAL))
        request = http.build_request("GET", "/ui/@1-a/")
        assert (await http.send(request)).headers["content-encoding"] == "gzip"
        del request.headers["accept-encoding"]
        assert "content-encoding" not in (await http.send(request)).headers


async def test_a_browser_keeps_the_files_of_a_portal_and_no_page(tmp_path: Path) -> None:
    async with browser(tmp_path) as (http, _, access):
        await http.get(access.ticket(TERMINAL))
        kept = {
            "": "no-store",
            "static/base.css": "public, max-age=31536000, immutable",
            "static/x": "no-store",
        }
        answers = {path: await http.get(f"/ui/@1-a/{path}") for path in kept}
        assert {path: each.headers["cache-control"] for path, each in answers.items()} == kept


async def test_a_path_with_a_slash_too_many_leads_to_the_page_at_the_same_origin(tmp_path: Path) -> None:
    async with browser(tmp_path) as (http, _, access):
        await http.get(access.ticket(TERMINAL))
        assert (await http.get("/ui/@1-a/runs/")).headers["location"] == f"{ORIGIN}/ui/@1-a/runs"


@pytest.mark.parametrize("path", ["/ui/@2-b/", "/ui/@..%2f1-a/me"])
async def test_a_portal_that_is_not_there_leads_to_the_list(tmp_path: Path, path: str) -> None:
    async with browser(tmp_path) as (http, _, access):
        await http.get(access.ticket(TERMINAL))
        answer = await http.get(path)
        assert (answer.status_code, 'href="/ui/"' in answer.text) == (404, True)


async def test_the_list_has_running_portals_and_left_stores_with_what_needs_a_person(tmp_path: Path) -> None:
    async with browser(tmp_path) as (http, consoles, access):
        place = place_of(load_manifest(tmp_path / "portal.yaml", {}))
        assert isinstance(place, Path)
        with present(place) as holder, closing(open_tables(place, None, holder)) as tables:
            run = begun(tables)
            asked(tables, run)
            only_read = TrailRow(f"run_{32 * '3'}", "local", "ok", "1", 1.0)
            with tables.transaction():
                tables.beat("")
                tables.add_trail([only_read], {})
            await http.get(access.ticket(TERMINAL))
            shown = (await http.get("/ui/")).text
            assert "/ui/@1-a/" in shown and "&lt;Claude&gt;" in shown and "/ui/@left-" not in shown
            assert await consoles.path_of("run_11111") == "/ui/@1-a/runs/run_11111"
            assert "several runs" in (await http.get(await consoles.path_of("1111"))).text
            with pytest.raises(RunsError):
                await consoles.path_of(run.id)
        assert "/ui/@left-" in (await http.get("/ui/")).text
        assert (await consoles.path_of(only_read.id)).endswith(f"/runs/{only_read.id}")
        path = await consoles.path_of(run.id[:12])
        assert path.startswith("/ui/@left-") and path.endswith(run.id[:12])
        assert (await http.post(f"{path}/cancel", data={}, headers=OWN)).status_code == 303


async def test_a_left_store_whose_runs_only_read_is_shown_too(tmp_path: Path) -> None:
    async with browser(tmp_path, {}) as (_, consoles, _access):
        place = state_folder(os.environ) / "runs/other/runs.sqlite"
        place.parent.mkdir(parents=True)
        with closing(open_tables(place, None)) as tables, tables.transaction():
            tables.add_trail([TrailRow(run := f"run_{32 * '3'}", "local", "ok", "1", 1.0)], {})
        assert (await consoles.path_of(run)).endswith(run)


async def test_a_used_link_leads_on_in_the_browser_that_it_has_opened_the_console_in(tmp_path: Path) -> None:
    async with browser(tmp_path) as (http, _, access):
        ticket, leads_on = access.ticket(TERMINAL), '<a href="/ui/">'
        assert (await http.get(ticket)).status_code == 303
        again = await http.get(ticket)
        assert (again.status_code, leads_on in again.text) == (403, True)
        http.cookies.clear()
        assert leads_on not in (await http.get(ticket)).text


async def test_the_only_portal_is_opened_at_once(tmp_path: Path) -> None:
    async with browser(tmp_path) as (_, consoles, _access):
        assert await consoles.path_of("") == "/ui/@1-a/"
    async with browser(tmp_path, {}) as (http, consoles, access):
        assert await consoles.path_of("") == "/ui/"
        await http.get(access.ticket(TERMINAL))
        assert "mcp-code-portal serve" in (await http.get("/ui/")).text


async def test_a_listener_opens_by_a_ticket_that_its_socket_gives(tmp_path: Path) -> None:
    rules = HttpAccess("127.0.0.1", PortalManifest())
    async with opened(tmp_path, {}, runs={"public_url": "http://127.0.0.1:8790"}) as portal:
        console = PortalConsole(portal.portal, "1-a", lambda: "http", lambda: rules)
        inside, outside = (httpx2.ASGITransport(app=app) for app in (console.on_socket, console.on_listener))
        async with (
            httpx2.AsyncClient(transport=inside, base_url="http://portal") as socket,
            httpx2.AsyncClient(transport=outside, base_url="http://127.0.0.1:8790") as http,
        ):

            async def clients() -> Mapping[str, tuple[str, httpx2.AsyncClient]]:
                return {"1-a": ("", socket)}

            consoles = Consoles(clients, portal.portal.manifest, Access(bool))
            assert (await socket.get("/ui/@1-a/live")).status_code == 400, "nobody visits"
            [address] = await consoles.listener_tickets(READER, "/ui/@1-a/runs/run_1")
            assert (await http.get("/ui/ticket")).status_code == 401
            entered = await http.get(address)
            assert (entered.status_code, entered.headers["location"]) == (303, "/ui/runs/run_1")
            assert (await http.get("/ui/ticket")).status_code == 404
            assert (await http.get("/ui/@1-a/live", headers={HEADER: TERMINAL.header})).status_code == 404
        lazy = Starlette(routes=LazyConsole(portal.portal, "1-a", lambda: "http", lambda: rules).routes)
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=lazy)) as http:
            answers = [await http.get(f"http://{host}/ui") for host in ("evil.test", "127.0.0.1:8790")]
            assert [each.status_code for each in answers] == [421, 307]


async def test_a_portal_that_is_stopped_keeps_nobody_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stopped(scope: Scope, receive: Receive, send: Send) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr("portal.app.consoles.ANSWER_SECONDS", 0)
    monkeypatch.setattr("portal.app.consoles.PAGE_SECONDS", 0)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with browser(tmp_path, {"2-b": ""}, stopped) as (http, consoles, access):
            await http.get(access.ticket(TERMINAL))
            assert await consoles.listener_tickets(TERMINAL, "/ui/") == []
            with pytest.raises(RunsError):
                await consoles.path_of("run_1")
            assert "/ui/@2-b/" in (await http.get("/ui/")).text
            assert (await http.get("/ui/@2-b/")).status_code == 504


async def test_what_a_portal_says_that_is_no_json_is_no_address(tmp_path: Path) -> None:
    async with browser(tmp_path, ONE, PlainTextResponse("<html>")) as (_, consoles, _access):
        assert await consoles.listener_tickets(TERMINAL, "/ui/") == []


async def test_the_address_of_a_portal_that_ended_leads_to_the_next_of_its_manifest(tmp_path: Path) -> None:
    running = {"1-a": "/a/portal.yaml", "2-b": "/b/portal.yaml"}
    async with browser(tmp_path, running, PlainTextResponse("shown")) as (http, _, access):
        await http.get(access.ticket(TERMINAL))
        assert (await http.get("/ui/@1-a/live")).text == "shown"
        del running["1-a"]
        assert (await http.get("/ui/@1-a/live")).status_code == 404
        running["3-c"] = "/a/portal.yaml"
        led = await http.post("/ui/@1-a/runs/run_1/cancel?a=b", headers=OWN)
        assert (led.status_code, led.headers["location"]) == (307, f"{ORIGIN}/ui/@3-c/runs/run_1/cancel?a=b")
