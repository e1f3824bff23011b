"""Schemas become annotations in modules, and the lean form that models read."""

import pytest

from manifests.json_value import Json
from tests.portal.library.sample_tools import an_object, arguments, function, library, stub, tool

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
        ({"type": "text"}, "Any"),
        ({"type": ["null", "string", "integer"]}, "str | int | None"),
        ({"type": "string", "nullable": True}, "str | None"),
        ({"items": {"type": "string"}}, "list[str]"),
        (
            {"type": "array", "items": [{"type": "string"}], "additionalItems": {"type": "null"}},
            "list[str | None]",
        ),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "dict[str, int]"),
        (
            {"type": "object", "propertyNames": {}, "additionalProperties": {"type": "integer"}},
            "dict[str, int]",
        ),
        ({"type": "object", "propertyNames": {}, "additionalProperties": False}, "dict[str, Any]"),
        ({"type": "string", "enum": ["a", 1]}, "Literal['a']"),
        ({"enum": ["a", 1, True, None]}, "Literal['a', 1, True] | None"),
        ({"enum": [{"a": 1}, ["b"]]}, "dict[str, Any] | list[Any]"),
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
    assert function(output_schema={**ISSUE, "required": ["id"]}).returns.annotation == "Issue"
    assert function().returns.annotation == "Any"


@pytest.mark.parametrize("mark", [{"x-fastmcp-wrap-result": True}, {"required": ["result"]}])
def test_wrapped_result_is_typed_without_its_wrapper(mark: dict[str, Json]) -> None:
    schema = an_object(result={"type": "array", "items": {"type": "string"}})
    assert function(output_schema={**schema, **mark}).returns.annotation == "list[str]"


@pytest.mark.parametrize("more", [{"nullable": True}, {"$ref": "#/$defs/A"}, {"enum": [1]}])
def test_wrapper_that_says_more_may_have_anything(more: dict[str, Json]) -> None:
    schema = {**an_object(result={"type": "string"}), "required": ["result"], **more}
    assert function(output_schema=schema).returns.annotation == "Any"


def test_type_is_never_called_like_a_function() -> None:
    found = library(tool("Issue", output_schema=ISSUE)).functions["tickets.Issue"]
    assert found.returns.annotation == "Issue2"


NOTED = {"type": "string", "description": "Why."}


def test_comments_and_long_objects_are_told_once_in_an_answer() -> None:
    box = {**an_object(a=NOTED), "title": "Box"}
    long = an_object(**{f"a_long_key_{n}": an_object(n={"type": "integer"}) for n in range(12)})
    shelf = an_object(boxes={"items": box}, left=long)
    compiled, told = (
        library(tool("one", arguments(first=box, long=long)), tool("two", arguments(), shelf)),
        set[str](),
    )
    first, second = (each.full(told) for each in compiled.functions.values())
    assert "    first?: {\n        a?: str,  # Why.\n    },\n" in first
    assert "        a_long_key_11?: {n?: int},\n" in first
    assert "    boxes?: list[{a?: str}],\n    left?: {a_long_key_0?, " in second


@pytest.mark.parametrize(
    "key", ["from", "a b", "x" * 200, "Literal[x]", "Literal[", "']\"", "{", "CreateIssueA"]
)
def test_any_key_and_any_literal_can_be_shown(key: str) -> None:
    inner = an_object(**{key: {"enum": [key, "other"]}})
    told = stub(function(arguments(a=inner, b={"enum": [key]}, c=an_object(inner=inner)), inner))
    assert told.count(repr(key)) >= 4 or len(key) > 60 or key.isidentifier()


def test_types_that_need_themselves_or_double_each_level_end_small() -> None:
    tree = an_object(left={"$ref": "#/$defs/Tree"}, right={"$ref": "#/$defs/Tree"})
    told = stub(function({**arguments(tree={"$ref": "#/$defs/Tree"}), "$defs": {"Tree": tree}}))
    assert told == "tickets.create_issue(tree?: {left?: Any, right?: Any}) -> Any"
    levels = {
        f"L{n}": an_object(a={"$ref": f"#/$defs/L{n + 1}"}, b={"$ref": f"#/$defs/L{n + 1}"})
        for n in range(500)
    }
    told = stub(function({**arguments(a={"$ref": "#/$defs/L0"}), "$defs": levels}))
    assert len(told) < 100_000


def test_hints_follow_the_description_of_a_parameter() -> None:
    schema = arguments(
        due={"type": "string", "format": "date-time", "description": "When."},
        count={"type": "integer", "minimum": 1, "maximum": 100},
        tags={"type": "array", "maxItems": 5, "description": "Tags.", "deprecated": True},
    )
    module = library(tool(input_schema=schema)).module("tickets")
    assert "Args:\n        due: When. (date-time)\n" in module
    assert "count: 1 to 100\n" in module
    assert "tags: Tags. (deprecated; <= 5 items)\n" in module
    assert stub(function(schema)) == (
        "tickets.create_issue(\n"
        "    due?: str,  # When. (date-time)\n"
        "    count?: int,  # 1 to 100\n"
        "    tags?: list,  # Tags. (deprecated; <= 5 items)\n"
        ") -> Any"
    )


@pytest.mark.parametrize(
    ("alternatives", "is_open"),
    [
        ([{"properties": {"b": {}}}, {"$ref": "#/$defs/C"}], True),
        ([{"required": ["a"]}, {"required": ["b"]}], False),
    ],
)
def test_object_whose_alternatives_have_more_keys_takes_any(alternatives: Json, is_open: bool) -> None:
    own = {"type": "object", "properties": {"a": {"type": "string"}}}
    for schema in ({**own, "oneOf": alternatives}, {"allOf": [own, {"oneOf": alternatives}]}):
        stub = module({**arguments(x=schema), "$defs": {"C": {"properties": {"c": {}}}}})
        assert ("extra_items=Any" in stub) == is_open
