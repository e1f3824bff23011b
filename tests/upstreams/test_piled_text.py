"""A text that comes bit by bit is put together in steps, and holds no more memory than it has bytes."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.upstreams.at_once import at_once, counted
from upstreams.piled_text import PiledText
from upstreams.steps import STEP_BYTES

CUTS = st.lists(st.integers(0, 3 * STEP_BYTES), max_size=20)


def piled(cuts: list[int]) -> tuple[PiledText, bytes]:
    text = b"".join(bytes([number % 251]) * size for number, size in enumerate(cuts))
    pile, place = PiledText(), 0
    for size in cuts:
        pile.add(memoryview(text)[place : place + size])
        place += size
    return pile, text


@given(CUTS)
def test_what_was_added_is_taken_whole_and_once(cuts: list[int]) -> None:
    pile, text = piled(cuts)
    assert len(pile) == len(text)
    assert at_once(pile.taken()) == text
    assert (len(pile), at_once(pile.taken())) == (0, b"")


@given(CUTS, st.integers(1, STEP_BYTES), st.integers(0, STEP_BYTES))
def test_its_start_and_its_end_are_those_of_the_text(cuts: list[int], count: int, more: int) -> None:
    pile, text = piled(cuts)
    assert pile.start(count) == text[:count]
    at_once(pile.keep_end(count))
    assert len(pile) == min(count, len(text))
    pile.add(b"m" * more)
    assert at_once(pile.taken()) == text[-count:] + b"m" * more


def test_what_is_taken_can_be_added_to_again() -> None:
    pile, text = piled([STEP_BYTES] * 10)
    assert at_once(pile.taken()) == text
    pile.add(b"more")
    assert at_once(pile.taken()) == b"more"


@pytest.mark.parametrize("work", [PiledText.taken, lambda pile: pile.keep_end(1)], ids=["taken", "keep_end"])
def test_each_megabyte_is_a_step_or_more_of_its_own(work) -> None:
    pile, _ = piled([STEP_BYTES] * 160)
    _, steps = counted(work(pile))
    assert steps >= 9


def test_text_that_comes_byte_by_byte_takes_hardly_more_memory_than_it_has_bytes() -> None:
    pile = PiledText()
    for _ in range(4 * STEP_BYTES):
        pile.add(b"x")
    held = sum(map(sys.getsizeof, pile._pieces))
    assert held < 1.2 * len(pile)
