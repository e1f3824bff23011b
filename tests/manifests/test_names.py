"""Names: what design promises, for any text and any set of tools."""

import keyword
import re
import unicodedata
from pathlib import Path

import mypy
from hypothesis import given
from hypothesis import strategies as st

from manifests.names import (
    LONGEST_NAME,
    STANDARD_LIBRARY,
    former_of,
    function_names,
    identifier,
    namespace_of,
)

# Texts that collide often: few letters, and many characters that all become `_`.
colliding = st.text(st.sampled_from("ab_-. é"), max_size=4)
tool_sets = st.lists(st.one_of(colliding, st.text(max_size=12)), max_size=12, unique=True)


IDENTIFIERS = [
    ("echo-it", "echo_it"), ("class", "class_"), ("2fa", "_2fa"), ("", "_"), ("a.b/c d", "a_b_c_d"),
    ("größe", "größe"), ("gro\u0308ße", "größe"), ("größe-ändern", "gr__e__ndern"), ("数据查询", "数据查询"),
    ("ﬁle", "file"), ("ｃｌａｓｓ", "class_"), ("a\ufe0f", "a_"), ("\u1160", "_"), ("_private", "_private"),
    ("__init__", "__init___"), ("__", "__"),
]  # fmt: skip
NAMESPACES = [
    ("github", "github"), ("time", "time_"), ("annotationlib", "annotationlib_"), ("list", "list_"),
    ("tools", "tools_"), ("class", "class_"), ("my-files", "my_files"), ("größe", "größe"),
]  # fmt: skip


def test_identifier_is_predictable() -> None:
    assert [(text, identifier(text)) for text, _ in IDENTIFIERS] == IDENTIFIERS


def test_namespace_hides_nothing_a_script_needs() -> None:
    assert [(upstream, namespace_of(upstream)) for upstream, _ in NAMESPACES] == NAMESPACES


@given(tool_sets)
def test_functions_get_different_valid_names(tools: list[str]) -> None:
    names = function_names(tools)
    assert list(names) == tools
    assert len(set(names.values())) == len(tools)
    for name in names.values():
        assert name.isidentifier() and not keyword.iskeyword(name)
        assert former_of(name).isascii() and name == unicodedata.normalize("NFKC", name)


def test_collision_gives_the_changed_ones_four_hex_digits_of_their_hash() -> None:
    assert function_names(["read-file", "read.file", "read_file", "write-file"]) == {
        "read-file": "read_file_a00b",
        "read.file": "read_file_dd32",
        "read_file": "read_file",
        "write-file": "write_file",
    }


def test_former_names_are_those_of_the_same_listing() -> None:
    names = function_names(["数据查询", "创建订单", "größe", "plain"])
    assert [former_of(each) for each in names.values()] == ["_____f740", "_____ccab", "gr__e", "plain"]


def test_tools_that_occupy_every_suffix_of_a_hash_do_not_stop_naming() -> None:
    tools = ["a-b", "a.b"]
    for _ in range(40):
        tools.append(function_names(tools)["a-b"])
    names = function_names(tools)
    assert len(set(names.values())) == len(tools) == 42


def test_overlong_names_are_cut_and_stay_apart() -> None:
    names = function_names(["x" * 5000, "x" * 5001, "y" * LONGEST_NAME])
    assert len(set(names.values())) == 3
    assert all(len(name) <= LONGEST_NAME + 5 for name in names.values())
    assert names["y" * LONGEST_NAME] == "y" * LONGEST_NAME


def test_reserved_words_cover_the_modules_typeshed_knows_of_314() -> None:
    versions = (Path(mypy.__file__).parent / "typeshed" / "stdlib" / "VERSIONS").read_text()
    spans = re.findall(r"^([a-z]\w*): 3\.(\d+)-(?:3\.(\d+))?", versions, re.MULTILINE | re.IGNORECASE)
    modules = {module for module, first, last in spans if int(first) <= 14 <= int(last or 99)}
    public = modules - {"typing_extensions", "xxlimited"}
    assert len(public) > 190
    assert public <= STANDARD_LIBRARY
