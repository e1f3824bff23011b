"""Schemas that want to cost time, memory, or a look at the machine. Each compiles, and its neighbour is whole."""

import sys
from typing import Any

import pytest

from manifests.json_value import Json
from portal.library.arguments import ArgumentError, bind
from tests.portal.library.sample_tools import arguments, library, tool

TEXT = {"type": "string"}
LONGEST_MODULE = 200_000


def an_object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties}


def bomb(word: str, levels: int = 40) -> Json:
    """Definitions that each mention the next one twice: 2**levels ways through them."""
    steps = {f"d{n}": {word: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {**an_object(a={"$ref": "#/$defs/d0"}), "$defs": {**steps, f"d{levels}": an_object(x=TEXT)}}


MANY = {f"property_{number}": TEXT for number in range(100_000)}
HOSTILE: dict[str, tuple[Json, Json]] = {
    "100,000 properties": (an_object(**MANY), {"property_1": 1}),
    "100,000 properties within one": (an_object(a=an_object(**MANY)), {"a": {"property_1": 1}}),
    "10 MB of hidden text": (an_object(a={"type": "string", "description": "x\u200b" * 5_000_000}), {"a": 1}),
    "10 MB of values": (an_object(a={"enum": [f"v{number}" for number in range(700_000)]}), {"b": 1}),
    "200,000 required": (
        an_object(a={"required": [f"r{n}" for n in range(200_000)], **an_object()}),
        {"a": {}},
    ),
    "allOf bomb": (bomb("allOf"), {"b": 1}),
    "anyOf bomb": (bomb("anyOf"), {"b": 1}),
    "oneOf bomb": (bomb("oneOf"), {"b": 1}),
    "20,000 parts": ({"allOf": [an_object(**{f"p{n}": TEXT}) for n in range(20_000)]}, {"p1": 1}),
    "regular expression": (
        an_object(a={"type": "string", "pattern": "(a+)+$"}, b={"patternProperties": {"(a|a)*$": TEXT}}),
        {"a": "a" * 100_000 + "!", "b": {"a" * 50 + "!": 1}, "c": 1},
    ),
    "circle": (
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        None,
    ),
}


@pytest.mark.parametrize(("schema", "wrong"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_schema_ends_small_and_leaves_its_neighbour_alone(
    schema: Json, wrong: dict[str, Json] | None
) -> None:
    compiled = library(
        tool("hostile", schema, schema), tool("whole", arguments(("id",), id=TEXT), an_object(id=TEXT))
    )
    assert len(compiled.module("tickets")) < LONGEST_MODULE
    assert (
        compiled.functions["tickets.whole"].signature == "async def tickets.whole(*, id: str) -> WholeResult"
    )
    if wrong is not None:
        with pytest.raises(ArgumentError) as refusal:
            bind(compiled.functions["tickets.hostile"], wrong)
        assert len(str(refusal.value)) <= 2_000


def test_references_to_elsewhere_are_looked_at_by_nobody() -> None:
    seen: list[str] = []
    watching = [True]

    def watch(event: str, details: tuple[Any, ...]) -> None:
        if watching and event.startswith(("open", "socket.", "urllib.", "os.listdir")):
            seen.append(f"{event} {details}")

    sys.addaudithook(watch)
    addresses = [
        "http://127.0.0.1:9/x",
        "file:///etc/passwd",
        "/etc/passwd",
        "../x.json#/a",
        "https://a.example/s#/b",
    ]
    compiled = library(tool("f", an_object(**{f"p{n}": {"$ref": at} for n, at in enumerate(addresses)})))
    watching.clear()
    assert seen == []
    assert len(compiled.diagnostics) == 1
    assert compiled.functions["tickets.f"].signature.count(": Any = ...") == len(addresses)


@pytest.mark.parametrize(
    ("schema", "taken", "refused"),
    [
        (an_object(a={"type": "string", "enum": [1, 2]}), {"a": 1}, {"a": "1"}),
        (an_object(a={"type": "number", "enum": ["1"]}), {"a": "1"}, {"a": 1}),
        (an_object(a={"type": "string", "enum": [True, False]}), {"a": True}, {"a": "x"}),
        (an_object(a={"type": "array", "const": "x"}), {"a": "x"}, {"a": ["x"]}),
        (
            an_object(
                a={"type": "object", "properties": {}, "additionalProperties": False, "required": ["b"]}
            ),
            {"a": {}},
            {"a": {"b": 1}},
        ),
        (
            {"type": "object", "properties": {}, "additionalProperties": False, "required": ["b"]},
            {},
            {"b": 1},
        ),
        ({"type": "array", "items": {"type": "string"}}, {"anything": 1}, None),
    ],
)
def test_of_a_schema_that_nothing_fits_what_contradicts_itself_is_ignored_and_noted(
    schema: Json, taken: dict[str, Json], refused: dict[str, Json] | None
) -> None:
    compiled = library(tool("f", schema))
    assert len(compiled.diagnostics) == 1
    function = compiled.functions["tickets.f"]
    assert bind(function, taken).wire == taken
    if refused is not None:
        with pytest.raises(ArgumentError):
            bind(function, refused)
