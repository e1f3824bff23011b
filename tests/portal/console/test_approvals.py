"""A person decides about calls on a page that shows what they need, with and without scripts in the browser."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.json_value import Json
from portal.console.forms import Field
from portal.console.visitor import Visitor
from portal.identity.approvers import Approvers, Decider
from tests.portal.console.desk import BASE, REFUND, Desk, bearer

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def text_of(page: str) -> str:
    """What a page shows, without its tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", page))


def test_a_call_is_shown_with_what_helps_to_decide(desk: Desk) -> None:
    code = "# Refund those who paid twice\nfor c in found:\n    await billing.refund(charge=c)\n"
    before, where = ("tickets.list", "billing.charges", "billing.charges"), "portal.yaml:9:38"
    run = desk.asks(REFUND, before=before, code=code, where=where, hints="destructive, open world")
    shown = text_of(desk.page().text)
    for told in (
        *("Refund those who paid twice", "3 calls so far: billing.charges 2, tickets.list", run.id[:12]),
        *("call 4", "destructive", "open world", "ask: billing.refund", where, "amount1290.0", "charge"),
    ):
        assert told in shown, told
    assert re.search(r'class="ln on"><i>3</i>', desk.page().text)
    assert f'id="{run.id[:12]}-4"' in desk.page().text


@pytest.mark.parametrize(("decision", "state"), [("approve", "approved"), ("deny", "denied")])
def test_a_decision_is_that_of_the_visitor_with_its_reason(desk: Desk, decision: str, state: str) -> None:
    run = desk.asks(REFUND)
    done = desk.answer(run, decision=decision, reason="not on a Friday")
    assert (done.status_code, done.headers["location"]) == (303, f"{BASE}/approvals")
    call = desk.call(run)
    assert (call.state, call.decided_by) == (state, "console ann")
    assert json.loads(call.decision or b"")["reason"] == "not on a Friday"
    left = desk.page().text
    assert run.id[:12] not in left and "ask: [" in left  # it says how to try it
    for back, place in (("run", "runs/{}"), ("https://evil.example", "approvals")):
        other = desk.asks(REFUND)
        assert desk.approve(other, back=back).headers["location"] == f"{BASE}/{place.format(other.id)}"


def test_changed_arguments_are_those_of_the_decision(desk: Desk) -> None:
    run = desk.asks({**REFUND, "note": "a\nb", "lines": [1]})
    sent = {"a0": "ch_2", "a1": "645.5", "a2": "true", "a3": "a\r\nb", "a4": '{"x": null}'}
    assert desk.answer(run, decision="change", **sent).status_code == 303
    written = {"charge": "ch_2", "amount": 645.5, "urgent": True, "note": "a\nb", "lines": {"x": None}}
    assert desk.arguments(run) == written


def test_fields_that_change_nothing_approve_the_arguments_of_the_script(desk: Desk) -> None:
    run = desk.asks(REFUND)
    assert desk.answer(run, decision="change", a0="ch_1", a1="1290.0", a2="false").status_code == 303
    assert (desk.call(run).state, desk.arguments(run)) == ("approved", None)
    other = desk.asks(REFUND)
    desk.approve(other, a1="1")  # the form was not being edited
    assert desk.arguments(other) is None


def test_an_argument_that_cannot_be_read_decides_nothing(desk: Desk) -> None:
    run = desk.asks({**REFUND, "lines": [], "id": "7"})
    for key, text in (("a1", "much"), ("a1", "true"), ("a1", ""), ("a2", "maybe"), ("a3", "{"), ("a4", "8")):
        refused = desk.answer(run, decision="change", **{key: text})
        assert refused.status_code == 422, (key, text)
    refused = desk.answer(run, decision="change", is_htmx=True, a1="much")
    assert (refused.status_code, refused.headers["hx-reswap"]) == (
        422,
        "none",
    )  # what was written stays there
    assert desk.states(run) == ["waiting"]


