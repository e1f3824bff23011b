import pytest

from manifests.json_value import Json
from tests.portal.library.sample_tools import arguments, function, library, stub, tool


def annotation(schema: Json, **definitions: Json) -> str:
    compiled = function({**arguments(("a",), a=schema), "$defs": definitions})
    return compiled.parameters[0].annotation


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, "str"),
        ({"type": "integer"}, "int"),
        ({"type": "number"}, "float"),
        ({"type": "boolean"}, "bool"),
        ({"type": "null"}, "None"),
        ({}, "Any"),
        (True, "Any"),
        ("string", "Any"),
        ({"type": "text"}, "Any"),
        ({"type": ["string", "null"]}, "str | None"),
        ({"type": ["null", "string", "integer"]}, "str | int | None"),
        ({"type": "string", "nullable": True}, "str | None"),
        ({"type": "array"}, "list[Any]"),
        ({"type": "array", "items": {"type": "string"}}, "list[str]"),
        ({"items": {"type": "string"}}, "list[str]"),
        ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]}, "list[str | int]"),
        (
            {"type": "array", "items": [{"type": "string"}], "additionalItems": {"type": "null"}},
            "list[str | None]",
        ),
        ({"type": "object"}, "dict[str, Any]"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "dict[str, int]"),
        ({"enum": ["open", "closed"]}, "Literal['open', 'closed']"),
        ({"type": "string", "enum": ["a", 1]}, "Literal['a']"),
        ({"enum": ["a", 1, True, None]}, "Literal['a', 1, True] | None"),
        ({"enum": [1.5, "a"]}, "Literal['a'] | float"),
        ({"enum": [{"a": 1}, ["b"]]}, "dict[str, Any] | list[Any]"),
        ({"const": "fixed"}, "Literal['fixed']"),
        ({"type": "string", "enum": ["a"], "nullable": True}, "Literal['a'] | None"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "str | None"),
        ({"oneOf": [{"type": "null"}, {"type": "array", "items": {"type": "string"}}]}, "list[str] | None"),
        ({"anyOf": [{"const": "a"}, {"const": "b"}, {"type": "integer"}]}, "Literal['a', 'b'] | int"),
        ({"type": "string", "anyOf": [{"format": "uri"}, {"maxLength": 3}]}, "str"),
        ({"anyOf": [{"type": "string"}, {}]}, "Any"),
        ({"allOf": [{"type": "string"}, {"maxLength": 3}]}, "str"),
        ({"allOf": [{"enum": ["a"]}, {"enum": ["b"]}]}, "Literal['a']"),
        ({"$ref": "#/$defs/Text"}, "str"),
        ({"allOf": [{"$ref": "#/$defs/Text"}], "description": "d"}, "str"),
        ({"$ref": "#/$defs/Point", "description": "d"}, "Point"),
        ({"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]}, "Point | None"),
        ({"allOf": [{"$ref": "#/$defs/Point"}], "title": "A"}, "Point"),
        ({"$ref": "#/$defs/Point", "description": "d", "nullable": True}, "Point | None"),
        ({"allOf": [{"$ref": "#/$defs/Point"}], "nullable": True}, "Point | None"),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}], "nullable": True}, "str | int | None"),
        ({"$ref": "#/$defs/Nowhere"}, "Any"),
        ({"$ref": "https://example.com/schema.json"}, "Any"),
        ({"$ref": "#"}, "CreateIssueA"),
    ],
)
def test_schema_becomes_annotation(schema: Json, expected: str) -> None:
    point = {"type": "object", "properties": {"x": {"type": "number"}}}
    assert annotation(schema, Text={"type": "string"}, Point=point) == expected


def test_object_becomes_typed_dict_named_after_its_property() -> None:
    label = {"type": "object", "properties": {"name": {"type": "string"}, "color": {"type": "string"}}}
    told = stub(function(arguments(labels={"type": "array", "items": {**label, "required": ["name"]}})))
    assert "class CreateIssueLabels(TypedDict):\n    name: str\n    color: NotRequired[str]\n" in told
    assert "labels: list[CreateIssueLabels] = ..." in told


def test_inner_type_of_a_recursive_schema_is_any() -> None:
    tree = {
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
    }
    told = stub(function({**arguments(tree={"$ref": "#/$defs/Tree"}), "$defs": {"Tree": tree}}))
    assert "class Tree(TypedDict, total=False):\n    children: list[Any]" in told


def test_merged_parts_become_one_typed_dict() -> None:
    base = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    more = {"type": "object", "properties": {"name": {"type": "string"}}}
    schema = {**arguments(a={"allOf": [{"$ref": "#/$defs/Base"}, more]}), "$defs": {"Base": base}}
    told = stub(function(schema))
    assert (
        "    id: int\n    name: NotRequired[str]\n" in told
        or "    name: NotRequired[str]\n    id: int\n" in told
    )


def test_object_that_says_it_is_open_takes_other_keys() -> None:
    schema = {"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "integer"}}
    assert "(TypedDict, total=False, extra_items=int)" in stub(function(arguments(a=schema)))


def test_result_type_comes_from_the_output_schema() -> None:
    issue = {
        "type": "object",
        "title": "Issue",
        "properties": {"id": {"type": "integer"}},
        "required": ["id"],
    }
    assert function(output_schema=issue).returns == "Issue"
    assert function().returns == "Any"


@pytest.mark.parametrize("mark", [{"x-fastmcp-wrap-result": True}, {"required": ["result"]}])
def test_wrapped_result_is_typed_without_its_wrapper(mark: dict[str, Json]) -> None:
    schema = {
        "type": "object",
        "properties": {"result": {"type": "array", "items": {"type": "string"}}},
        **mark,
    }
    assert function(output_schema=schema).returns == "list[str]"


def test_same_type_of_two_tools_is_there_once() -> None:
    issue = {"type": "object", "title": "Issue", "properties": {"id": {"type": "integer"}}}
    module = library(tool("get", output_schema=issue), tool("close", output_schema=issue)).module("tickets")
    assert module.count("class Issue") == 1


def test_type_is_never_called_like_a_function() -> None:
    issue = {"type": "object", "title": "Issue", "properties": {"id": {"type": "integer"}}}
    assert library(tool("Issue", output_schema=issue)).functions["tickets.Issue"].returns == "Issue2"
