"""The object at the end of a text is found whatever stands before it, with one look at each byte."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from manifests.json_value import Json
from tests.upstreams.at_once import at_once, counted
from upstreams.json_size import MAX_VALUES
from upstreams.last_object import last_object
from upstreams.steps import STEP_BYTES

MIB = 1024 * 1024

texts = st.text(alphabet='ab\\"{}[]:,\n\u00e4', max_size=12)
values = st.recursive(
    st.none() | st.integers(0, 99) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)
fronts = st.binary(max_size=12) | st.lists(st.sampled_from(['"', "\\", "{", "}", "[", "]", "x"])).map(
    lambda marks: "".join(marks).encode()
)


@given(fronts, st.dictionaries(texts, values, max_size=4), st.sampled_from([1, 2, 7, STEP_BYTES]))
@example(b"\\", {"a": "\\"}, 1)
@example(b'{"half":"', {}, 1)
def test_it_begins_behind_what_stands_before_it(front: bytes, value: Json, piece_bytes: int) -> None:
    for separators in ((",", ":"), (" , ", " : ")):
        text = front + json.dumps(value, separators=separators).encode()
        assert at_once(last_object(text + b" \r", piece_bytes)) == len(front)


@pytest.mark.parametrize(
    "text",
    [b"", b" ", b"}", b"x", b'{"a":1}x', b'{"a":1', b'"}"', b"}}{}}", b'"a":1}', b"{}]"],
)
def test_text_that_ends_with_none_has_none(text: bytes) -> None:
    assert at_once(last_object(text)) == -1


@pytest.mark.parametrize(
    "text",
    [
        b"{" * 4 * MIB + b"}",
        b"{" + b"}" * MIB,
        b"{" * MIB + b"}" * (MIB + 1),
        b'{"jsonrpc":' * (MIB // 4) + b'"}',
        b"x{" + b'"\\\\\\"",' * (MIB // 2) + b"}",
        b"x{" + b"{}," * (MIB // 2) + b"}",
        b"{" + b"x" * 8 * MIB + b"}",
        b"\\" * 8 * MIB + b"}",
        b'{"' + b'\\"' * MIB + b'"}',
        b'{"' + b"x\\\\" * MIB + b'"}',
        b" " * 8 * MIB,
    ],
    ids=[
        "beginnings",
        "ends",
        "too many ends",
        "marks",
        "strings",
        "objects",
        "plain",
        "backslashes",
        "quotes",
        "doubled",
        "blank",
    ],
)
def test_each_byte_is_looked_at_once(text: bytes) -> None:
    _, steps = counted(last_object(text))
    assert steps <= 4 * len(text) // STEP_BYTES


def test_object_of_more_values_than_are_read_is_not_looked_for_to_its_beginning() -> None:
    text = b'{"a":[' + b"[]," * MAX_VALUES + b"1]}"
    place, steps = counted(last_object(text))
    assert place == -1
    assert steps <= 3 * len(text) // STEP_BYTES
