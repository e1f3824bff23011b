"""References within one schema, also where parts of it are resources of their own."""

from typing import Any

import pytest
from jsonschema.validators import validator_for

from manifests.json_value import Json
from portal.library.schema.references import SchemaDocument
from portal.library.schema.sound_schema import sound_schema
from portal.library.schema.violations import violations

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
INNER = {"$id": "https://x.test/inner", "$defs": {"N": TEXT}, "properties": {"a": {"$ref": "#/$defs/N"}}}
DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"


def is_refused(schema: Json, value: Json) -> bool:
    return bool(violations(sound_schema(schema), value))


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        # A resource's own definitions are meant within it, those of the root around it.
        (
            {"$defs": {"N": NUMBER}, "properties": {"in": INNER, "out": {"$ref": "#/$defs/N"}}},
            {"in": {"a": "x"}, "out": 1},
            [{"in": {"a": 1}}, {"out": "x"}],
        ),
        (
            {"$defs": {"N": NUMBER, "in": INNER}, "$ref": "https://x.test/inner"},
            {"a": "x"},
            [{"a": 1}],
        ),
        (
            {"$defs": {"N": NUMBER, "in": INNER}, "properties": {"b": {"$ref": "#/$defs/in/properties/a"}}},
            {"b": "x"},
            [{"b": 1}],
        ),
        (
            {"$defs": {"N": NUMBER, "in": INNER}, "$ref": "https://x.test/inner#/properties/a"},
            "x",
            [1],
        ),
        # Relative addresses.
        (
            {
                "$id": "https://x.test/a/root",
                "$defs": {"i": {"$id": "b/inner", "$defs": {"N": TEXT}, "items": {"$ref": "#/$defs/N"}}},
                "properties": {"one": {"$ref": "b/inner"}, "two": {"$ref": "/a/b/inner#/$defs/N"}},
            },
            {"one": ["x"], "two": "x"},
            [{"one": [1]}, {"two": 1}],
        ),
        # A reference beside its own `$id` starts from that.
        (
            {"$defs": {"N": NUMBER}, "properties": {"a": {"$id": "i", "$ref": "#/$defs/N", "$defs": {"N": TEXT}}}},
            {"a": "x"},
            [{"a": 1}],
        ),
        # Anchors belong to their resource.
        (
            {
                "$defs": {"n": {"$anchor": "N", **NUMBER}},
                "properties": {
                    "in": {"$id": "i", "$defs": {"n": {"$anchor": "N", **TEXT}}, "items": {"$ref": "#N"}},
                    "out": {"$ref": "#N"},
                },
            },
            {"in": ["x"], "out": 1},
            [{"in": [1]}, {"out": "x"}],
        ),
        # A recursive resource within a recursive root.
        (
            {
                "properties": {
                    "in": {"$id": "i", "properties": {"next": {"$ref": "#"}, "n": TEXT}},
                    "n": NUMBER,
                    "next": {"$ref": "#"},
                },
            },
            {"n": 1, "next": {"n": 2}, "in": {"n": "x", "next": {"n": "y"}}},
            [{"in": {"next": {"n": 1}}}, {"next": {"n": "x"}}],
        ),
        # Older drafts: `id`, a name that is only an anchor, and no name beside a reference.
        (
            {
                "$schema": DRAFT_4,
                "definitions": {"N": NUMBER},
                "properties": {
                    "in": {"id": "http://x.test/i", "definitions": {"N": TEXT}, "items": {"$ref": "#/definitions/N"}}
                },
            },
            {"in": ["x"]},
            [{"in": [1]}],
        ),
        (
            {
                "$schema": DRAFT_7,
                "definitions": {"n": {"$id": "#N", **NUMBER}},
                "properties": {"a": {"$id": "#/properties/a", "allOf": [{"$ref": "#N"}]}},
            },
            {"a": 1},
            [{"a": "x"}],
        ),
        (
            {
                "$schema": DRAFT_7,
                "definitions": {"N": NUMBER},
                "properties": {"a": {"$id": "i", "$ref": "#/definitions/N", "definitions": {"N": TEXT}}},
            },
            {"a": 1},
            [{"a": "x"}],
        ),
        # A dynamic reference to what is there once.
        (
            {"$defs": {"n": {"$dynamicAnchor": "N", **TEXT}}, "items": {"$dynamicRef": "#N"}},
            ["x"],
            [[1]],
        ),
        (
            {
                "$schema": DRAFT_2019,
                "$recursiveAnchor": True,
                "properties": {"n": NUMBER, "next": {"$recursiveRef": "#"}},
            },
            {"next": {"n": 1}},
            [{"next": {"n": "x"}}],
        ),
    ],
)  # fmt: skip
def test_reference_leads_where_the_specification_says(schema: Json, right: Json, wrong: list[Any]) -> None:
    validator = validator_for(schema)(schema)
    assert validator.is_valid(right)
    assert [value for value in wrong if validator.is_valid(value)] == []
    assert not is_refused(schema, right)
    assert [value for value in wrong if not is_refused(schema, value)] == []


@pytest.mark.parametrize(
    "schema",
    [
        # The outermost of several schemas of one dynamic name is meant, and that depends on who led here.
        {
            "$id": "https://x.test/texts",
            "$ref": "list",
            "$defs": {
                "a": {"$defs": {"b": {"$defs": {"c": {"$dynamicAnchor": "T", **TEXT}}}}},
                "list": {
                    "$id": "list",
                    "items": {"$dynamicRef": "#T"},
                    "$defs": {"any": {"$dynamicAnchor": "T", **NUMBER}},
                },
            },
        },
        {
            "$schema": DRAFT_2019,
            "$id": "https://x.test/texts",
            "$recursiveAnchor": True,
            "anyOf": [TEXT, {"$ref": "i"}],
            "$defs": {
                "i": {"$id": "i", "$recursiveAnchor": True, "type": "array", "items": {"$recursiveRef": "#"}}
            },
        },
    ],
)
def test_reference_that_may_lead_to_several_places_refuses_nothing(schema: Json) -> None:
    assert validator_for(schema)(schema).is_valid(["x"])
    assert not is_refused(schema, ["x"])


@pytest.mark.parametrize("name", [1, "", "#", "https://[", "a" * 100_000, "\ud800", "//", "\x00"])
def test_strange_name_of_a_resource_does_no_harm(name: Json) -> None:
    schema = {"properties": {"a": {"$id": name, "$defs": {"N": TEXT}, "items": {"$ref": "#/$defs/N"}}}}
    assert not is_refused(schema, {"a": ["x"]})
    assert not is_refused({"$id": name, **schema}, {"a": ["x"]})


def test_address_never_grows_without_end() -> None:
    document = SchemaDocument({"$id": "https://x.test/" + "a" * 10_000})
    assert (
        len(document.base_within({"$id": "b" * 10_000}, document.base_within({"$id": "c" * 10_000}, "")))
        < 3_000
    )
