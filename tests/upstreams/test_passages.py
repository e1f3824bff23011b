"""Passages to look at are cut between escapes only."""

import re

import pytest

from tests.upstreams.at_once import at_once
from upstreams.passages import Clue, passages, put_together, taken_apart


@pytest.mark.parametrize("between", range(40))
def test_passage_neither_begins_nor_ends_within_an_escape(between: int) -> None:
    escapes = rb"\\\\\u005c\\\n"
    text = b"-" * 40 + escapes + b"-" * between + b"x" + b"-" * between + escapes + b"-" * 40
    [(start, end)] = at_once(passages(text, [Clue(re.compile(b"x"), bytes_before=20, longest_bytes=10)]))
    assert text[start:end].count(b"\\") % escapes.count(b"\\") == 0
    assert start <= 40 + len(escapes) + between - 20 or start == 0
    assert end >= 40 + len(escapes) + between + 20


def test_what_is_found_in_passages_put_together_is_where_it_stands_in_the_text() -> None:
    text, places = b"..abc...de.f", [(2, 5), (8, 10), (11, 12)]
    together = put_together(text, places)
    found = [(together.index(each), together.index(each) + len(each)) for each in (b"a", b"bc", b"e", b"f")]
    assert at_once(taken_apart(found, places)) == [(2, 3), (3, 5), (9, 10), (11, 12)]
