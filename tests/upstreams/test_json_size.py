"""JSON is measured before anybody looks at all of it."""

import pytest

from manifests.json_value import Json
from upstreams.json_size import is_larger


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
