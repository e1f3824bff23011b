"""JSON that is read piece by piece says what it says when it is read in one go."""

import json
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic_core import from_json

from manifests.json_value import Json
from tests.upstreams.at_once import at_once, counted
from upstreams.json_pieces import MAX_LEVELS, read_json
from upstreams.steps import STEP_BYTES, Steps

TEXTS = st.text(st.sampled_from('ab,:"\\{}[] é\n'), max_size=6)
PADDING = st.sampled_from(["", " ", "\n "])


def joined(members: list[str], brackets: str, space: str) -> str:
    return brackets[0] + space + f"{space},{space}".join(members) + space + brackets[1]


def lists(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(joined, st.lists(inner, max_size=5), st.just("[]"), PADDING)


def objects(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Also with a name twice."""
    names = st.sampled_from(["a", "b", ""]) | TEXTS
    members = st.builds(lambda name, value: f"{json.dumps(name)}:{value}", names, inner)
    return st.builds(joined, st.lists(members, max_size=5), st.just("{}"), PADDING)


JSON = st.recursive(
    st.sampled_from(["1", "-2.5e3", "true", "null"]) | TEXTS.map(json.dumps),
    lambda inner: lists(inner) | objects(inner),
    max_leaves=20,
)


def plainly(text: bytes) -> Steps[Json]:
    yield from ()
    return from_json(text)


def outcome(read: Callable[[], Json]) -> object:
    """What is read, with the order of its members; None if it is no JSON."""
    try:
        return json.dumps(read())
    except ValueError:
        return None


@given(JSON, st.integers(1, 30))
@example('{"a":1,"b":2,"a":[4,5,6],"c":7}', 20)
def test_value_is_the_same_however_it_is_cut(text: str, piece_bytes: int) -> None:
    whole = text.encode()
    assert at_once(read_json(whole, plainly, piece_bytes)) == from_json(whole)


@given(
    JSON,
    st.integers(0, 200),
    st.sampled_from(["", ",", "]", "}", "[", "{", '"', "\\", "1,", ":"]),
    st.integers(1, 30),
)
@example("[1,2]", 4, ",", 1)
@example("[1,2]", 3, ",", 1)
@example("[1,2]", 5, ",3", 1)
@example('{"a":1,"b":2}', 7, "]", 1)
def test_what_is_no_json_is_none_in_pieces_either(text: str, place: int, more: str, piece_bytes: int) -> None:
    at = place % (len(text) + 1)
    broken = (text[:at] + more + text[at + (not more) :]).encode()
    expected = outcome(lambda: from_json(broken))
    assert outcome(lambda: at_once(read_json(broken, plainly, piece_bytes))) == expected


@pytest.mark.parametrize(
    "value",
    [
        {"rows": [{"id": number, "tags": ["a", "b"]} for number in range(50_000)]},
        [[]] * 500_000,
        {f"name {number}": f"a, [{number}]" for number in range(50_000)},
        ["\\" * 300_000, '"' * 300_000, ["x" * 1_000_000, 1]],
    ],
    ids=["rows", "lists", "members", "long texts"],
)
def test_long_value_is_read_in_many_steps(value: Json) -> None:
    text = json.dumps({"result": value, "id": 7}).encode()
    read, steps = counted(read_json(text, plainly))
    assert read == {"result": value, "id": 7}
    assert steps >= len(text) // STEP_BYTES


@pytest.mark.parametrize("levels", [MAX_LEVELS - 60, MAX_LEVELS + 1, 1_000_000])
def test_what_nests_too_deep_is_no_value(levels: int) -> None:
    text = b"[" * levels + b"1," * 100_000 + b"1" + b"]" * levels
    read = outcome(lambda: at_once(read_json(text, plainly)))
    assert (read is None) == (levels > MAX_LEVELS)


def test_noise_is_not_looked_at_to_its_end() -> None:
    looked_at: list[int] = []

    def read(piece: bytes) -> Steps[Json]:
        looked_at.append(len(piece))
        return (yield from plainly(piece))

    for noise in (b"loading " * 1_000_000, b"loading, " * 1_000_000):
        with pytest.raises(ValueError):
            at_once(read_json(noise, read))
    assert sum(looked_at) <= STEP_BYTES
