import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portal.library.plain_text import comment, docstring, first_sentence, one_line, readable
from tests.portal.library.nasty_tools import HOSTILE_TEXT
from tests.portal.library.sample_tools import arguments, function, library, tool

HIDDEN = "\x00\x1b\u202e\u2066\u200b\u200d\ufeff\u00ad\U000e0041\ufe0f\u3164"


@given(st.text(max_size=300))
def test_docstring_holds_its_text_and_nothing_behind_it(text: str) -> None:
    plain = readable(text, 200)
    source = docstring(plain)
    assert len(ast.parse(source).body) == 1
    assert ast.literal_eval(source).rstrip("\n") == plain


@given(st.text(alphabet="\"\\\n a'#", max_size=60))
def test_quotes_and_backslashes_never_end_a_docstring(text: str) -> None:
    plain = readable(text, 100)
    module = ast.parse(f"async def f() -> int:\n{docstring(plain, '    ') if plain else '    ...'}\nx = 1\n")
    assert [type(node) for node in module.body] == [ast.AsyncFunctionDef, ast.Assign]


@given(st.text(max_size=200))
def test_comment_is_one_line_and_no_instruction(text: str) -> None:
    line = comment(text)
    assert len(ast.parse(f"x = 1{line}\n", type_comments=True).body) == 1
    assert "type: ignore" not in line


@pytest.mark.parametrize(
    "text", ["type: ignore", "x # type: ignore", "# ty: ignore[foo]", "a #noqa : b", "type:int"]
)
def test_comment_looks_like_no_pragma(text: str) -> None:
    line = comment(text)
    assert not any(mark in line for mark in ("type:", "ty:", "noqa:", "noqa :"))


def test_hidden_characters_are_removed_everywhere() -> None:
    text = f"Vis{HIDDEN}ible"
    schema = arguments(**{text: {"description": text, "title": text, "default": text, "enum": [text]}})
    compiled = library(tool(text, schema, schema, text))
    function_ = next(iter(compiled.functions.values()))
    for shown in (function_.stub, function_.signature, function_.summary, compiled.module("tickets")):
        assert not set(HIDDEN) & set(shown)
    assert "Visible" in function_.stub


def test_hostile_description_stays_in_its_docstring() -> None:
    compiled = library(tool("f", arguments(a={"description": HOSTILE_TEXT}), None, HOSTILE_TEXT), tool("g"))
    names = [
        getattr(node, "name", type(node).__name__) for node in ast.parse(compiled.module("tickets")).body
    ]
    assert names == ["Expr", "ImportFrom", "f", "g"]


def test_description_is_cut_at_a_word() -> None:
    assert readable("word " * 1_000, 1_500).endswith("word…")
    assert len(function(description="word " * 1_000).stub) < 1_700


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Create an issue. Then more.", "Create an issue."),
        ("Create an issue, e.g. a bug. More.", "Create an issue, e.g. a bug."),
        ("## Create\nan issue\n\nMore", "Create an issue"),
        ("\n\n---\n\nCreate it", "Create it"),
        ("创建问题。更多", "创建问题。"),
        ("", ""),
    ],
)
def test_summary_is_the_first_sentence(text: str, expected: str) -> None:
    assert first_sentence(text, 120) == expected


@given(st.text(max_size=500), st.integers(10, 100))
def test_cut_text_is_never_longer_than_asked(text: str, longest: int) -> None:
    assert len(one_line(text, longest)) <= longest
    assert len(first_sentence(text, longest)) <= longest