def test_preview_shows_what_changes_and_writes_nothing(desk: Desk) -> None:
    run = desk.asks({**REFUND, "lines": []})
    last = desk.tables.last_log()
    preview = f"{BASE}/runs/{run.id}/answers/1/preview"
    shown = desk.client.post(preview, data={"a1": "645.5", "a2": "false", "a3": '"x"'}).text
    assert re.findall(r"<del>(.*?)</del><ins>(.*?)</ins>", shown) == [
        ("1290.0", "645.5"),
        ("[]", "&#34;x&#34;"),
    ]
    assert desk.tables.last_log() == last


def test_values_of_several_calls_that_differ_by_type_only_are_different(desk: Desk) -> None:
    desk.asks({"a": 1, "b": True, "c": "x"}, {"a": "1", "b": "true", "c": "x"}, function="git.merge")
    same, _, different = desk.page().text.partition("Different</h4>")
    assert re.findall(r'class="val">([^<]*)<', same) == ["x"]
    assert re.findall(r'class="val">([^<]*)<', different) == ["1", "true", "&#34;1&#34;", "&#34;true&#34;"]


def test_of_several_calls_one_that_was_decided_before_is_told(desk: Desk) -> None:
    run = desk.asks({"id": 7}, {"id": 8}, function="git.merge")
    desk.visitor[0] = Visitor(Decider("console bob"), may_decide=True)
    desk.answer(run, 1, decision="deny")
    desk.visitor[0] = Visitor(Decider("console ann"), may_decide=True)
    told = desk.answer(run, None, decision="approve", seq=["1", "2"])
    assert told.status_code == 409
    assert "by console bob" in told.text and "call 2 is approved" in told.text
    assert desk.states(run) == ["denied", "approved"]


def test_an_approval_stands_for_later_calls_if_the_person_says_so(desk: Desk) -> None:
    run, plain, edited = (desk.asks({"id": n}, function="git.merge", may_stand=True) for n in range(3))
    desk.approve(run, stands="1")
    desk.approve(plain)
    desk.answer(edited, decision="change", a0="9", stands="1")  # later calls have the script's arguments
    both = desk.asks({"id": 7}, {"id": 8}, function="git.merge", may_stand=True)
    desk.answer(both, None, decision="approve", seq=["1"], stands="1")  # it would approve call 2, too
    kept = [
        desk.tables.get("stands", each.id, "git.merge") is not None for each in (run, plain, edited, both)
    ]
    assert kept == [True, False, False, False]
    late = desk.answer(run, decision="deny", is_htmx=True).text  # it revokes, and does not undo
    assert "call 1 is approved" in late and desk.tables.get("stands", run.id, "git.merge") is None
    assert desk.approve(desk.asks(REFUND), stands="1").status_code == 400


def test_who_only_reads_sees_calls_without_a_form(desk: Desk) -> None:
    run = desk.asks(REFUND)
    desk.visitor[0] = Visitor(Decider("console ann"), may_decide=False)
    pages = [desk.page(path).text.partition("<main")[2] for path in ("/approvals", f"/runs/{run.id}")]
    assert "1290.0" in pages[0] and not any('action="' in page for page in pages)
    cancelled = desk.client.post(f"{BASE}/runs/{run.id}/cancel")
    assert [cancelled.status_code, desk.approve(run).status_code] == [403, 403]
    assert desk.states(run) == ["waiting"]


@pytest.mark.parametrize(
    ("rules", "decider", "why"),
    [
        (Approvers(frozenset(["token:boss"])), bearer("red//ann"), "approvers that the manifest names"),
        (Approvers(four_eyes=True), bearer("red//ann"), "no one decides about their own calls"),
        (Approvers(), Decider("http", "red//ann", is_known=False), "without a token"),
    ],
)
def test_who_may_not_decide_is_told_why_instead_of_a_form(
    desk: Desk, rules: Approvers, decider: Decider, why: str
) -> None:
    desk.source.rules = rules
    run = desk.asks(REFUND, owner="red//ann")
    desk.visitor[0] = Visitor(decider, may_decide=True)
    page = desk.page().text
    assert why in page and 'action="' not in page.partition("<main")[2]
    assert desk.approve(run).status_code == 403
    desk.visitor[0] = Visitor(Decider("console ann"), may_decide=True)
    assert desk.approve(run).status_code == 303


