"""Names: what design promises, for any text and any set of tools."""

import builtins
import keyword
import sys
from itertools import product
from pathlib import Path
from random import Random

import mypy
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from manifests.names import (
    BUILTINS,
    KEYWORDS,
    LONGEST_NAME,
    STANDARD_LIBRARY,
    function_names,
    identifier,
    namespace_of,
    parameter_names,
)

# Texts that collide often: few letters, and many characters that all become `_`.
colliding = st.text(st.sampled_from("ab_-. é"), max_size=4)
tool_sets = st.lists(st.one_of(colliding, st.text(max_size=12)), max_size=12, unique=True)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("create_issue", "create_issue"),
        ("echo-it", "echo_it"),
        ("class", "class_"),
        ("None", "None_"),
        ("match", "match"),
        ("2fa", "_2fa"),
        ("", "_"),
        ("a.b/c d", "a_b_c_d"),
        ("größe", "gr__e"),
        ("ﬁle", "_le"),  # a ligature, which Python would normalise to fi
        ("²", "_"),
        ("_private", "_private"),
        ("__private", "__private"),
        ("__init__", "__init___"),
        ("__class__", "__class___"),
        ("__debug__", "__debug___"),
        ("__", "__"),
    ],
)
def test_identifier_is_predictable(text: str, name: str) -> None:
    assert identifier(text) == name


@pytest.mark.parametrize(
    ("upstream", "namespace"),
    [
        ("github", "github"),
        ("time", "time_"),
        ("json", "json_"),
        ("annotationlib", "annotationlib_"),
        ("compression", "compression_"),
        ("list", "list_"),
        ("tools", "tools_"),
        ("portal", "portal_"),
        ("class", "class_"),
        ("my-files", "my_files"),
        ("__builtins__", "__builtins___"),
    ],
)
def test_namespace_hides_nothing_a_script_needs(upstream: str, namespace: str) -> None:
    assert namespace_of(upstream) == namespace


@given(st.text(max_size=300))
def test_every_identifier_can_be_assigned_to_and_gives_itself(text: str) -> None:
    name = identifier(text)
    exec(f"{name} = 1", {})
    assert name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
    assert len(name) <= LONGEST_NAME
    assert identifier(name) == name
    assert namespace_of(namespace_of(text)) == namespace_of(text)


@given(tool_sets)
def test_functions_get_different_valid_names(tools: list[str]) -> None:
    names = function_names(tools)
    assert list(names) == tools
    assert len(set(names.values())) == len(tools)
    for name in names.values():
        assert name.isascii() and name.isidentifier() and not keyword.iskeyword(name)


@given(tool_sets, st.randoms(use_true_random=False))
def test_names_do_not_depend_on_the_order(tools: list[str], random: Random) -> None:
    shuffled = random.sample(tools, len(tools))
    assert function_names(shuffled) == function_names(tools)


@given(tool_sets, st.text(max_size=12))
def test_names_stay_when_a_tool_without_collision_comes(tools: list[str], newcomer: str) -> None:
    before = function_names(tools)
    assume(identifier(newcomer) not in {*map(identifier, tools), *before.values()})
    after = function_names([*tools, newcomer])
    assert {tool: after[tool] for tool in tools} == before


@given(tool_sets)
def test_name_that_needs_no_change_is_kept(tools: list[str]) -> None:
    names = function_names(tools)
    assert all(names[tool] == tool for tool in tools if identifier(tool) == tool)


def test_collision_gives_the_changed_ones_four_hex_digits_of_their_hash() -> None:
    assert function_names(["read-file", "read.file", "read_file", "write-file"]) == {
        "read-file": "read_file_a00b",
        "read.file": "read_file_dd32",
        "read_file": "read_file",
        "write-file": "write_file",
    }


def test_names_differ_even_when_the_short_hashes_do_not() -> None:
    tools = ["a" + "".join(signs) for signs in product("-.:;/ +", repeat=4)]  # 2,401 names of one identifier
    names = function_names(tools)
    assert len(set(names.values())) == len(tools)
    assert any(len(name.rsplit("_", 1)[1]) > 4 for name in names.values())


def test_tool_that_is_called_like_anothers_suffixed_name_keeps_its_own() -> None:
    names = function_names(["a-b", "a.b"])
    taken = function_names(["a-b", "a.b", names["a-b"]])
    assert taken[names["a-b"]] == names["a-b"]
    assert taken["a.b"] == names["a.b"]
    assert taken["a-b"].startswith(names["a-b"]) and len(taken["a-b"]) == len(names["a-b"]) + 4


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


def test_parameters_follow_the_same_rule() -> None:
    assert parameter_names(["class", "$filter", "page-size", "page_size"]) == {
        "class": "class_",
        "$filter": "_filter",
        "page-size": "page_size_9924",
        "page_size": "page_size",
    }


def test_lone_surrogates_are_named_like_anything_else() -> None:
    assert len(set(function_names(["\ud800", "\ud801"]).values())) == 2


def test_reserved_words_cover_the_python_that_runs_the_tests() -> None:
    removed_since = {
        "_compression",
        "_bootlocale",
        "binhex",
        "asynchat",
        "asyncore",
        "distutils",
        "imp",
        "smtpd",
    }
    ours = {name for name in sys.stdlib_module_names if not name.startswith("_")} - removed_since
    removed_in_313 = {
        *(
            "aifc",
            "audioop",
            "cgi",
            "cgitb",
            "chunk",
            "crypt",
            "imghdr",
            "lib2to3",
            "mailcap",
            "msilib",
            "nis",
        ),
        *("nntplib", "ossaudiodev", "pipes", "sndhdr", "spwd", "sunau", "telnetlib", "uu", "xdrlib"),
    }
    assert ours - removed_in_313 <= STANDARD_LIBRARY
    assert set(keyword.kwlist) == KEYWORDS
    assert {name for name in dir(builtins) if not name.startswith("_")} <= BUILTINS


def test_reserved_words_cover_the_modules_typeshed_knows_of_314() -> None:
    versions = Path(mypy.__file__).parent / "typeshed" / "stdlib" / "VERSIONS"
    modules = set()
    for line in versions.read_text().splitlines():
        module, _, span = line.partition("#")[0].partition(":")
        first, _, last = span.partition("-")
        if module and "." not in module and _minor(first, 0) <= 14 <= _minor(last, 99):
            modules.add(module)
    not_shipped = {"__future__", "__main__", "_bootlocale", "_typeshed", "typing_extensions", "xxlimited"}
    assert len(modules) > 200
    assert modules - not_shipped <= STANDARD_LIBRARY


def _minor(version: str, otherwise: int) -> int:
    return int(version.strip().removeprefix("3.")) if version.strip() else otherwise
