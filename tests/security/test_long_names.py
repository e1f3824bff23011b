"""What strangers send in great numbers costs time in proportion: names, marks, keywords, texts and types."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path

import anyio
import pytest

from manifests.json_value import Json
from manifests.names import identifier
from portal.catalog.check.checker import Checker
from portal.catalog.check.diagnostics import syntax_diagnostics
from portal.catalog.check.language_server import Finding, TypeChecker
from portal.catalog.check.ty_findings import TypeFindings
from portal.catalog.check.ty_server import TyServer
from portal.catalog.search.query import _without_accents
from portal.catalog.snapshot import Snapshot
from portal.library.arguments import ArgumentError, normalize_arguments, repaired
from portal.library.results import content_of, script_value
from sandbox_runtime.result import LibraryUse, Prepared, ScriptProblem
from tests.portal.library.sample_tools import an_object, arguments, function, library, tool
from upstreams.tools import MISSING, ToolResult

MARKS = "a" + "\u0301" * 20_000 + "\u0323" * 20_000
"""Whoever sorts these marks needs some seconds."""

TEXT: Json = {"type": "string"}
MANY = {f"parameter_{n}": TEXT for n in range(60)}


def refused(keywords: list[str]) -> None:
    with pytest.raises(ArgumentError):
        normalize_arguments(function(arguments(**MANY)), dict.fromkeys(keywords, 1), repairs=True)


def item() -> None:
    labels = function(arguments(labels={"type": "array", "items": TEXT}))
    assert repaired(labels, {"labels": "a" * 200_000 + "!"}) is None


def compiled_types() -> None:
    """Five thousand types of one name, which all differ."""

    def titled(*path: int) -> Json:
        inner = {f"q{n}": titled(*path, n) for n in range(200)} if len(path) == 2 else {}
        return {**an_object(**{f"is_{path}": TEXT}, **inner), "title": "X"}

    library(*(tool(f"t{'_' * n}", arguments(**{f"p{m}": titled(n, m) for m in range(4)})) for n in range(6)))


def repeated() -> None:
    fields = {f"k{n}": n for n in range(20_000)}
    result = ToolResult([{"type": "text", "text": "t"}] * 5_000, fields, False)
    assert len(content_of(result, script_value(result, None))[1]) == 5_000


def alike() -> None:
    """Texts that differ from each part of the data at their end."""
    texts: list[Json] = [{"type": "text", "text": f"[{'[],' * 2_500}{n}]"} for n in range(150)]
    fields = {f"k{n}": [*[[]] * 2_500, -n - 1] for n in range(200)}
    result = ToolResult(texts, fields, False)
    assert len(content_of(result, script_value(result, None))[1]) == 150


def literals() -> None:
    text: Json = {"type": "text", "text": f"[{'(),' * 30_000}]"}
    result = ToolResult([text] * 40, MISSING, False)
    content_of(result, script_value(result, None))


def snapshot(**results: Json) -> Snapshot:
    """A library with these functions and what they return."""
    tools = (tool(name, arguments(), result) for name, result in results.items())
    return Snapshot(library(*tools), None, {}, {})


def blank_lines() -> None:
    checker = Checker(TypeChecker(Path(), TyServer))
    script = Prepared("np.array(1)\n" + "\n" * 200_000, uses=(LibraryUse("np", "array", 1),))
    anyio.run(checker.check, script, snapshot())


def told_results(result: Json, *names: str) -> set[str]:
    """What hints say of the results of these functions, after 1,000 mistakes in their use."""
    told = (
        ScriptProblem(1, "unknown_field", "r has no attribute 'b'", name, f"tickets.{name}", "r")
        for name in islice(cycle(names), 1_000)
    )
    results = snapshot(**dict.fromkeys(names, result))
    found = [*syntax_diagnostics(Prepared("r.b", problems=tuple(told)), results, repairs=True)]
    assert len(found) == 1_000
    return {each.hint for each in found if "It returns {" in each.hint}


def mistakes() -> None:
    assert told_results(an_object(**{f"p{n}": an_object(**MANY) for n in range(50)}), "get")


def calls() -> None:
    lists = {"anyOf": [{"type": "array", "items": {"anyOf": [TEXT, {"type": "array", "items": TEXT}]}}] * 5}
    uses = tuple(LibraryUse("tickets", "get", 1, 1, {"a": [n] * 30}) for n in range(300))
    library_ = library(tool("get", arguments(a=lists)))
    assert [*syntax_diagnostics(Prepared("", uses=uses), Snapshot(library_, None, {}, {}), repairs=True)]


def coroutines(text: str) -> None:
    """Each line uses the name of a coroutine as if it were its value; below them is the text."""
    names = [f"x{n}" for n in range(1_000)]
    source = "\n".join([*(f'{name}["a"]' for name in names), *(f"{name} = f()" for name in names), ""])
    script = Prepared((source + text * 100_000)[:100_000], frozenset({"tickets"}))
    message = "Cannot subscript object of type `CoroutineType[Any, Any, int]` with no `__getitem__` method"
    findings = [Finding("not-subscriptable", message, n, 0, n, len(f"x{n - 1}")) for n in range(1, 1_001)]
    found = [*TypeFindings(script, snapshot(), repairs=True).diagnostics(findings)]
    assert {each.code for each in found} == {"not_awaited"}


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Of computing: a machine may be busy."""
    began = time.thread_time()
    yield
    assert time.thread_time() - began < seconds


@pytest.mark.parametrize(
    "work",
    [
        lambda: identifier(MARKS),
        lambda: _without_accents(MARKS),
        lambda: library(tool("any", arguments(**{MARKS: TEXT}))),
        lambda: refused([MARKS]),
        lambda: refused([f"k{n}" for n in range(20_000)]),
        compiled_types,
        repeated,
        alike,
        literals,
        item,
        blank_lines,
        mistakes,
        calls,
        lambda: coroutines("# x0:x1:x2"),
        lambda: coroutines("# for for "),
        lambda: coroutines("x0    "),
        lambda: coroutines("\n"),
    ],
    ids=[
        *("identifier", "search", "property", "keyword", "keywords", "types", "texts", "alike", "literals"),
        *("item", "lines", "mistakes", "calls", "annotations", "loops", "spaces", "blank"),
    ],
)
def test_much_takes_no_longer_than_its_size(work: Callable[[], object]) -> None:
    with at_most(1.0):
        work()


def test_hints_show_the_results_of_a_few_functions_only() -> None:
    assert len(told_results(an_object(a=TEXT, c=TEXT), *(f"get_{n}" for n in range(100)))) == 8
