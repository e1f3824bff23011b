"""Schemas of strangers: what the reduced one refuses the original refuses, and none costs more than it may."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from manifests.json_value import UNKNOWN, Json, SchemaValidator
from portal.library.arguments import ArgumentError, bind
from portal.library.function import Function, declared_result
from portal.library.schema import sound_schema
from tests.depth import depth
from tests.portal.library.random_schemas import json_values, schemas
from tests.portal.library.sample_tools import HOSTILE_TEXT, an_object, arguments, function, library, tool

TEXT = {"type": "string"}
LONGEST_MODULE = 200_000


def is_refused(schema: Json, value: Json, max_steps: int = 20_000) -> bool:
    return bool(SchemaValidator(sound_schema(schema)).validate(value, max_steps).errors)


@given(schemas(with_negations=True), json_values())
@depth(4)
def test_what_is_refused_breaks_the_schema(schema: Json, value: Json) -> None:
    assert not (is_refused(schema, value) and Draft202012Validator(schema).is_valid(value))


@given(schemas(with_negations=True), json_values())
@depth(4)
def test_what_fits_without_a_step_fits_with_them(schema: Json, value: Json) -> None:
    root = sound_schema(schema)
    at_once = SchemaValidator(root).validate(value, max_steps=0)
    if at_once.is_complete and not at_once.errors:
        assert not SchemaValidator({"allOf": [root]}).validate(value, 20_000).errors


def test_plain_arguments_fit_without_a_step_and_wrong_ones_do_not() -> None:
    schema = {**arguments(("a",), a=TEXT, b={"type": "number"}), "additionalProperties": False}
    right = [{"a": "x"}, {"a": "x", "b": 1.5}]
    wrong = [{}, {"a": 1}, {"a": None}, {"a": "x", "b": True}, {"a": "x", "c": 1}, []]
    validate = SchemaValidator(sound_schema(schema)).validate
    assert [validate(each, 0).is_complete for each in right + wrong] == [True] * 2 + [False] * 6


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"$ref": "#/$defs/N", "$defs": {"N": TEXT}}, "x", 1),
        ({"items": {"$ref": "#/$defs/a%25b~1c"}, "$defs": {"a%b/c": TEXT}}, ["x"], [1]),
        ({"prefixItems": [TEXT, {"$ref": "#/prefixItems/0"}]}, ["x", "y"], ["x", 1]),
        (
            {"properties": {"next": {"$ref": "#"}}, "required": ["n"]},
            {"n": 1, "next": {"n": 2}},
            {"n": 1, "next": {}},
        ),
        ({"type": "integer", "nullable": True}, None, "x"),
        ({"maximum": 3, "exclusiveMaximum": True}, 2, 3),
        ({"items": [TEXT], "additionalItems": {"type": "null"}}, ["x", None], ["x", "y"]),
    ],
)
def test_keyword_accepts_and_refuses(schema: Json, right: Json, wrong: Json) -> None:
    assert not is_refused(schema, right)
    assert is_refused(schema, wrong)


REFERENCES = [
    "http://127.0.0.1:9/x",
    "file:///etc/passwd",
    "#anchor",
    "#/nowhere",
    "#/$defs/I",
    "a" * 100_000,
    "\ud800",
    3,
]


@pytest.mark.parametrize("reference", REFERENCES, ids=range(len(REFERENCES)))
def test_reference_that_is_not_followed_allows_anything(reference: Json) -> None:
    inner = {"$id": "https://x.test/i", "properties": {"x": {"$ref": "#/$defs/I"}}}
    schema = sound_schema(
        {"properties": {"a": {"$ref": reference}}, "$defs": {"I": inner, "T": {"$anchor": "anchor"}}}
    )
    assert not SchemaValidator(schema).validate({"a": {"x": 1}}, 100).errors


def test_unknown_value_breaks_nothing_and_hides_nothing_else() -> None:
    schema = arguments(
        ("a", "b"), a={"enum": [1]}, b={"type": "array", "items": {"type": "integer", "minimum": 3}}
    )
    assert not is_refused(schema, {"a": UNKNOWN, "b": UNKNOWN})
    assert not is_refused(schema, {"a": 1, "b": [UNKNOWN, 4]})
    assert is_refused(schema, {"a": UNKNOWN, "b": [UNKNOWN, 2]})


def bomb(word: str, levels: int = 40) -> Json:
    """Definitions that each mention the next one twice: 2**levels ways through them."""
    steps = {f"d{n}": {word: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {**an_object(a={"$ref": "#/$defs/d0"}), "$defs": {**steps, f"d{levels}": an_object(x=TEXT)}}


HOSTILE: dict[str, Callable[[], tuple[Json, Json]]] = {
    "20,000 properties within one": lambda: (
        an_object(a=an_object(**{f"p{n}": TEXT for n in range(20_000)})),
        {"a": {"p1": 1}},
    ),
    "10 MB of hidden text": lambda: (
        an_object(a={"type": "string", "description": "x\u200b" * 5_000_000}),
        {"a": 1},
    ),
    "1 MB of values": lambda: (an_object(a={"enum": [f"v{number}" for number in range(100_000)]}), {"b": 1}),
    "50,000 required": lambda: (
        an_object(a={"required": [f"r{n}" for n in range(50_000)], **an_object()}),
        {"a": {}},
    ),
    "allOf bomb": lambda: (bomb("allOf"), {"b": 1}),
    "oneOf bomb": lambda: (bomb("oneOf"), {"b": 1}),
    "20,000 parts": lambda: ({"allOf": [an_object(**{f"p{n}": TEXT}) for n in range(20_000)]}, {"p1": 1}),
    "regular expression": lambda: (
        an_object(a={"type": "string", "pattern": "(a+)+$"}, b={"patternProperties": {"(a|a)*$": TEXT}}),
        {"a": "a" * 100_000 + "!", "b": {"a" * 50 + "!": 1}, "c": 1},
    ),
    "circle": lambda: (
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        None,
    ),
}


@pytest.mark.parametrize("made", HOSTILE.values(), ids=HOSTILE)
def test_hostile_schema_ends_small_and_leaves_its_neighbour_alone(
    made: Callable[[], tuple[Json, Json]],
) -> None:
    schema, wrong = made()
    compiled = library(
        tool("hostile", schema, schema), tool("whole", arguments(("id",), id=TEXT), an_object(id=TEXT))
    )
    assert len(compiled.module("tickets")) < LONGEST_MODULE
    assert compiled.functions["tickets.whole"].brief == "tickets.whole(id: str) -> {id?: str}"
    if wrong is not None:
        with pytest.raises(ArgumentError) as refusal:
            bind(compiled.functions["tickets.hostile"], wrong)
        assert len(str(refusal.value)) <= 2_000


def test_tool_whose_schema_nobody_thought_of_takes_anything_and_leaves_its_neighbours_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unthought_of(schema: Any, *rest: Any) -> Any:
        return declared_result(schema, *rest) if "odd" not in schema else schema["properties"]

    monkeypatch.setattr("portal.library.library.declared_result", unthought_of)
    given = arguments(("id",), id=TEXT)
    found = library(tool("odd", given, {"odd": 1}), tool("whole", given, an_object(id=TEXT))).functions
    assert bind(found["tickets.odd"], {"any": 1}) == {"any": 1}
    assert found["tickets.odd"].returns.annotation == "Any"
    assert found["tickets.whole"].brief == "tickets.whole(id: str) -> {id?: str}"


def test_definitions_that_are_each_other_end_wherever_the_stack_does() -> None:
    """At Python's limit, a library below jsonschema panics: no `except Exception` sees that."""
    ways = [{"$ref": "#/$defs/C"}, {"$ref": "#/$defs/B"}, {"type": "null"}]
    definitions = {
        "A": {"anyOf": [an_object(b={"anyOf": ways}), *ways[1:]]},
        "B": {"$ref": "#/$defs/A"},
        "C": TEXT,
    }

    def deeper(left: int) -> Function:
        schema = {**arguments(p={"$ref": "#/$defs/B"}), "$defs": definitions}
        return deeper(left - 1) if left else function(schema)

    assert all(deeper(frames).parameters[0].name == "p" for frames in range(30))


