"""JSON with comments: the same data as a strict reader's, and no text that takes it down."""

import json
import re
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.json_value import Json
from portal.client_files.json_text import (
    MAX_DEPTH,
    MAX_VALUES,
    JsonTextError,
    Members,
    Number,
    plain,
    read_json,
)

TEXTS = st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    st.none() | st.booleans() | TEXTS,
    lambda each: st.lists(each) | st.dictionaries(TEXTS, each),
    max_leaves=20,
)


def data(text: str) -> Json:
    node = read_json(text)
    assert node is not None
    return plain(node)


@given(VALUES, st.sampled_from([None, 0, 4]), st.booleans())
def test_every_value_is_read_as_it_was_written(value: Json, indent: int | None, is_ascii: bool) -> None:
    assert data(json.dumps(value, indent=indent, ensure_ascii=is_ascii)) == value


@given(VALUES)
def test_comments_and_trailing_commas_change_nothing(value: Json) -> None:
    text = json.dumps(value, indent=1)
    # Only where a line begins or ends outside of a text; json.dumps leaves no line end inside of one.
    commented = re.sub(r"(?<=[\[{,])\n", ' // a, "b" }\n/* c ] */\n', text)
    commented = re.sub(r"(?<=[^\[{,\s])\n(\s*[\]}])", r",\n\1", commented)
    assert data("\ufeff" + commented + " // end") == value


def test_numbers_stay_as_they_are_written() -> None:
    assert data("[1, -0.5e+9, 1" + "0" * 10_000 + "]") == ["1", "-0.5e+9", "1" + "0" * 10_000]
    assert isinstance(data("1"), Number)


@pytest.mark.parametrize("text", ["", " \n", "// nothing\n", "/* nothing */", "\ufeff"])
def test_nothing_is_nothing(text: str) -> None:
    assert read_json(text) is None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{\n", 2),
        ('{"a": 1\n"b": 2}', 2),
        ('{"a"\n1}', 2),
        ("[1\n2]", 2),
        ("[1]\n]", 2),
        ("\n[NaN]", 2),
        ("\n'a'", 2),
        ('\n"a\nb"', 2),
        ('\n"\\q"', 2),
        ("\n{a: 1}", 2),
        ("[01]", 1),
        ("[1,,2]", 1),
        ("/* open", 1),
        ("[\0]", 1),
        ("[" * 100_000, 1),
        ('{"a":' * 100_000, 1),
        ("[" + "0," * (MAX_VALUES + 1) + "]", 1),
    ],
)
def test_what_is_no_json_is_refused_at_its_line(text: str, line: int) -> None:
    with pytest.raises(JsonTextError) as refused:
        read_json(text)
    assert refused.value.line == line


def test_deep_but_bounded_nesting_is_read() -> None:
    assert data("[" * MAX_DEPTH + "]" * MAX_DEPTH)


def test_a_repeated_key_is_no_data_and_its_last_value_counts() -> None:
    node = read_json('{"a": 1, "b": 2, "a": 3}')
    assert isinstance(node, Members) and node.repeated == "a"
    found = node.find("a")
    assert found is not None and plain(found) == "3"
    with pytest.raises(ValueError):
        plain(node)


@given(VALUES, VALUES, st.sampled_from([None, 2]))
def test_what_is_not_looked_into_is_the_same_data(value: Json, other: Json, indent: int | None) -> None:
    whole = {"a": value, "b": {"x": other}, "projects": {"/p": {"a": value, "b": other}}, "c": [value]}
    node = read_json(json.dumps(whole, indent=indent), frozenset(("b", "projects")))
    assert node is not None and plain(node) == whole


@pytest.mark.parametrize(
    "text", ['{"a": [NaN]}', '{"a": {"b": 1,}}', '{"a": [1, // x\n2]}', '{"a": [01]}', '{"a": [']
)
def test_what_is_not_looked_into_is_read_by_the_same_rules(text: str) -> None:
    def outcome(looked_into: frozenset[str] | None) -> Json:
        try:
            node = read_json(text, looked_into)
        except JsonTextError as error:
            return error.line
        return node and plain(node)

    assert outcome(frozenset()) == outcome(None)


@pytest.mark.timeout(30)
def test_a_comment_in_each_of_many_members_is_read_in_time() -> None:
    text = "{" + ",".join(['"x":[/**/1]'] * (MAX_VALUES // 3)) + "}"
    node = read_json(text, frozenset())
    assert isinstance(node, Members) and len(node.members) == MAX_VALUES // 3


def test_comments_are_skipped_without_remembering_each() -> None:
    text = "//\n" * (1024 * 1024) + "{}"
    tracemalloc.start()
    try:
        assert data(text) == {}
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < len(text)


def test_half_a_character_is_no_data() -> None:
    assert data(r'"\ud83d\ude00"') == "😀"
    with pytest.raises(ValueError):
        data(r'"\ud83d"')
