"""JSON is measured before anybody looks at all of it."""

import json

import pytest

from manifests.json_value import Json
from tests.upstreams.at_once import at_once
from upstreams.json_size import has_too_many_values, is_larger


@pytest.mark.parametrize(
    ("value", "characters"),
    [(None, 1), ("abc", 4), ([], 1), ([1, "ab"], 7), ({"a": 1}, 5), ({"a": ["b", {"c": None}]}, 14)],
)
def test_text_and_values_count(value: Json, characters: int) -> None:
    assert not is_larger(value, characters)
    assert is_larger(value, characters - 1)


def test_what_nests_deep_is_measured_too() -> None:
    value: Json = None
    for _ in range(100_000):
        value = [value]
    assert is_larger(value, 1_000)
    assert not is_larger(value, 1_000_000)


def test_values_are_bounded_by_themselves_too() -> None:
    value: Json = ["x" * 1_000, {"a": 1}, [2, 3]]
    assert not is_larger(value, 10_000, 8)
    assert is_larger(value, 10_000, 7)
    assert is_larger(value, 900, 8)


def of_text(text: str) -> bytes:
    return json.dumps({"text": text}).encode()


@pytest.mark.parametrize(
    "text",
    [
        b"[" + b"[]," * 500_000 + b"1]",
        b"[" + b"{}," * 500_000 + b"1]",
        b"[" + b"1," * 4_100_000 + b"1]",
        b"[" + b'"",' * 2_100_000 + b"1]",
        b"[" + rb'"\\",' * 2_100_000 + b"1]",
        b"[" + rb'"\"",' * 2_100_000 + b"1]",
        b'"" ' * 4_100_000,
        of_text('"[,' * 100_000)[:-1] + b',"a":[' + b"[]," * 500_000 + b"1]}",
    ],
    ids=["lists", "objects", "numbers", "texts", "backslashes", "quotes", "no JSON", "behind a text"],
)
def test_text_with_too_many_values_is_known(text: bytes) -> None:
    assert at_once(has_too_many_values(text))


@pytest.mark.parametrize(
    "text",
    [
        of_text("a,b;{}\n" * 1_000_000),
        of_text('"a","b:[]"\n' * 1_000_000),
        of_text('\\"[]\\\\[]' * 1_000_000),
        of_text('\\[{"a":1}]' * 1_000_000),
        json.dumps({"rows": [{f"field{n}": n * 1_000 for n in range(10)}] * 50_000}).encode(),
        b"[" + b"0.12345678," * 1_000_000 + b"1]",
        b"x" * 60_000_000,
    ],
    ids=["table", "quoted table", "backslashes", "JSON in JSON", "rows", "numbers", "noise"],
)
def test_text_that_is_only_long_has_not_too_many_values(text: bytes) -> None:
    assert not at_once(has_too_many_values(text))