def test_nothing_is_looked_up_for_a_reference() -> None:
    seen: list[str] = []
    watching = [True]

    def watch(event: str, details: tuple[Any, ...]) -> None:
        if watching and event.startswith(("open", "socket.", "urllib.", "os.listdir")):
            seen.append(f"{event} {details}")

    is_refused({}, 1)  # imports what it needs
    sys.addaudithook(watch)
    addresses = ["http://127.0.0.1:9/x", "file:///etc/passwd", "/etc/passwd", "https://a.example/s#/b"]
    schema = an_object(**{f"p{n}": {"$ref": address} for n, address in enumerate(addresses)})
    library(tool("f", schema))
    is_refused(schema, {"p0": 1, "p1": 2})
    watching.clear()
    assert seen == []


SCHEMA_WORDS = (
    "type properties items anyOf allOf oneOf enum const required default $ref additionalProperties nullable not title "
    "patternProperties prefixItems $defs format minimum maxLength object string # #/properties/a"
)
WORDS = st.sampled_from(SCHEMA_WORDS.split())


def garbage() -> st.SearchStrategy[Json]:
    """JSON made of the words that schemas are made of, at any place."""
    scalars = WORDS | st.none() | st.booleans() | st.integers(-2, 2) | st.just(HOSTILE_TEXT)
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
        max_leaves=20,
    )


@given(garbage(), st.dictionaries(WORDS, json_values(), max_size=3))
@depth(2)
def test_calls_are_passed_on_or_refused_and_never_crash(input_schema: Json, kwargs: dict[str, Json]) -> None:
    try:
        wire = bind(function(input_schema), kwargs)
    except ArgumentError as refusal:
        assert str(refusal)
    else:
        assert all(value in wire.values() for value in kwargs.values() if value is not None)


@pytest.mark.parametrize(
    "contradictory",
    [
        {"type": "boolean", "enum": ["true", "false"]},
        {"type": ["array", "null"], "enum": ["a", None]},
        {"type": "string", "oneOf": [{"const": 1}, {"const": 2, "title": "Two"}]},
        {"allOf": [{"type": "boolean"}, {"enum": ["true"]}]},
    ],
)
def test_parts_that_contradict_each_other_allow_anything(contradictory: Json) -> None:
    described = {**contradictory, "description": "why"}
    sound = sound_schema({"type": "object", "properties": {"a": described, "b": {"type": "integer"}}})
    assert sound == {
        "type": ["object"],
        "properties": {"a": {"description": "why"}, "b": {"type": ["integer"]}},
    }


@pytest.mark.parametrize(
    ("agreeing", "wrong"),
    [
        ({"type": ["string", "null"], "enum": ["a", None]}, "b"),
        ({"type": "number", "anyOf": [{"type": "integer"}, {"type": "string"}]}, "b"),
        ({"type": "integer", "enum": [1.0, "2"]}, "b"),
    ],
)
def test_parts_that_agree_on_some_value_are_kept(agreeing: Json, wrong: Json) -> None:
    assert SchemaValidator(sound_schema(agreeing)).validate(wrong, 100).errors
