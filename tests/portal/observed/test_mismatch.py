"""Mismatches: where a result is not as declared, in words of the schema alone."""

import pytest

from manifests.json_value import Json
from portal.observed.mismatch import mismatch
from tests.portal.library.sample_tools import function

INTEGER: Json = {"type": "integer"}
PERSON: Json = {"type": "object", "properties": {"age": INTEGER}}


def told(properties: Json, value: Json, **words: Json) -> str:
    return mismatch(function(None, {"type": "object", "properties": properties, **words}), value)


def test_keys_that_the_schema_names_are_told() -> None:
    whole = {"people": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/P"}}, {"type": "null"}]}}
    found = told(whole, {"people": [{"age": "x"}]}, **{"$defs": {"P": PERSON}})
    assert found.startswith("['people'][]['age'] is a str")
    inner = told({"one": {"$ref": "#/$defs/P"}}, {"one": {"age": "x"}}, **{"$defs": {"P": PERSON}})
    assert inner.startswith("['one']['age'] is a str")
    pair = told({"pair": {"prefixItems": [PERSON]}}, {"pair": [{"age": "x"}]})
    assert pair.startswith("['pair'][]['age'] is a str")


@pytest.mark.parametrize(
    "words",
    [
        {"additionalProperties": INTEGER},
        {"patternProperties": {"^a": INTEGER}, "additionalProperties": False},
        {"allOf": [{"additionalProperties": INTEGER}]},
    ],
)
def test_keys_that_are_data_are_not_told(words: dict[str, Json]) -> None:
    assert told({}, {"alice": "x"}, **words).startswith("[...] is a str")


def test_what_is_declared_below_keys_that_are_data_is_told() -> None:
    found = told({}, {"alice": {"age": "x"}}, additionalProperties=PERSON)
    assert found.startswith("[...]['age'] is a str")
