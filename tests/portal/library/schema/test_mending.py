"""Which values are mended into a schema, and that all others are left alone."""

import json
from collections.abc import Iterator

import jsonschema
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from manifests.json_value import Json
from portal.library.schema.declared_names import declared_names
from portal.library.schema.json_kinds import is_same
from portal.library.schema.kinds import kinds
from portal.library.schema.mending import MAX_ATTEMPTS, mended
from portal.library.schema.sound_schema import sound_schema
from portal.library.schema.violations import violations
from tests.depth import depth
from tests.portal.library.schema.random_schemas import json_values, schemas

TEXT: Json = {"type": "string"}
INTEGER: Json = {"type": "integer"}
TEXTS: Json = {"type": "array", "items": TEXT}
ROWS: Json = {"type": "array", "items": TEXTS}
VARIABLE: Json = {"type": "object", "properties": {"name": TEXT, "value": TEXT}}
FILTER: Json = {"type": "object", "properties": {"by": TEXT, "top": INTEGER}, "required": ["by"]}


def mend(schema: Json, value: Json) -> Json:
    """The mended value, or the word `left`."""
    found = mended(sound_schema(schema), value)
    return "left" if found is None else found.value


MENDED = [
    (INTEGER, "3", 3),
    (INTEGER, "-12", -12),
    ({"type": "number"}, "2.5", 2.5),
    ({"type": "number"}, "1e3", 1000.0),
    ({"type": "boolean"}, "true", True),
    ({"type": "boolean"}, "False", False),
    ({"type": ["integer", "null"]}, "3", 3),
    ({"anyOf": [INTEGER, {"type": "null"}]}, "3", 3),
    ({"enum": [1, 2]}, "2", 2),
    (TEXT, 3, "3"),
    ({"enum": ["1", "2"]}, 2, "2"),
    (FILTER, '{"by": "age"}', {"by": "age"}),
    (FILTER, ' {"by": "age", "top": "3"} ', {"by": "age", "top": 3}),
    (TEXTS, '["a", "b"]', ["a", "b"]),
    (TEXTS, "bug", ["bug"]),
    *((TEXTS, text, [text]) for text in ("R&D", "src/app.py", "C++", "*", "all", "text/html")),
    *((TEXTS, text, [text]) for text in ("Lee", "don't", "缺陷", "a-b", "#bug", "x@y.test")),
    *((TEXTS, text, [text]) for text in ("https://x.test/a?b=c&d=e", "k:v", "f(x).y", "No.5", "android")),
    ({"type": "array", "items": {"enum": ["none", "R and D"]}}, "none", ["none"]),
    ({"type": "array", "items": {"enum": ["none", "R and D"]}}, "R and D", ["R and D"]),
    (TEXTS, 3, ["3"]),
    (ROWS, ["Ann"], [["Ann"]]),
    (ROWS, [["Ann", 30], "Bob"], [["Ann", "30"], ["Bob"]]),
    (ROWS, [["Ann", 30]], [["Ann", "30"]]),
    (TEXTS, ["a", 5], ["a", "5"]),
    ({"type": "array", "items": FILTER}, {"by": "age"}, [{"by": "age"}]),
    ({"type": "array", "items": VARIABLE}, {"name": "A", "value": 1}, [{"name": "A", "value": "1"}]),
    ({"type": "array", "items": {"$ref": "#/$defs/V"}, "$defs": {"V": VARIABLE}}, {"name": "A"}, [{"name": "A"}]),
    ({"type": "array", "items": INTEGER}, "3", [3]),
    ({"type": "object", "properties": {"a": {"properties": {"b": INTEGER}}}}, {"a": {"b": "3"}}, {"a": {"b": 3}}),
    ({"type": "object", "additionalProperties": INTEGER}, {"x": "3"}, {"x": 3}),
    ({"prefixItems": [INTEGER], "items": TEXT}, ["3", 4], [3, "4"]),
    ({"$ref": "#/$defs/N", "$defs": {"N": INTEGER}}, "3", 3),
    ({"allOf": [{"properties": {"a": INTEGER}}, {"properties": {"b": TEXT}}]}, {"a": "1", "b": 2}, {"a": 1, "b": "2"}),
    ({"anyOf": [FILTER, {"type": "null"}]}, '{"by": "age"}', {"by": "age"}),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "wanted"), MENDED)
