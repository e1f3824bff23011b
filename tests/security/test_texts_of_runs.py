"""Nothing that a script, an upstream or a client wrote becomes a part of a page; others' runs are on no page."""

import re
from pathlib import Path
from urllib.parse import quote

import pytest

from portal.console.needs import Need
from portal.console.visitor import Visitor
from sandbox_runtime.call_port import CallError
from tests.portal.console.desk import BASE, bearer, desk_in
from tests.portal.stories import Story, kept

EVIL = "</script><img src=x onerror=alert(1)>\u202e\x1b[2J\"'"
"""No page may have its tag, its hidden characters, or its quotes in an attribute."""


def test_hostile_texts_in_every_field_stay_texts(tmp_path: Path) -> None:
    error, listed = CallError(EVIL, EVIL, EVIL), [1, EVIL, "failed", 1.0, 2.0, EVIL]
    story = Story(tmp_path, f"# {EVIL}\nawait a.b()  # {EVIL}").call(f"a.{EVIL}", {EVIL: EVIL}, {EVIL: EVIL})
    story.call(f"{EVIL}.b", state="failed", error=error).asks(f"a.{EVIL}", {EVIL: [EVIL]}).later(1)
    story.decided(reason=EVIL, arguments={EVIL: EVIL}).resumed().asks(EVIL, {EVIL: EVIL}, "approve")
    run = kept(story.tables, 1, EVIL, "error", listed, client=EVIL, code=EVIL)
    pages = ["/", "/runs", f"/runs?q={quote(EVIL)}&state={quote(EVIL)}", f"/runs/{run}?call=1"]
    pages += [f"/runs/{quote(EVIL, safe='')}", *(f"/runs/{story.run}?call={seq}" for seq in range(5))]
    with desk_in(tmp_path) as desk:
        found = [desk.page(path).text for path in pages]
        story.decided().resumed().ended("ok", result=[EVIL], stdout=EVIL, notices=[EVIL])
        found.append(desk.page(f"/runs/{story.run}").text)
    for page in found:
        assert "<img src=x" not in page and "\u202e" not in page and "\x1b" not in page
        assert re.findall(r"<script(?! src=)", page) == []
    assert all("&lt;img" in page for page in found if "<html" in page)


def test_no_page_has_a_run_of_someone_else(tmp_path: Path) -> None:
    story = Story(tmp_path, "# secret", owner="acme/bob").asks("secret.call")
    listed = [1, "secret.call", "failed", 1.0, 2.0, ""]
    paths = [
        f"/runs/{story.run}",
        f"/runs/{kept(story.tables, 1, '# secret', 'error', listed, owner='acme/bob')}",
    ]
    with desk_in(tmp_path) as desk:
        desk.visitor[0] = Visitor(bearer("acme/alice"), may_decide=True)
        for path in ("/", "/runs", "/runs?q=secret", "/runs?state=failed"):
            page = desk.page(path).text
            assert "run_" not in page and "secret.call" not in page
        assert [desk.page(path).status_code for path in paths] == [404, 404]
        assert desk.client.post(f"{BASE}{paths[0]}/cancel").status_code == 404
        desk.visitor[0] = Visitor(bearer("acme/bob"), may_decide=True)
        assert [desk.page(path).status_code for path in paths] == [200, 200]


def test_the_state_of_the_portal_is_shown_to_its_operator_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with desk_in(tmp_path) as desk:
        monkeypatch.setattr(desk.source, "needs", lambda: [Need("down", "crm: exit status 1")])
        assert "crm: exit status 1" in desk.page("/").text
        desk.visitor[0] = Visitor(bearer("acme/alice"), may_decide=True)
        assert "crm" not in desk.page("/").text
