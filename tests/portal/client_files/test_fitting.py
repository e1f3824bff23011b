"""What variables of a manifest stand for is found in a server's text, whatever hostile files make of either."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portal.client_files.fitting import Gap, fitted
from tests.portal.client_files.homes import Home

A, B, C = Gap("A"), Gap("B"), Gap("C")


@pytest.mark.parametrize(
    ("pieces", "text", "found"),
    [
        (["x"], "x", {}),
        (["x"], "xy", None),
        (["Bearer ", A], "Bearer abc", {"A": "abc"}),
        (["https://", A, "@", B, "/mcp"], "https://me@host/mcp", {"A": "me", "B": "host"}),
        ([A, "/x"], "a/x/x", {"A": "a/x"}),
        ([A, B, "b"], "aaab", {"A": "aaa", "B": ""}),
        ([A, "-", A], "ab-ab", {"A": "ab"}),
        ([A, "-", A], "ab-ac", None),
        ([Gap(None), "-", Gap(None)], "ab-ac", {}),
        (["ab", A, "bc"], "abc", None),
        ([], "", {}),
    ],
)
def test_gaps_get_what_is_between_the_pieces(
    pieces: list[str | Gap], text: str, found: dict[str, str] | None
) -> None:
    assert fitted(pieces, text) == found


@given(st.lists(st.text("ab", max_size=3), min_size=1, max_size=5), st.text("ab", max_size=12))
def test_it_is_found_whenever_there_is_something(literals: list[str], text: str) -> None:
    pieces: list[str | Gap] = [literals[0]]
    for number, literal in enumerate(literals[1:]):
        pieces += [Gap(f"G{number}"), literal]
    found = fitted(pieces, text)
    assert (found is not None) is bool(re.fullmatch(".*".join(literals), text))
    if found is not None:
        assert "".join(found[p.name or ""] if isinstance(p, Gap) else p for p in pieces) == text


def test_many_gaps_in_a_long_text_are_no_work() -> None:
    assert fitted([A, B, C, Gap("D"), "b"], "a" * 1_000_000) is None
    assert fitted([A, "a" * 500_000 + "b", B, "c"], "a" * 1_000_000) is None
    assert fitted([A, "-", *[A] * 100_000], "a" * 1_000_000 + "-") is None


def test_server_with_a_long_argument_is_compared_with_many_references(home: Home) -> None:
    written = "upstreams: {a: {command: run, args: ['${A1}${A2}${A3}${A4}b']}}"
    home.servers("cursor", long={"command": "run", "args": ["a" * 20_000]})
    (taken,) = home.merged(written).taken
    assert taken.is_new
    home.servers("cursor", long={"command": "run", "args": ["a" * 20_000 + "b"]})
    (taken,) = home.merged(written).taken
    assert not taken.is_new
