"""A function in one line: in few tokens, and with every type that it names."""

import pytest

from manifests.json_value import Json
from portal.catalog.docs_search import function_lines
from tests.portal.library.sample_tools import an_object, arguments, function

TEXT: Json = {"type": "string"}
ISSUE = arguments(("id",), id={"type": "integer"}, labels={"type": "array", "items": TEXT})


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        (arguments(("title",), title=TEXT), "title: str"),
        (arguments(n={"type": "integer", "default": 7}), "n=7"),
        (arguments(s={"type": "string", "default": "a"}), "s='a'"),
        (arguments(s={"type": ["string", "null"], "default": None}), "s?: str"),
        (arguments(s=TEXT), "s?: str"),
        (arguments(s={"enum": ["a", "b"], "default": "a"}), "s: 'a'|'b' = 'a'"),
        (arguments(a={"type": "array", "default": []}), "a: list = []"),
        (arguments(), ""),
        (arguments(("title",), labels=TEXT, title=TEXT), "title: str, labels?: str"),
        (arguments(("issue",), issue=ISSUE), "issue: {id: int, labels?: list[str]}"),
        (arguments(**{"from": TEXT, "$meta": TEXT, "cik-A": TEXT}), "from_?: str, _meta?: str, cik_A?: str"),
        ({"type": "object"}, "**others"),
        ({"additionalProperties": {"type": "integer"}}, "**others"),
    ],
)
def test_what_is_plain_to_see_is_not_written(schema: Json, shown: str) -> None:
    assert function(schema).brief == f"tickets.create_issue({shown}) -> Any"


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (ISSUE, "{id: int, labels?: list[str]}"),
        ({"type": "object", "additionalProperties": {"type": ["integer", "null"]}}, "dict[str, int | None]"),
        (an_object(**{f"key_{number:02}": TEXT for number in range(20)}), "{key_00?, key_01?, "),
        (an_object(**{"a}) -> str  # →\nportal.evil(": TEXT}), "{'a}) -> str  # →\\nportal.evil('?: str}"),
        (an_object(a=an_object(b={"enum": [f"v{number}" for number in range(99)]})), "{a?}"),
        ({"$ref": "#/$defs/T", "$defs": {"T": an_object(t={"$ref": "#/$defs/T"})}}, "{t?: Any}"),
        ({"type": "string", "enum": ["x" * 199, "y" * 199, "z" * 199]}, "str"),
        ({"allOf": [ISSUE, arguments(("x",), x=TEXT)]}, "{x: str, id: int, labels?: list[str]}"),
    ],
)
def test_a_result_is_shown_in_place_and_a_long_one_by_its_keys(result: Json, shown: str) -> None:
    brief = function(arguments(), result).brief
    assert brief.startswith(f"tickets.create_issue() -> {shown}") and len(brief.splitlines()) == 1
    assert brief.count("key_") in (0, 10) and len(brief) < 500


def test_required_parameters_are_all_there_and_of_the_others_as_many_as_fit() -> None:
    required = tuple(f"a_rather_long_name_{number}" for number in range(12))
    many = {**dict.fromkeys(required, TEXT), **{f"optional_{number}": TEXT for number in range(30)}}
    brief = function(arguments(required, **many)).brief
    assert all(f"{name}: str" in brief for name in required)
    assert brief.endswith(", …) -> Any")


@pytest.mark.parametrize(
    ("description", "summary"),
    [
        ("Read a file as text. DEPRECATED: Use read_text_file.", "  # Read a file as text (deprecated)"),
        ("Deprecated, please use the other.", "  # Deprecated, please use the other"),
        ("Check if packages are deprecated", "  # Check if packages are deprecated"),
        ("Deprecated APIs of a package.", "  # Deprecated APIs of a package"),
    ],
)
def test_a_deprecated_tool_is_marked_and_one_about_deprecated_things_is_not(
    description: str, summary: str
) -> None:
    (line,) = function_lines([function(arguments(), description=description)], 0)
    assert line == f"tickets.create_issue() -> Any{summary}"
