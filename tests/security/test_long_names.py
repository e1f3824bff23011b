"""What strangers send in great numbers costs time in proportion: names, marks, keywords, texts and types."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from manifests.json_value import Json
from manifests.names import identifier
from portal.catalog.search.query import _without_accents
from portal.library.arguments import ArgumentError, normalize_arguments, repaired
from portal.library.results import content_of, script_value
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


def literals() -> None:
    text: Json = {"type": "text", "text": f"[{'(),' * 30_000}]"}
    result = ToolResult([text] * 40, MISSING, False)
    content_of(result, script_value(result, None))


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
        literals,
        item,
    ],
    ids=["identifier", "search", "property", "keyword", "keywords", "types", "texts", "literals", "item"],
)
def test_much_takes_no_longer_than_its_size(work: Callable[[], object]) -> None:
    with at_most(1.0):
        work()
