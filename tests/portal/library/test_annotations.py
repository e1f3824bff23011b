import pytest

from manifests.json_value import Json
from tests.portal.library.sample_tools import an_object, arguments, function, library, tool

ISSUE = {**an_object(id={"type": "integer"}), "title": "Issue"}


def annotation(schema: Json, **definitions: Json) -> str:
    compiled = function({**arguments(("a",), a=schema), "$defs": definitions})
    return compiled.parameters[0].annotation


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, "str"),
        ({"type": "integer"}, "int"),
        ({"type": "null"}, "None"),
        ({}, "Any"),
        ("string", "Any"),
        ({"type": "text"}, "Any"),
        ({"type": ["null", "string", "integer"]}, "str | int | None"),
        ({"type": "string", "nullable": True}, "str | None"),
        ({"items": {"type": "string"}}, "list[str]"),
        ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]}, "list[str | int]"),
        (
            {"type": "array", "items": [{"type": "string"}], "additionalItems": {"type": "null"}},
            "list[str | None]",
        ),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "dict[str, int]"),
        ({"type": "string", "enum": ["a", 1]}, "Literal['a']"),
        ({"enum": ["a", 1, True, None]}, "Literal['a', 1, True] | None"),
        ({"enum": [1.5, "a"]}, "Literal['a'] | float"),
        ({"enum": [{"a": 1}, ["b"]]}, "dict[str, Any] | list[Any]"),
        ({"const": "fixed"}, "Literal['fixed']"),
        ({"type": "string", "enum": ["a"], "nullable": True}, "Literal['a'] | None"),
        ({"oneOf": [{"type": "null"}, {"type": "array", "items": {"type": "string"}}]}, "list[str] | None"),
        ({"anyOf": [{"const": "a"}, {"const": "b"}, {"type": "integer"}]}, "Literal['a', 'b'] | int"),
        ({"anyOf": [{"type": "string"}, {}]}, "Any"),
        ({"allOf": [{"type": "string"}, {"maxLength": 3}]}, "str"),
        ({"allOf": [{"enum": ["a"]}, {"enum": ["b"]}]}, "Literal['a']"),
        ({"allOf": [{"$ref": "#/$defs/Text"}], "description": "d"}, "str"),
        ({"$ref": "#/$defs/Point", "description": "d"}, "Point"),
        ({"allOf": [{"$ref": "#/$defs/Point"}], "title": "A"}, "Point"),
        ({"$ref": "#/$defs/Point", "description": "d", "nullable": True}, "Point | None"),
        ({"$ref": "#/$defs/Nowhere"}, "Any"),
        ({"$ref": "https://example.com/schema.json"}, "Any"),
        ({"$ref": "#"}, "CreateIssueA"),
    ],
)
def test_schema_becomes_annotation(schema: Json, expected: str) -> None:
    assert annotation(schema, Text={"type": "string"}, Point=an_object(x={"type": "number"})) == expected


def module(input_schema: Json) -> str:
    return library(tool(input_schema=input_schema)).module("tickets")


def test_object_becomes_typed_dict_named_after_its_property() -> None:
    label = an_object(name={"type": "string"}, color={"type": "string"})
    told = module(arguments(labels={"type": "array", "items": {**label, "required": ["name"]}}))
    assert "class CreateIssueLabels(TypedDict):\n    name: str\n    color: NotRequired[str]\n" in told
    assert "labels: list[CreateIssueLabels] | None = ..." in told


def test_inner_type_of_a_recursive_schema_is_any_unless_it_is_a_definition_of_its_own() -> None:
    tree = an_object(children={"type": "array", "items": {"$ref": "#/$defs/Tree"}})
    told = module({**arguments(tree={"$ref": "#/$defs/Tree"}), "$defs": {"Tree": tree}})
    assert "class Tree(TypedDict, total=False):\n    children: list[Tree]" in told
    told = module(arguments(tree=an_object(children={"items": {"$ref": "#/properties/tree"}})))
    assert "    children: list[CreateIssueTreeChildren]" in told
    assert told.count("children: list[Any]") == 1


def test_merged_parts_become_one_typed_dict() -> None:
    base = {**an_object(id={"type": "integer"}), "required": ["id"]}
    more = an_object(name={"type": "string"})
    told = module({**arguments(a={"allOf": [{"$ref": "#/$defs/Base"}, more]}), "$defs": {"Base": base}})
    members = ("    id: int\n", "    name: NotRequired[str]\n")
    assert "".join(members) in told or "".join(reversed(members)) in told


def test_object_that_says_it_is_open_takes_other_keys() -> None:
    schema = {**an_object(a={}), "additionalProperties": {"type": "integer"}}
    assert "(TypedDict, total=False, extra_items=int)" in module(arguments(a=schema))


def test_result_type_comes_from_the_output_schema() -> None:
    assert function(output_schema={**ISSUE, "required": ["id"]}).returns == "Issue"
    assert function().returns == "Any"


@pytest.mark.parametrize("mark", [{"x-fastmcp-wrap-result": True}, {"required": ["result"]}])
def test_wrapped_result_is_typed_without_its_wrapper(mark: dict[str, Json]) -> None:
    schema = an_object(result={"type": "array", "items": {"type": "string"}})
    assert function(output_schema={**schema, **mark}).returns == "list[str]"


def test_type_is_never_called_like_a_function() -> None:
    assert library(tool("Issue", output_schema=ISSUE)).functions["tickets.Issue"].returns == "Issue2"
