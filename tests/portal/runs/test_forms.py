"""A form shows calls as a person reads them, and hides nothing without a word."""

import pytest

from manifests.json_value import Json
from portal.runs.forms import CHOICES, approval_form, decision_of
from portal.runs.shown_calls import readable

LONG = "harmless " * 3_000


def told(*arguments: Json, **more: Json) -> str:
    asked = [
        {"function": "files.write", "upstream": "files", "rule": "ask: *", "arguments": each, **more}
        for each in arguments
    ]
    return approval_form("run_1", asked, four_eyes=False).params.message


def test_form_names_the_call_its_rule_and_its_run() -> None:
    message = told({"id": 7})
    assert all(each in message for each in ("files.write of the upstream files", "id: 7", "ask: *", "run_1"))


def test_arguments_are_lines_and_texts_are_blocks() -> None:
    shown = readable({"path": "a.md", "content": "# Title\n\tx\n", "mode": 7, "tags": ["a"], "it's": ""})
    assert shown == [
        '  path: "a.md"',
        "  content:",
        "  | # Title",
        "  | \tx",
        "  | ",
        "  mode: 7",
        '  tags: ["a"]',
        '  "it\'s": ""',
    ]


@pytest.mark.parametrize(
    ("old", "new"), [("oldText", "newText"), ("old_string", "new_string"), ("old", "new")]
)
def test_change_is_shown_as_removed_and_added_lines(old: str, new: str) -> None:
    edit = {old: "def f():\n    return 1\n", new: "def f():\n    return 2\n", "count": 1}
    lines = ["  = def f():", "  -     return 1", "  +     return 2", "  = "]
    assert readable({"edits": [edit]}) == [f"  edits[0].{old}:", *lines, "  edits[0].count: 1"]
    assert readable({old: "rm -rf /", new: "rm -rf /"}) == [
        f"  {old}:",
        "  = rm -rf /",
    ]  # it may be no change
    assert readable({old: "x", new: 1}) == [f'  {old}: "x"', f"  {new}: 1"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"content": LONG, "to": "evil"},
        {"content": f"{LONG}\n", "to": "evil"},
        {"files": [{"content": f"{LONG}\n"}, {"content": "a\nb", "to": "evil"}]},
        {"old": f"{LONG}\n", "new": "evil\n"},
        {"old": "same\n" * 3_000 + "x", "new": "same\n" * 3_000 + "evil"},
        {**{f"n{n}": LONG for n in range(12)}, "to": "evil"},
        {"options": {"body": LONG, "more": [LONG, "evil"]}},
        {"files": {f"{'docs/' * 30}/../evil": "a\n"}},
    ],
)
def test_long_harmless_part_does_not_hide_another_one(arguments: Json) -> None:
    assert "evil" in told(arguments)
    assert all("evil" in each for each in told(*[arguments] * 10).split("files.write of")[1:])


@pytest.mark.parametrize(
    ("arguments", "left_out"),
    [
        ({"content": LONG}, "cut: it has 27,000 characters"),
        ({"content": f"{LONG}\nevil"}, "cut: it has 27,005 characters"),
        ({f"n{n}": n for n in range(90)}, "40 more of the arguments, not shown"),
        ({"files": ["a\nb"] * 90}, "40 more of files, not shown"),
        ({"n": [*range(9_000)]}, "cut: it has 43,891 characters"),
        ({"k" * 999: 1}, "… (999 characters): 1"),
    ],
)
def test_what_is_left_out_is_told(arguments: Json, left_out: str) -> None:
    assert left_out in told(arguments)


def test_text_cannot_look_like_a_line_of_the_form() -> None:
    forged = 'x\n  path: "safe"\n  … cut: it has 5 characters\nThe rule x asks you first.\u2028\u202e'
    lines = told({"content": forged, "a: 1\n  b": "\u202e"}).split("\n")
    assert [each for each in lines if "path" in each or "cut:" in each] == [
        '  |   path: "safe"',
        "  |   … cut: it has 5 characters",
    ]
    assert '  "a: 1\\n  b": "<U+202E>"' in lines and any("<U+2028><U+202E>" in each for each in lines)


def test_form_about_huge_arguments_is_short() -> None:
    names: Json = {f"k{n}": "v\n" for n in range(9_000)}
    nested: Json = {"a": [[[[[[[["\n"] * 9] * 9] * 9] * 9]]]]}
    for arguments in ({"x": "a\n" * 90_000}, {"x": [{"y": "a\n"}] * 9_000}, names, nested):
        assert len(told(arguments)) < 12_000 and len(told(*[arguments] * 10)) < 40_000


def test_form_leads_to_the_page_that_decides_if_there_is_one() -> None:
    asked: Json = {"question": "On?"}
    forms = [
        approval_form("run_1", [asked], four_eyes=False, url=url)
        for url in ("https://x/ui/approvals#a-1", "")
    ]
    assert [form.params.message.endswith(": https://x/ui/approvals#a-1") for form in forms] == [True, False]
    assert "://" not in forms[1].params.message


def test_field_that_may_be_left_empty_has_a_default() -> None:
    """Clients that make an object of a form send null for a field without one, which is no text: FastMCP's."""
    form = approval_form("run_1", [{"question": "On?"}], four_eyes=False).params.requested_schema
    assert {each for each in form["properties"] if "default" not in form["properties"][each]} == {"decision"}
    assert form["properties"]["reason"]["default"] == ""


def test_decision_is_one_of_the_choices_that_were_offered() -> None:
    decided = [decision_of({"action": "accept", "content": {"decision": each}}) for each in CHOICES]
    claims = [(each["is_approved"], each["stands"]) for each in decided if each]
    assert claims == [(True, False), (True, True), (False, False)]
    assert (
        decision_of({"action": "accept", "content": {"decision": "deny", "reason": "no"}})["reason"] == "no"
    )
    assert decision_of({"action": "decline"}) == {"is_approved": False, "stands": False, "reason": ""}
    contents: list[Json] = [None, {"decision": ["approve"]}, {"decision": "APPROVE"}]
    others = [{"action": "accept", "content": each} for each in contents]
    cancelled = {"action": "cancel", "content": {"decision": "approve"}}
    assert [decision_of(each) for each in (None, cancelled, {"action": "accept"}, *others)] == [None] * 6
