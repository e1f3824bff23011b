"""The overview, the list of runs and the page of a run, as a browser without scripts gets them."""

import re
from html import unescape
from pathlib import Path

import pytest

from manifests.json_value import Json
from portal.base.errors import RunsError
from tests.portal.console.desk import BASE, Desk
from tests.portal.stories import Story, kept, night


def titles(desk: Desk, path: str) -> list[str]:
    """The runs of a list."""
    return re.findall(r'<td class="what"><a [^>]*>([^<]+)</a>', desk.page(path).text)


def test_the_overview_begins_with_what_needs_a_person(desk: Desk, tmp_path: Path) -> None:
    story = (
        Story(tmp_path, "# Merge them")
        .asks("git.merge")
        .asks("git.merge")
        .asks("portal.approve", kind="approve")
    )
    needs = desk.page("/").text.partition("Runs <small>")[0]
    assert re.findall(rf'href="{BASE}/approvals#([^"]+)"', needs) == [
        f"{story.run[:12]}-1",
        f"{story.run[:12]}-3",
    ]
    assert "× 2" in needs and "Merge them" in needs


def test_a_portal_that_keeps_no_runs_has_an_overview(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(*_: object) -> None:
        raise RunsError("runs_unavailable", "there is no store", "")

    monkeypatch.setattr(desk.source, "read", read)
    assert "Nothing waits for you" in desk.page("/").text
    assert desk.page("/runs").status_code == 400


def test_runs_are_listed_by_state_and_searched(desk: Desk, tmp_path: Path) -> None:
    kept(desk.tables, 1, "# Pay Halden")
    kept(desk.tables, 2, "# Look", "error", [1, "git.log", "failed", 1.0, 2.0, "upstream_error"])
    Story(tmp_path, "# Ask").asks("git.merge")
    assert {*titles(desk, "/runs")} == {"Pay Halden", "Look", "Ask"}
    assert titles(desk, "/runs?state=failed") == titles(desk, "/runs?q=+git.log+") == ["Look"]
    assert titles(desk, "/runs?q=ask&state=failed") == []


def test_pages_of_runs_follow_each_other_without_gaps(desk: Desk) -> None:
    written = [kept(desk.tables, n, f"# Number {n}") for n in range(120)]
    seen, path = list[str](), "/runs?q=number"
    while path:
        text = desk.page(path).text
        seen += re.findall(r'data-href="[^"]+/(run_[0-9a-f]+)"', text)
        found = re.search(rf'href="{BASE}([^"]+before=[^"]+)"', text)
        path = found[1].replace("&amp;", "&") if found else ""
    assert seen == written[::-1]
    assert "All <span>120<" in text
    assert [desk.page(f"/runs?before={each}").status_code for each in ("x", "1.2.3 run_1")] == [400, 400]


def test_a_part_of_a_page_is_what_the_page_has_and_brings_the_count(desk: Desk, tmp_path: Path) -> None:
    run = Story(tmp_path, "1").asks("git.merge").run
    lists = (("/", "needs"), ("/", "newest"), ("/runs", "list"), ("/approvals", "inbox"))
    for path, part in (*lists, (f"/runs/{run}", "body")):
        found = desk.page(f"{path}?part={part}", **{"HX-Request": "true"}).text
        own, count, _ = found.partition('<span class="count" id="nav-count" hx-swap-oob="true">1</span>')
        assert own.strip() in desk.page(path).text
        assert bool(count) is (part != "newest")
        assert "<html" in desk.page(f"{path}?part={part}").text


def test_the_page_of_a_run_shows_the_selected_call(desk: Desk, tmp_path: Path) -> None:
    run = night(tmp_path).ended("error").run
    text = desk.page(f"/runs/{run}?call=3").text
    assert "by console alice: “fine”" in text
    assert '"charge": "ch_1"' in unescape(re.sub("<[^>]+>", "", text.partition("Arguments</h4>")[2]))
    assert "before you repeat it" in desk.page(f"/runs/{run[:14]}").text  # of the one that is unknown


def test_a_long_value_is_cut_with_a_mark(desk: Desk, tmp_path: Path) -> None:
    deep: Json = [1] * 100_000
    for _ in range(190):
        deep = [deep]
    story = Story(tmp_path, "1\n" * 20_000).call("a.b", {}, deep).ended("ok", stdout="y" * 100_000)
    text = desk.page(f"/runs/{story.run}?call=1").text
    assert re.sub("<[^>]+>", "", text).count("… cut after ") == 3
    assert len(text) < 200_000
