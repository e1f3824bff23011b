"""Compiled namespaces on disk: the same as compiled anew, or nothing."""

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from portal.library.function import Function
from portal.library.library import Library
from portal.library.namespace import LibrarySource
from portal.library.namespace_cache import MAX_BYTES, NamespaceCache
from tests.portal.library.nasty_tools import nasty_tools
from tests.portal.library.sample_tools import arguments, source, tool

TEXT = {"type": "string"}
ISSUE = {"type": "object", "title": "Issue", "properties": {"id": TEXT, "parent": {"$ref": "#"}}}
TOOLS = [
    tool("get", arguments(("id",), id=TEXT, limit={"type": "integer", "default": 3}), ISSUE),
    tool("list"),
]


def compiled(folder: Path, sources: Sequence[LibrarySource]) -> Library:
    """As by a portal that has just started."""
    return Library.compile(sources, None, NamespaceCache(folder / "library"))


def files(folder: Path) -> list[Path]:
    return sorted((folder / "library").iterdir())


def told(function: Function) -> tuple[object, ...]:
    """All that anybody asks a function."""
    texts = function.signature, function.stub, function.definition, function.summary, function.description
    names = function.namespace, function.name, function.upstream, function.tool, function.returns
    claims = function.wraps_result, function.takes_others, function.is_observable, function.is_observed
    return *texts, *names, *claims, function.types, function.parameters, function.arguments, function.digest


def assert_same(one: Library, other: Library) -> None:
    assert one.functions.keys() == other.functions.keys()
    for name, function in one.functions.items():
        assert told(function) == told(other.functions[name])
    for name, namespace in one.namespaces.items():
        known = other.namespaces[name]
        assert (namespace.module, namespace.summary) == (known.module, known.summary)
        assert (namespace.digest, namespace.observed_types) == (known.digest, known.observed_types)
    assert one.diagnostics == other.diagnostics


def test_what_was_compiled_is_the_same_the_next_time(tmp_path: Path) -> None:
    whole = replace(
        source(*TOOLS), observed={"list": {"type": "array", "items": {"properties": {"id": TEXT}}}}
    )
    nasty = source(*nasty_tools(), namespace="nasty", upstream="nasty")
    first = compiled(tmp_path, [whole, nasty])
    second = compiled(tmp_path, [whole, nasty])
    assert not second.namespaces["tickets"].compiled, "it was compiled again"
    assert_same(first, second)
    assert_same(second, Library.compile([whole, nasty]))


def test_another_definition_is_compiled(tmp_path: Path) -> None:
    compiled(tmp_path, [source(*TOOLS)])
    sources = [
        source(tool("get"), tool("list")),
        source(*TOOLS[:1]),
        replace(source(*TOOLS), observed={"list": TEXT}),
        source(*TOOLS, upstream="other"),
        replace(source(*TOOLS), summary="Other issues."),
    ]
    for each in sources:
        assert_same(compiled(tmp_path, [each]), Library.compile([each]))
    assert len(files(tmp_path)) == 1 + len(sources)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data.replace(b"get", b"got"),
        lambda data: data[:32] + b"{}",
        lambda data: b"[" * 1_000_000,
    ],
)
def test_a_damaged_file_is_replaced(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    expected = compiled(tmp_path, [source(*TOOLS)])
    [file] = files(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert_same(compiled(tmp_path, [source(*TOOLS)]), expected)
    assert file.read_bytes() == whole


def test_what_others_could_have_written_is_not_read(tmp_path: Path) -> None:
    compiled(tmp_path, [source(*TOOLS)])
    [file] = files(tmp_path)
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
    file.chmod(0o666)
    assert compiled(tmp_path, [source(*TOOLS)]).namespaces["tickets"].compiled
    assert not compiled(tmp_path, [source(*TOOLS)]).namespaces["tickets"].compiled, "it was not replaced"
    file.parent.chmod(0o777)
    assert compiled(tmp_path, [source(*TOOLS)]).namespaces["tickets"].compiled


def test_a_folder_that_cannot_be_had_costs_the_time_only(tmp_path: Path) -> None:
    (tmp_path / "library").write_text("in the way")
    assert_same(compiled(tmp_path, [source(*TOOLS)]), Library.compile([source(*TOOLS)]))


def test_the_folder_is_bounded_and_what_was_used_last_stays(tmp_path: Path) -> None:
    compiled(tmp_path, [source(*TOOLS)])
    [used] = files(tmp_path)
    old = used.with_name("old.json")
    with old.open("wb") as file:
        file.truncate(MAX_BYTES)
    os.utime(old, (1, 1))
    compiled(tmp_path, [source(*TOOLS)])
    compiled(tmp_path, [source(*TOOLS, upstream="other")])
    assert len(files(tmp_path)) == 2
    assert used in files(tmp_path)


def test_a_change_while_scripts_run_is_not_written(tmp_path: Path) -> None:
    cache = NamespaceCache(tmp_path / "library")
    first = Library.compile([source(*TOOLS)], None, cache)
    Library.compile([replace(source(*TOOLS), observed={"list": TEXT})], first, cache)
    assert len(files(tmp_path)) == 1
