"""Edits of JSON texts: what is asked for changes, and not one character of the rest."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.json_value import Json
from portal.client_files.json_edit import CannotEditError, value_texts, with_members, without_members
from portal.client_files.json_text import plain, read_json

PATH = ("mcpServers",)
NEW = {"portal": '{"command": "p", "args": ["a"]}'}

COMMENTED = """\
{
    // who wrote this
    "a": 1, /* inline */
    "mcpServers": {
        // first
        "one": {"command": "1"}, // behind one
        "two": {
            "command": "2" // inside
        },
        /* before three */ "three": {"command": "3"}
        // at the end
    },
    "z": [1, 2,],
}
"""


def data(text: str) -> Json:
    node = read_json(text)
    assert node is not None
    return plain(node)


def test_a_member_goes_with_its_line_and_its_comma() -> None:
    assert without_members(COMMENTED, PATH, ["two"]) == COMMENTED.replace(
        '        "two": {\n            "command": "2" // inside\n        },\n', ""
    )


def test_the_comma_before_the_last_goes_with_it() -> None:
    text = without_members(COMMENTED, PATH, ["three"])
    assert text == COMMENTED.replace('"three": {"command": "3"}\n', "\n").replace(
        "        },\n        /*", "        }\n        /*"
    )
    assert data(text)["mcpServers"] == {"one": {"command": "1"}, "two": {"command": "2"}}


def test_all_members_can_go() -> None:
    text = without_members(COMMENTED, PATH, ["one", "two", "three"])
    assert data(text) == {"a": "1", "mcpServers": {}, "z": ["1", "2"]}
    assert all(
        comment in text
        for comment in ("// who", "/* inline */", "// first", "// behind one", "// at the end")
    )


def test_a_member_comes_before_the_others_in_their_style() -> None:
    text = with_members(COMMENTED, PATH, NEW, is_laid_out=True)
    lines = ['"portal": {', '    "command": "p",', '    "args": [', '        "a"', "    ]", "},"]
    added = "".join(f"\n        {line}" for line in lines)
    assert text.replace(added, "", 1) == COMMENTED
    assert list(data(text)["mcpServers"]) == ["portal", "one", "two", "three"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", '{\n  "mcpServers": {\n    "portal": {"command": "p", "args": ["a"]}\n  }\n}\n'),
        ("{}", '{"mcpServers": {"portal": {"command": "p", "args": ["a"]}}}'),
        ('{"mcpServers":{}}', '{"mcpServers":{"portal": {"command": "p", "args": ["a"]}}}'),
        ('{"a":1}', '{"mcpServers": {"portal": {"command": "p", "args": ["a"]}}, "a":1}'),
        ('{"mcpServers":{"x":{}}}', '{"mcpServers":{"portal": {"command": "p", "args": ["a"]}, "x":{}}}'),
        ('\ufeff{\r\n\t"a": 1\r\n}', None),
        ("{\n}\n", None),
        ('{\n  "mcpServers": {\n  }\n}', None),
        (
            '{\n  "mcpServers": {}\n}',
            '{\n  "mcpServers": {\n    "portal": {"command": "p", "args": ["a"]}\n  }\n}',
        ),
    ],
)
def test_sparse_texts(text: str, expected: str | None) -> None:
    added = with_members(text, PATH, NEW)
    assert expected is None or added == expected
    assert data(added)["mcpServers"]["portal"] == json.loads(NEW["portal"])
    assert ("\r\n" in text) == ("\r\n" in added)
    assert "\n" not in added.replace("\r\n", "") or "\r\n" not in text


@pytest.mark.parametrize("text", ["[]", '{"mcpServers": []}', '{"mcpServers": 1}', "3"])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(CannotEditError):
        with_members(text, PATH, NEW)


def test_of_a_repeated_object_the_one_that_counts_is_edited() -> None:
    text = '{"mcpServers": {"a": 1}, "mcpServers": {"b": 2}}'
    assert without_members(text, PATH, ["b"]) == '{"mcpServers": {"a": 1}, "mcpServers": {}}'
    assert without_members(text, PATH, ["a"]) == text


KEYS = st.sampled_from(["a", "b", "c", "d", '"', "é", "//", "}"])
VALUES = st.recursive(
    st.none() | st.text(st.characters(codec="utf-8"), max_size=5),
    lambda each: st.lists(each, max_size=2) | st.dictionaries(KEYS, each, max_size=3),
    max_leaves=5,
)


@given(
    servers=st.dictionaries(KEYS, VALUES),
    gone=st.sets(KEYS),
    new=st.dictionaries(st.sampled_from(["portal", "x y"]), VALUES),
    indent=st.sampled_from([None, 2, "\t"]),
    line_end=st.sampled_from(["\n", "\r\n"]),
    is_laid_out=st.booleans(),
)
def test_whatever_is_edited_is_what_was_asked_for(
    servers: dict[str, Json],
    gone: set[str],
    new: dict[str, Json],
    indent: int | str | None,
    line_end: str,
    is_laid_out: bool,
) -> None:
    whole = {"first": 1, "mcpServers": servers, "last": [{}]}
    text = json.dumps(whole, indent=indent, ensure_ascii=False).replace("\n", line_end)
    out = without_members(text, PATH, gone)
    left = {key: value for key, value in servers.items() if key not in gone}
    assert json.loads(out) == {**whole, "mcpServers": left}  # a strict reader's JSON
    both = with_members(
        out, PATH, {key: json.dumps(value) for key, value in new.items()}, is_laid_out=is_laid_out
    )
    assert json.loads(both) == {**whole, "mcpServers": {**new, **left}}
    assert list(json.loads(both)["mcpServers"]) == [*new, *left]


def test_members_are_told_as_they_are_written() -> None:
    found = value_texts(COMMENTED, PATH)
    assert found["two"] == '{\n            "command": "2" // inside\n        }'
    assert value_texts(COMMENTED, ("projects", "x")) == {}
