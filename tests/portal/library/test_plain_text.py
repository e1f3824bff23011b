import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portal.base.plain_text import comment, docstring, first_sentence, readable
from tests.portal.library.sample_tools import HOSTILE_TEXT, arguments, function, library, stub, tool


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


def test_hostile_description_stays_in_its_docstring() -> None:
    compiled = library(tool("f", arguments(a={"description": HOSTILE_TEXT}), None, HOSTILE_TEXT), tool("g"))
    names = [
        getattr(node, "name", type(node).__name__) for node in ast.parse(compiled.module("tickets")).body
    ]
    assert names == ["Expr", "ImportFrom", "f", "g"]


def test_description_is_cut_at_a_word() -> None:
    assert readable("word " * 1_000, 1_500).endswith("word…")
    assert len(stub(function(description="word " * 1_000))) < 1_700


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
