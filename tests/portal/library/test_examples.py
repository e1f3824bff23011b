"""Examples of a tool's author, kept where they help: whole calls, and values."""

import ast

import pytest

from manifests.json_value import Json
from portal.library.examples import LONGEST_EXAMPLE
from tests.portal.library.nasty_tools import HOSTILE_TEXT
from tests.portal.library.sample_tools import arguments, library, tool
from upstreams.recorded_tool import RecordedTool

TEXT = {"type": "string"}
SCHEMA = arguments(("title",), title=TEXT, **{"from": TEXT, "labels": {"type": "array", "items": TEXT}})
CALL = "Example: create_issue(title='Crash', from_='me', labels=['bug'])"
GIVEN = {"title": "Crash", "from": "me", "labels": ["bug"]}


def told(schema: Json, *examples: Json) -> str:
    """The function's docstring in its module."""
    sent = RecordedTool("create_issue", "Creates.", schema, None, {}, None, examples)
    tree = ast.parse(library(sent).module("tickets")).body[-1]
    assert isinstance(tree, ast.AsyncFunctionDef)
    return ast.get_docstring(tree) or ""


@pytest.mark.parametrize(
    "sent",
    [
        lambda: told(SCHEMA, GIVEN),
        lambda: told(SCHEMA, {"arguments": GIVEN, "description": "A crash."}),
        lambda: told(SCHEMA, {"title": 3}, {"titel": "x"}, "create_issue()", GIVEN),
        lambda: told({**SCHEMA, "examples": [GIVEN]}),
        lambda: told({**SCHEMA, "x-examples": [{"value": GIVEN}]}),
        lambda: told({**SCHEMA, "example": GIVEN}),
    ],
)
def test_an_example_that_fits_is_shown_as_a_call(sent: object) -> None:
    assert callable(sent)
    assert sent().endswith(CALL)


@pytest.mark.parametrize(
    "example",
    [{"title": 3}, {}, {"title": "x" * LONGEST_EXAMPLE}, "text", [GIVEN], {"arguments": "x"}, None, 3],
)
def test_an_example_that_teaches_nothing_right_is_left_out(example: Json) -> None:
    assert told(SCHEMA, example) == "Creates."


def test_text_of_an_example_stays_text() -> None:
    text = HOSTILE_TEXT[:100]
    shown = told(SCHEMA, {"title": text})
    assert "\u202e" not in shown
    call = ast.parse(shown.partition("Example: ")[2], mode="eval").body
    assert isinstance(call, ast.Call)
    assert ast.literal_eval(call.keywords[0].value) == text


def test_examples_of_values_stand_with_their_parameters() -> None:
    schema = arguments(
        a={"type": "string", "examples": ["en", "de"]},
        b={"type": "integer", "example": 7},
        c={"type": "string", "x-example": "x"},
        d={"prefixItems": [{"type": "number", "title": "Latitude"}, {"type": "number"}, True]},
    )
    shown = told(schema)
    for words in (
        "a: e.g. 'en'",
        "b: e.g. 7",
        "c: e.g. 'x'",
        "d: in this order: Latitude (a number), a number, anything",
    ):
        assert words in shown


def test_an_example_changes_the_definition() -> None:
    plain = tool("create_issue", SCHEMA)
    assert plain.digest != RecordedTool("create_issue", "", SCHEMA, None, {}, None, (GIVEN,)).digest
