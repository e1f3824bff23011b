"""JSON of the guest is read as the standard library reads it, without what cannot be carried; values are counted."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.json_value import Json
from sandbox_runtime.frames import MAX_LINES_BYTES
from sandbox_runtime.guest_json import GuestJsonError, parse, values_in
from sandbox_runtime.worker.run_host import split_lines
from tests.depth import depth

TEXTS = st.text(alphabet=st.characters(codec="utf-8") | st.sampled_from('\\"[]{},:\ud800\udfff'), max_size=9)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=30,
)


def carried(value: Json) -> Json:
    """A value after its way through the channel."""
    if isinstance(value, str):
        return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [carried(item) for item in value]
    if isinstance(value, dict):
        return {carried(key): carried(item) for key, item in value.items()}
    return value


def count(value: Json) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(count, inner))


@depth(0.5)
@given(VALUES, st.booleans())
def test_values_are_read_and_counted(value: Json, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    if ascii_only:  # as bytes, a lone surrogate is three that are no UTF-8
        # json.dumps writes two lone surrogates in a row as one whole character.
        assert parse(text) == carried(json.loads(text))
    assert count(value) <= values_in(text, 0) <= 2 * count(value)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (b'"' + b"[,{" * 90_000 + b'"', 1),
        (b'["' + b'\\"' * 90_000 + b'",1]', 3),
        (b'["",' * 1 + b'"",' * 90_000 + b"1]", 90_003),
        (b"{" + b'"[,":"{",' * 50_000 + b'"":""}', 50_002),
    ],
)
def test_what_is_in_texts_is_not_counted(text: bytes, values: int) -> None:
    assert values_in(text, values) == values
    assert values_in(text, values - 1) > values - 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"1e400", None),
        (b"[1e309, 1e308]", [None, 1e308]),
        (b"1" + b"0" * 400 + b".0", None),
        (b'"1e999"', "1e999"),
        (b"9" * 4300, 10**4300 - 1),
    ],
)
def test_numbers_that_are_none_become_none(text: bytes, value: Json) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    "text", [b"9" * 4301, b"[" * 203 + b"]" * 203, b"[" * 99_999, b"", b"{", b"\xff", b'"\x01"']
)
def test_what_cannot_be_carried_is_an_error(text: bytes) -> None:
    with pytest.raises(GuestJsonError):
        parse(text)


@given(
    st.lists(st.binary(max_size=9).map(lambda line: line.replace(b"\n", b"x")), min_size=1), st.integers(0, 3)
)
def test_lines_are_cut_between_lines_only(lines: list[bytes], longer: int) -> None:
    lines += [b"y" * (MAX_LINES_BYTES + longer), *lines] * longer
    outbox = b"\n".join(lines * 50)
    frames = [*split_lines(outbox)]
    assert b"\n".join(frames) == outbox
    assert all(len(frame) <= MAX_LINES_BYTES or b"\n" not in frame for frame in frames)
