"""Nobody opens the console, or changes anything there, but a person whom a terminal or a token let in."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from manifests.portal_manifest import PortalManifest, ServerSettings
from portal.app.console import tokens_of
from portal.app.http_access import HttpAccess
from portal.calls.fetch import FROM_SCRIPT
from portal.console import access as rules
from portal.console.access import ENTER, Access
from portal.console.app import CONTENT_SECURITY_POLICY, console_app
from portal.console.pages import page, visitor_of
from portal.console.source import LeftSource
from portal.console.visitor import HEADER, Visitor
from portal.identity.approvers import Decider
from portal.records.store.places import open_tables
from tests.portal.rows import asked, begun

HOST = "127.0.0.1:7700"
OWN = {"Sec-Fetch-Site": "same-origin"}
TERMINAL = Visitor(Decider("console alice"), may_decide=True)
READER = Visitor(Decider("console alice"), may_decide=False)


class Console(TestClient):
    """A browser at the console of one store, whose pages tell the visitor, and count what was changed."""

    def __init__(self, folder: Path, access: Access | None = None) -> None:
        self.access = access or Access({HOST, "localhost:7700"}.__contains__)
        self.changes = 0
        place = folder / "runs.sqlite"
        with closing(open_tables(place, None)) as tables:
            self.run = begun(tables)
            asked(tables, self.run)
        shown = [Route("/me", self._me), Route("/shown", self._shown)]
        more = [*shown, Route("/change", self._change, methods=["POST"])]
        source = LeftSource(place, None, "/ui", "/home/alice/portal.yaml")
        self.routes = (app := console_app(source, self.access.admit, more)).routes
        super().__init__(app, f"http://{HOST}", raise_server_exceptions=False, follow_redirects=False)

    def enter(self, visitor: Visitor = TERMINAL, path: str = "/ui/") -> "Console":
        assert self.get(self.access.ticket(visitor, path)).headers["location"] == path
        return self

    async def _me(self, request: Request) -> Response:
        visitor = visitor_of(request)
        return JSONResponse([visitor.decider.by, visitor.owner])

    async def _shown(self, request: Request) -> Response:
        return await page(request, "refused.html", title="", text="")

    async def _change(self, request: Request) -> Response:
        self.changes += 1
        return PlainTextResponse("", 204)


@pytest.fixture
def console(tmp_path: Path) -> Console:
    return Console(tmp_path)


def test_a_ticket_opens_the_console_once_and_leaves_the_address(console: Console) -> None:
    assert console.get("/ui/me").status_code == 401
    path = console.access.ticket(TERMINAL, "/ui/runs/run_1")
    entered = console.get(path)
    assert (entered.status_code, entered.headers["location"]) == (303, "/ui/runs/run_1")
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Path=/ui" in cookie
    assert console.get("/ui/me").json() == ["console alice", None]
    console.cookies.clear()
    assert console.get(path).status_code == 403
    assert console.get("/ui/me").status_code == 401


@pytest.mark.parametrize(
    "ticket", ["", "?ticket=", "?ticket=x", "?ticket=%F0%9F%8D%BA", "?ticket=x&ticket=y"]
)
def test_a_wrong_ticket_opens_nothing(console: Console, ticket: str) -> None:
    assert console.get(f"{ENTER}{ticket}").status_code == 403


def test_an_origin_that_is_no_url_is_another_one(console: Console) -> None:
    with capture_logs() as events:
        assert console.post(ENTER, headers={"Origin": "http://["}).status_code == 403
    assert events == []


def test_a_late_ticket_and_a_late_session_open_nothing(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "SESSION_SECONDS", -1)
    assert console.enter().get("/ui/me").status_code == 401
    monkeypatch.setattr(rules, "TICKET_SECONDS", -1)
    assert console.get(console.access.ticket(TERMINAL)).status_code == 403


def test_a_cookie_is_of_one_process(console: Console, tmp_path: Path) -> None:
    console.enter()
    (tmp_path / "other").mkdir()
    other = Console(tmp_path / "other")
    other.cookies.update(console.cookies)
    assert (other.get("/ui/me").status_code, console.get("/ui/me").status_code) == (401, 200)


def test_tickets_and_sessions_are_bounded_and_the_oldest_go(console: Console) -> None:
    first, *_, last = [console.access.ticket(TERMINAL) for _ in range(rules.MAX_KEPT + 1)]
    assert (console.get(first).status_code, console.get(last).status_code) == (403, 303)


@pytest.mark.parametrize(
    "host", ["evil.test", "evil.test:7700", "127.0.0.1", "127.0.0.1:80", f"{HOST}.evil.test", ""]
)
@pytest.mark.parametrize("path", ["/ui/me", ENTER, "/ui/nothing"])
def test_a_name_that_leads_here_is_no_name_of_the_console(console: Console, host: str, path: str) -> None:
    assert console.enter().get(path, headers={"Host": host}).status_code == 421


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"Origin": "null"},
        {"Origin": "http://evil.test"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": f"http://{HOST}.evil.test"},
        *(
            {"Sec-Fetch-Site": site, "Origin": f"http://{HOST}"}
            for site in ("cross-site", "same-site", "none")
        ),
    ],
)
def test_another_site_changes_nothing(console: Console, sent: dict[str, str]) -> None:
    assert console.enter().post("/ui/change", headers=sent).status_code == 403
    assert console.post(ENTER, headers=sent, data={"token": "x"}).status_code == 403
    assert console.changes == 0


@pytest.mark.parametrize("sent", [OWN, {"Origin": f"http://{HOST}"}])
def test_a_page_of_the_console_may_change_something(console: Console, sent: dict[str, str]) -> None:
    assert console.enter().post("/ui/change", headers=sent).status_code == 204
    assert console.changes == 1


def test_page_behind_a_proxy_that_changes_the_host_is_told(console: Console) -> None:
    refused = console.enter().post("/ui/change", headers={"Origin": "http://portal.test"})
    assert (refused.status_code, "'http://portal.test'" in refused.text, f"'{HOST}'" in refused.text) == (
        403,
        True,
        True,
    )


def test_who_only_reads_changes_nothing(console: Console) -> None:
    console.enter(READER)
    assert console.post("/ui/change", headers=OWN).status_code == 403
    assert (console.get("/ui/me").status_code, console.changes) == (200, 0)


@pytest.mark.parametrize("path", ["/ui/me", ENTER])
def test_a_script_reaches_nothing(console: Console, path: str) -> None:
    assert console.enter().get(path, headers={FROM_SCRIPT: "1"}).status_code == 403
    assert console.get("/ui/me").status_code == 200


@pytest.mark.parametrize("value", [TERMINAL.header, "x"])
def test_a_browser_does_not_say_who_it_is(console: Console, value: str) -> None:
    assert console.get("/ui/me", headers={HEADER: value}).status_code == 401
    assert console.enter(READER).post("/ui/change", headers={HEADER: value, **OWN}).status_code == 403


def test_no_answer_can_be_framed_kept_or_sniffed(console: Console) -> None:
    answers = [console.get("/ui/me"), console.get(ENTER), console.get("/ui/me", headers={"Host": "x"})]
    console.enter()
    answers += [
        console.get("/ui/me"),
        console.get("/ui/no"),
        console.post("/ui/me", headers=OWN),
    ]
    assert [each.status_code for each in answers] == [401, 403, 421, 200, 404, 405]
    for answer in answers:
        assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"


def test_no_log_has_what_opens_the_console(console: Console, caplog: pytest.LogCaptureFixture) -> None:
    with capture_logs() as logs:
        ticket = console.access.ticket(TERMINAL)
        assert [console.get(ticket).status_code for _ in range(2)] == [303, 403]
    [cookie] = console.cookies.jar
    told = f"{logs} {[each.getMessage() for each in caplog.records if each.name != 'httpx2']}"
    assert ticket.partition("=")[2] not in told and str(cookie.value) not in told


def test_reading_every_page_changes_nothing(console: Console, tmp_path: Path) -> None:
    def kept() -> list[str]:
        with closing(open_tables(tmp_path / "runs.sqlite", None)) as tables:
            return [*tables.database._sql.iterdump()]

    console.enter()
    before, paths = kept(), [*_pages(console.routes, "", console.run.id)]
    assert "/ui/me" in paths
    assert {console.get(path).status_code for path in paths} <= {200, 307}
    assert (kept(), console.changes) == (before, 0)


def _pages(routes: Sequence[BaseRoute], base: str, run: str) -> Iterator[str]:
    for route in routes:
        if isinstance(route, Mount):
            yield from _pages(route.routes, f"{base}{route.path}", run)
        elif isinstance(route, Route) and "GET" in (route.methods or ()) and not route.path.endswith("/live"):
            yield f"{base}{route.path}".format(run=run, seq=1, name="base.css")


ALICE, BOB = "token-of-alice", "token-of-bob"


@pytest.fixture
def settings() -> list[HttpAccess]:
    """The rules of a portal with two tokens. A reload appends others."""
    return [_access(ALICE, BOB)]


def _access(*tokens: str) -> HttpAccess:
    named = [{"token": token, "name": token.rpartition("-")[2]} for token in tokens]
    return HttpAccess("127.0.0.1", PortalManifest(server=ServerSettings.model_validate({"tokens": named})))


@pytest.fixture
def listener(tmp_path: Path, settings: list[HttpAccess]) -> Console:
    access = Access(lambda host: settings[-1].knows_host(host), lambda: tokens_of(settings[-1]))
    return Console(tmp_path, access)


def test_a_token_opens_what_is_its_owners(listener: Console) -> None:
    assert "token" in listener.get("/ui/me").text
    entered = listener.post(ENTER, headers=OWN, data={"token": ALICE, "path": "/ui/runs?q=1"})
    assert (entered.status_code, entered.headers["location"]) == (303, "/ui/runs?q=1")
    by, owner = listener.get("/ui/me").json()
    assert by == "console token alice" and owner.startswith("//")
    assert ALICE not in entered.headers["set-cookie"]
    assert "/home" not in listener.get("/ui/shown").text and "/home" in listener.enter().get("/ui/shown").text


@pytest.mark.parametrize("token", ["", "x", "tokén", "🍺", "token-of-alice\nX: y"])
def test_no_other_token_opens_anything(listener: Console, token: str) -> None:
    assert listener.post(ENTER, headers=OWN, data={"token": token}).status_code == 403
    assert listener.get("/ui/me").status_code == 401


def test_a_session_ends_with_its_token(listener: Console, settings: list[HttpAccess]) -> None:
    listener.post(ENTER, headers=OWN, data={"token": ALICE})
    assert listener.get("/ui/me").status_code == 200
    settings.append(_access(BOB))
    assert listener.get("/ui/me").status_code == 401
    settings.append(_access(ALICE, BOB))
    assert listener.get("/ui/me").status_code == 401, "it does not come back"


def test_without_tokens_only_a_ticket_opens_the_console_also_on_loopback(
    listener: Console, settings: list[HttpAccess]
) -> None:
    settings.append(_access())
    assert 'name="token"' not in listener.get("/ui/me").text
    for token in ("", "x"):
        assert listener.post(ENTER, headers=OWN, data={"token": token}).status_code == 403
    assert listener.get("/ui/me", headers={"Authorization": f"Bearer {ALICE}"}).status_code == 401
    assert listener.enter().get("/ui/me").json() == ["console alice", None]


@pytest.mark.parametrize(
    "path",
    [
        "//evil.test",
        "https://evil.test",
        "/\\evil.test",
        "/ui/\\evil",
        "/ui//x y",
        "/uix",
        "/ui/\r\nX: y",
        "ui/",
    ],
)
def test_no_link_leads_from_the_door_to_another_place(listener: Console, path: str) -> None:
    entered = listener.post(ENTER, headers=OWN, data={"token": ALICE, "path": path})
    assert entered.headers["location"] == "/ui/"


def test_over_https_the_cookie_is_of_this_host_alone(listener: Console) -> None:
    behind = {"X-Forwarded-Proto": "https", **OWN}
    cookie = listener.post(ENTER, headers=behind, data={"token": ALICE}).headers["set-cookie"]
    assert cookie.startswith("__Host-") and "Secure" in cookie and "Path=/;" in cookie


def test_a_form_of_half_a_million_fields_is_not_parsed_and_none_is_read_where_no_token_opens(
    console: Console, listener: Console
) -> None:
    headers = {**OWN, "Content-Type": "application/x-www-form-urlencoded"}
    for body, status in ((b"a&" * 500_000, 400), (b"token=x&" + b"a&" * 900, 403)):
        assert listener.post(ENTER, content=body, headers=headers).status_code == status
        assert console.post(ENTER, content=body, headers=headers).status_code == 403
    assert console.post(ENTER, content=b"x" * 2_000_000, headers=headers).status_code == 403


def test_who_enters_often_ends_no_session_of_another(listener: Console) -> None:
    kept = {}
    for token in (BOB, *(rules.MAX_KEPT * [ALICE])):
        listener.cookies.clear()
        listener.post(ENTER, headers=OWN, data={"token": token})
        kept.setdefault(token, dict(listener.cookies))
    for token, status in ((BOB, 200), (ALICE, 401)):
        listener.cookies.clear()
        listener.cookies.update(kept[token])
        assert listener.get("/ui/me").status_code == status


def test_sessions_that_ended_make_room_first(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MAX_OF_ONE", 2)
    first = console.access.ticket(TERMINAL)
    with monkeypatch.context() as late:
        late.setattr(rules, "TICKET_SECONDS", -1)
        console.access.ticket(TERMINAL)
    console.access.ticket(TERMINAL)
    assert console.get(first).status_code == 303


@pytest.mark.parametrize(("host", "status"), [(HOST, 200), ("evil.test", 421)])
def test_files_are_for_everyone_who_knows_the_host(console: Console, host: str, status: int) -> None:
    assert console.get("/ui/static/base.css", headers={"Host": host}).status_code == status
    assert console.get(f"/ui/static/{300 * 'x'}").status_code == 404