def test_an_approver_decides_about_runs_of_the_tenant(desk: Desk) -> None:
    desk.source.rules = Approvers(frozenset(["token:boss"]))
    run, other = desk.asks(REFUND, owner="red//ann"), desk.asks(REFUND, owner="blue//ann")
    desk.visitor[0] = Visitor(bearer("red//boss", "token:boss"), may_decide=True)
    page = desk.page().text
    assert run.id[:12] in page and other.id[:12] not in page and 'id="nav-count">1<' in page
    overview = desk.page("/").text
    assert run.id[:12] in overview and other.id[:12] not in overview
    assert [desk.approve(each).status_code for each in (run, other)] == [303, 404]


def test_a_run_that_ends_while_the_page_is_read_is_left_out(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.source.rules = Approvers(frozenset(["token:boss"]))
    run, ended = desk.asks(REFUND, owner="red//ann"), desk.asks(REFUND, owner="red//ann")
    with desk.tables.transaction():
        desk.tables.finish(ended.id, "cancelled", None)
    monkeypatch.setattr("portal.console.approvals.asking_runs", lambda *_: [ended, run])
    desk.visitor[0] = Visitor(bearer("red//boss", "token:boss"), may_decide=True)
    page = desk.page()
    assert page.status_code == 200 and run.id[:12] in page.text and ended.id[:12] not in page.text


def test_more_calls_than_a_page_shows_are_counted(desk: Desk) -> None:
    before = ("tickets.delete", *["tickets.get"] * 120)
    desk.asks(*({"id": n} for n in range(52)), function="git.merge", before=before)
    page = desk.page().text
    assert page.count('name="seq"') == 50 and "2 more calls of this run wait" in page
    assert "121 calls so far, among them tickets.delete, .get 99." in page


def test_arguments_that_are_too_long_are_shown_as_a_text(desk: Desk) -> None:
    text = "  path: a.md\n  … cut: it has 43,891 characters"
    run = desk.asks(text, text, function="files.write")
    page = desk.page().text
    assert page.count("43,891") == 2 and 'value="change"' not in page  # none is hidden in a table
    assert desk.answer(run, decision="change", a0="x").status_code == 422
    assert desk.approve(run).status_code == 303


@pytest.mark.parametrize("shown", [b"{}", b'{"arguments": {"id": 7}}', b'{"question": "On?"}'])
def test_rows_of_older_versions_are_shown_and_decided(desk: Desk, shown: bytes) -> None:
    run = desk.asks(REFUND)
    desk.tables.database.execute("UPDATE calls SET shown = ?", (desk.tables.seal.close(shown),))
    assert "billing.refund" in desk.page().text
    assert desk.approve(run).status_code == 303


def test_a_link_decides_nothing(desk: Desk) -> None:
    run = desk.asks(REFUND)
    assert desk.page(f"/runs/{run.id}/answers/1?decision=approve").status_code in (404, 405)
    assert desk.page("/approvals?decision=approve&seq=1").status_code == 200
    assert desk.page(f"/runs/{run.id}/cancel").status_code == 405
    assert desk.answer(run, None, decision="approve").status_code == 422  # no call was chosen
    assert desk.answer(run, reason="").status_code == 422  # and here no decision
    assert desk.states(run) == ["waiting"]


@pytest.mark.parametrize("value", [1, True, None, "x", "", [], [1], {"a": 1}, 1e300])
def test_a_text_looks_like_no_other_value_in_one_line(value: Json) -> None:
    text = Field("a0", "x", value).text
    assert "\n" in text or isinstance(value, str) or Field("a0", "x", text).text == json.dumps(text)


def test_a_short_value_of_many_levels_stays_short() -> None:
    deep: Json = [1] * 5_000
    for _ in range(190):
        deep = [deep]
    assert len(Field("a0", "x", deep).text) < 20_000


@given(JSON)
def test_a_field_that_is_not_edited_is_the_same_value(value: Json) -> None:
    field = Field("a0", "x", value)
    assert field.read(field.text) is value
    assert field.read(field.text.replace("\n", "\r\n")) == value  # as a browser sends it
