"""JSON is measured before anybody looks at all of it."""

import pytest

from manifests.json_value import Json
from portal.passthrough.clean_json import is_larger


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
