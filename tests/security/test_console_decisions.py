"""Texts of scripts and upstreams on the page that decides, and people who decide about what is not theirs."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from manifests.json_value import Json
from portal.base.plain_text import hidden_places
from portal.console.visitor import Visitor
from portal.records.store.records import RunRow
from portal.runs.shown_calls import sha256_of
from tests.portal.console.desk import BASE, REFUND, Desk, bearer, desk_in

HOSTILE = "</textarea></pre>\"'><img src=x onerror=alert(1)><script>alert(1)</script>\u202e\u200b{{ 7*7 }}"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with desk_in(tmp_path) as desk:
        yield desk


class Shape(HTMLParser):
    """The tags of a page, and the names of their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, frozenset[str]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, frozenset(name for name, _ in attrs)))


def asks_with(desk: Desk, text: str) -> RunRow:
    """A run that has this text wherever a script or an upstream can put one."""
    more: dict[str, Json] = {"hints": text, "rule": text, "where": text, "types": {text: [text, "x"]}}
    arguments: Json = {text: text, "n": {text: [text]}, "long": f"{text}\n" * 9}
    desk.asks(arguments, arguments, function=text, code=text, **more)
    return desk.asks(arguments, function=text, code=text, before=(text,), owner=text, **more)


def test_texts_of_others_add_no_tag_and_hide_nothing(desk: Desk, tmp_path: Path) -> None:
    run = asks_with(desk, HOSTILE)
    page = desk.page().text
    preview = desk.client.post(f"{BASE}/runs/{run.id}/answers/2/preview", data={"a0": HOSTILE}).text
    assert "&lt;img src=x" in page and "&lt;img src=x" in preview
    assert "49" not in preview and {"img", "script"}.isdisjoint(tag for tag, _ in Shape(preview).tags)
    assert hidden_places(page + preview, "\n\t") == []
    (tmp_path / "twin").mkdir()
    with desk_in(tmp_path / "twin") as twin:
        asks_with(twin, "harmless")
        kinds = {*Shape(twin.page().text).tags}
    assert {*Shape(page).tags} <= kinds | {("textarea", next(a for tag, a in kinds if tag == "textarea"))}


def test_a_masked_secret_is_not_sent_as_its_mask(desk: Desk) -> None:
    run, twin = (desk.asks({"key": "[masked]", "n": 1}, function="vault.put") for _ in range(2))
    real = sha256_of({"key": "the-secret", "n": 1})
    desk.tables.database.execute("UPDATE calls SET arguments_sha256 = ? WHERE run = ?", (real, run.id))
    assert desk.answer(run, decision="change", a1="2").status_code == 422
    assert desk.states(run) == ["waiting"]
    assert desk.answer(twin, decision="change", a1="2").status_code == 303
    assert desk.approve(run).status_code == 303  # as the script sends it


@pytest.mark.parametrize("path", ["answers/1", "answers", "answers/1/preview"])
def test_the_run_of_another_is_as_unknown_as_none(desk: Desk, path: str) -> None:
    run = desk.asks(REFUND, owner="red//ann")
    form = {"decision": "approve", "seq": "1", "a1": "2"}
    desk.visitor[0] = Visitor(bearer("red//eve"), may_decide=True)
    assert run.id not in desk.page().text
    answers = [
        desk.client.post(f"{BASE}/runs/{each}/{path}", data=form) for each in (run.id, "run_" + "0" * 32)
    ]
    assert [each.status_code for each in answers] == [404, 404]
    assert desk.states(run) == ["waiting"]
    desk.visitor[0] = Visitor(bearer("red//ann"), may_decide=True)
    assert run.id in desk.page().text
    sent = desk.client.post(f"{BASE}/runs/{run.id}/{path}", data=form, follow_redirects=False)
    assert sent.status_code in (200, 303)
