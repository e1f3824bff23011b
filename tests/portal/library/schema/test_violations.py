"""The sound dialect's validator, held against the reference implementation."""

from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given

from manifests.json_value import Json
from portal.library.schema.sound_schema import sound_schema
from portal.library.schema.violations import violations
from tests.depth import depth
from tests.portal.library.schema.random_schemas import json_values, schemas

CONTRADICTIONS = ("is the type of none of the values", "names properties that are forbidden")


def is_refused(schema: Json, value: Json) -> bool:
    return bool(violations(sound_schema(schema), value))


def contradicts_itself(schema: Json) -> bool:
    """Whether nothing would fit some part of it, so that the part was ignored."""
    return any(words in note for note in sound_schema(schema).notes for words in CONTRADICTIONS)


@given(schemas(), json_values())
@depth(4)
def test_what_is_refused_breaks_the_schema_and_what_breaks_it_is_refused(schema: Json, value: Json) -> None:
    assume(not contradicts_itself(schema))
    expected = not jsonschema.Draft202012Validator(schema).is_valid(value)
    assert is_refused(schema, value) == expected


@given(schemas(with_negations=True), json_values())
@depth(4)
def test_reduction_only_ever_allows_more(schema: Json, value: Json) -> None:
    if is_refused(schema, value):
        assert not jsonschema.Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"type": "integer"}, [1, 1.0, 10**30], [1.5, True, "1"]),
        ({"type": "number"}, [1, 1.5], [True, None]),
        ({"const": 1}, [1, 1.0], [True, "1"]),
        ({"enum": [{"a": [1]}]}, [{"a": [1]}], [{"a": [True]}]),
        ({"minimum": 1, "exclusiveMaximum": 3}, [1, 2.9, "x"], [0, 3]),
        ({"minimum": 1, "exclusiveMinimum": True}, [2], [1]),
        ({"multipleOf": 0.01}, [19.99, 0], [0.001]),
        ({"multipleOf": 3}, [9, 3.0], [10]),
        ({"minLength": 1, "maxLength": 2}, ["a", "ab", 3], ["", "abc"]),
        ({"uniqueItems": True}, [[1, True], [[1], [2]]], [[1, 1.0], [{"a": 1}, {"a": 1}]]),
        ({"contains": {"const": 1}, "minContains": 2}, [[1, 1]], [[1, 2]]),
        ({"prefixItems": [{"const": 1}], "items": False}, [[], [1]], [[2], [1, 2]]),
        ({"dependentRequired": {"a": ["b"]}}, [{"b": 1}, {"a": 1, "b": 1}], [{"a": 1}]),
        ({"dependencies": {"a": ["b"]}}, [{"a": 1, "b": 1}], [{"a": 1}]),
        ({"dependentSchemas": {"a": {"maxProperties": 1}}}, [{"a": 1}], [{"a": 1, "b": 1}]),
        ({"propertyNames": {"maxLength": 1}}, [{"a": 1}], [{"ab": 1}]),
        (
            {"patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False},
            [{"a": 1}],
            [{"a": "x"}],
        ),
        ({"properties": {}, "unevaluatedProperties": False}, [{}], [{"a": 1}]),
        ({"type": "string", "nullable": True}, [None, "a"], [1]),
        (
            {
                "$ref": "#/$defs/Base",
                "properties": {"title": {"type": "string"}},
                "unevaluatedProperties": False,
                "$defs": {"Base": {"properties": {"id": {"type": "integer"}}}},
            },
            [{"id": 1, "title": "x"}],
            [{"id": "x"}, {"title": 1}],
        ),
        (
            {"dependencies": {"a": {"properties": {"b": {}}}}, "unevaluatedProperties": False},
            [{"a": 1, "b": 1}],
            [],
        ),
        (
            {
                "properties": {
                    "one": {"$ref": "#/$defs/N", "nullable": True},
                    "all": {"allOf": [{"$ref": "#/$defs/N"}], "nullable": True},
                    "any": {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "integer"}], "nullable": True},
                    "not": {"allOf": [{"$ref": "#/$defs/N"}], "nullable": False},
                },
                "$defs": {"N": {"type": "string"}},
            },
            [{"one": None, "all": None, "any": None}, {"one": "x", "all": "x", "any": 1, "not": "x"}],
            [{"one": 1}, {"all": 1}, {"any": 1.5}, {"not": None}],
        ),
        ({"$defs": {"N": {"$anchor": "name", "type": "string"}}, "$ref": "#name"}, ["a"], [1]),
        (
            {
                "$id": "urn:x",
                "properties": {"a": {"$ref": "urn:x#/$defs/N"}},
                "$defs": {"N": {"type": "string"}},
            },
            [{"a": ""}],
            [{"a": 1}],
        ),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "$ref": "#/definitions/N",
                "maxLength": 1,
                "definitions": {"N": {"type": "string"}},
            },
            ["ab"],
            [1],
        ),
        (False, [], [None, 1]),
    ],
)
def test_keyword_accepts_and_refuses(schema: Json, right: list[Any], wrong: list[Any]) -> None:
    assert [value for value in right if is_refused(schema, value)] == []
    assert [value for value in wrong if not is_refused(schema, value)] == []


def test_nearest_alternative_tells_what_is_wrong() -> None:
    file = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    schema = sound_schema({"anyOf": [{"type": "null"}, file]})
    [found] = violations(schema, {"path": 3})
    assert (found.path, found.message) == (("path",), "is 3, not a str")
    [found] = violations(schema, "x")
    assert found.message == "is 'x', which fits none of: None, an object with 'path'"