def test_what_is_certain_is_mended(schema: Json, value: Json, wanted: Json) -> None:
    assert is_same(mend(schema, value), wanted)


LEFT = [
    (INTEGER, "three"),
    (INTEGER, "3.5"),
    (INTEGER, "007"),
    (INTEGER, "1,000"),
    (INTEGER, " 3"),
    (INTEGER, "٣"),
    (INTEGER, "9" * 100),
    (INTEGER, ""),
    (INTEGER, None),
    (INTEGER, True),
    (INTEGER, 3.5),
    ({"type": "integer", "maximum": 2}, "3"),
    ({"type": "number"}, "NaN"),
    ({"type": "number"}, "1e999"),
    ({"type": "boolean"}, "yes"),
    ({"type": "boolean"}, 1),
    (TEXT, True),
    (TEXT, 3.1),
    (TEXT, None),
    (TEXT, ["a"]),
    (TEXT, {"a": "b"}),
    (TEXT, 2**200),
    ({"type": "string", "format": "date-time"}, 1_700_000_000),
    ({"type": "string", "pattern": "^[A-Z]+$"}, 3),
    ({"enum": ["open", "closed"]}, "Open"),
    (TEXTS, "bug, ui"),
    (TEXTS, "bug;ui"),
    (TEXTS, "bug\nui"),
    (TEXTS, "[bug]"),
    (TEXTS, "缺陷，界面"),
    (TEXTS, "缺陷、界面"),
    (TEXTS, "缺陷；界面"),
    (TEXTS, "bug and ui"),
    *((TEXTS, text) for text in ("bug or ui", "bug & ui", "bug + ui", "rot und blau", "bug / ui", "rouge et bleu")),
    *((TEXTS, text) for text in ("bug، ui", "bug؛ui", "a·b", "• bug", "- bug", "1. bug", "缺陷和界面", "a%2Cb")),
    *((TEXTS, text) for text in ("#bug #ui", "@ann @bob", "A-1 A-2", "a@x.test b@x.test", "v1 v2", '"a" "b"')),
    *((TEXTS, text) for text in ("none", "None", "null", "N/A", "-", '"bug"', "('bug')", "()", "„bug“", "")),
    *((TEXTS, text) for text in ("needs review", "npm install", "AAPL MSFT GOOG", "--verbose file.txt", "bug plus ui")),
    *((TEXTS, text) for text in ("no labels", "empty", "Empty", "nothing", "set()", "list()", "list(x)", " a b ")),
    ({"type": "array", "items": {"type": "object"}}, {}),
    ({"type": "array", "items": {"type": "object"}}, {"a": 1}),
    ({"type": "array", "items": VARIABLE}, {"A": "1", "B": "2"}),
    ({"type": "array", "items": VARIABLE}, {"name": "1", "B": "2"}),
    ({"type": "array", "items": {"type": "object"}}, {"ann": {"age": 1}, "bob": {"age": 2}}),
    (FILTER, '{"by": "age", "by": "name"}'),
    (ROWS, ["Ann", "30"]),
    (ROWS, ["Ann", 30]),
    (ROWS, ["Ann", "a,b"]),
    ({"$ref": "#/$defs/R", "$defs": {"R": ROWS}}, ["Ann", "30"]),
    ({"anyOf": [ROWS, {"type": "null"}]}, ["Ann", "30"]),
    ({"anyOf": [TEXTS, ROWS]}, [1, 2]),
    ({"type": "array", "items": {"type": "array", "items": {"type": "number"}}}, [1.0, 2.0]),
    ({"type": "array", "items": ROWS}, [["Ann", "30"], ["Bob", "5"]]),
    (TEXTS, ""),
    (TEXTS, '["a", {}]'),
    (TEXTS, None),
    ({"type": "array", "items": TEXT, "minItems": 2}, "bug"),
    (FILTER, '{"by": '),
    (FILTER, "by age"),
    (FILTER, '["by"]'),
    (FILTER, "{'by': 'age'}"),
    (FILTER, [{"by": "age"}]),
    ({"anyOf": [INTEGER, {"type": "boolean"}, TEXTS]}, "3"),
    ({"anyOf": [TEXT, {"type": "array", "items": INTEGER}], "type": ["string", "array"]}, 3),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value"), LEFT)
def test_what_would_be_a_guess_is_left(schema: Json, value: Json) -> None:
    assert mend(schema, value) == "left"


@given(schemas(), json_values())
@depth(5)
def test_mended_value_fits_and_a_fitting_one_is_not_touched(schema: Json, value: Json) -> None:
    sound = sound_schema(schema)
    fits = not violations(sound, value)
    found = mended(sound, value)
    if fits:
        assert found is not None
        assert found.value is value
        assert found.mends == ()
    elif found is not None:
        assert found.mends
        assert jsonschema.Draft202012Validator(schema).is_valid(found.value)


@given(schemas(), json_values(), st.randoms(use_true_random=False))
@depth(5)
def test_damage_is_undone_or_left_but_never_becomes_something_else(
    schema: Json, value: Json, random: object
) -> None:
    sound = sound_schema(schema)
    assume(not violations(sound, value))
    for damaged in damages(value):
        if violations(sound, damaged):
            found = mended(sound, damaged)
            assert found is None or is_same(found.value, value)


def damages(value: Json) -> Iterator[Json]:
    """The value with one of the mistakes made somewhere in it."""
    if isinstance(value, dict | list) or (isinstance(value, int | float) and not isinstance(value, bool)):
        yield json.dumps(value)
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        yield int(value)
    if isinstance(value, list) and len(value) == 1:
        yield value[0]
    if isinstance(value, list):
        for at, item in enumerate(value):
            yield from ([*value[:at], damaged, *value[at + 1 :]] for damaged in damages(item))
    if isinstance(value, dict):
        for key, item in value.items():
            yield from ({**value, key: damaged} for damaged in damages(item))


def test_what_takes_too_long_is_left() -> None:
    assert mend({"type": "array", "items": INTEGER}, ["3"] * MAX_ATTEMPTS) == "left"
    levels = 18
    fan: dict[str, Json] = {
        f"d{at}": {"anyOf": [{"properties": {"a": {"$ref": f"#/$defs/d{at + 1}"}}}] * 2}
        for at in range(levels)
    }
    value: Json = "3"
    for _ in range(levels):
        value = {"a": value}
    assert mend({"$ref": "#/$defs/d0", "$defs": {**fan, f"d{levels}": INTEGER}}, value) == "left"


def test_references_that_fan_out_are_each_followed_once() -> None:
    """A hundred to the fifth ways lead to the last definition."""
    names = [f"d{level}" for level in range(6)]
    fanned: dict[str, Json] = {
        name: {"anyOf": [{"$ref": f"#/$defs/{names[level + 1]}", "title": str(each)} for each in range(100)]}
        for level, name in enumerate(names[:-1])
    }
    fanned[names[-1]] = {"type": "object", "properties": {"login": TEXT}, "required": ["login"]}
    schema: Json = {"type": "array", "items": {"$ref": "#/$defs/d0"}, "$defs": fanned}
    assert mend(schema, "bug") == "left"
    sound = sound_schema(schema)
    assert declared_names(sound.definitions, {"$ref": "#/$defs/d5"}) == {"login"}
    assert kinds(sound, {"$ref": "#/$defs/d0"}) == {"object"}
