"""A function in one line: Python, short, and honest about what is left out."""

import ast

import pytest

from manifests.json_value import Json
from portal.search.docs_search import brief_signature, stub_code
from tests.portal.library.sample_tools import arguments, function

TEXT: Json = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (arguments(("title",), title=TEXT), "async def create_issue(*, title: str)"),
        (arguments(n={"type": "integer", "default": 7}), "async def create_issue(*, n=7)"),
        (arguments(s={"type": "string", "default": "a"}), "async def create_issue(*, s='a')"),
        (
            arguments(s={"type": ["string", "null"], "default": None}),
            "async def create_issue(*, s: str = None)",
        ),
        (arguments(s=TEXT), "async def create_issue(*, s: str = ...)"),
        (
            arguments(s={"enum": ["a", "b"], "default": "a"}),
            "async def create_issue(*, s: Literal['a', 'b'] = 'a')",
        ),
        (arguments(), "async def create_issue()"),
        ({"type": "object", "additionalProperties": True}, "async def create_issue(**others)"),
    ],
)
def test_what_is_plain_to_see_is_not_written(schema: Json, expected: str) -> None:
    assert brief_signature(function(schema)) == (expected, False)
    ast.parse(f"{expected}: ...")


def test_required_parameters_are_all_there_and_of_the_others_as_many_as_fit() -> None:
    required = tuple(f"a_rather_long_name_{number}" for number in range(12))
    many = {**dict.fromkeys(required, TEXT), **{f"optional_{number}": TEXT for number in range(30)}}
    signature, is_cut = brief_signature(function(arguments(required, **many)))
    assert all(f"{name}: str" in signature for name in required)
    assert is_cut
    assert "more parameters" in "".join(stub_code([function(arguments(required, **many))], 0))
    ast.parse(f"{signature}: ...")
