"""The last words of a child are known, however much it writes."""

import anyio
import pytest

from tests.upstreams.streams import CHUNK_BYTES, Written
from upstreams.scrubber import Scrubber
from upstreams.stderr_tail import LINE_BYTES, LINES, PAUSE_SECONDS, StderrTail

pytestmark = pytest.mark.anyio

KEY = "key-0123456789"


class Counting(Scrubber):
    """Knows how many texts it was asked about."""

    count = 0

    def excerpt(self, text: bytes, limit: int = 120) -> str:
        self.count += 1
        return super().excerpt(text, limit)


async def followed(*chunks: bytes) -> tuple[StderrTail, int, float]:
    """What is known behind them, how many lines were looked at for it, and in how many seconds."""
    scrub = Counting([KEY])
    tail = StderrTail(scrub)
    began = anyio.current_time()
    await tail.follow(Written(chunks))
    assert tail.finished.is_set()
    return tail, scrub.count, anyio.current_time() - began


async def test_last_lines_are_known_without_secrets_and_blank_ones_and_with_what_has_not_ended() -> None:
    tail, _, _ = await followed(b"first\nsec", b"ond\n\n  \n", f"{KEY} third\nfour".encode(), b"th")
    assert tail.last_words() == "first | second | [hidden] third | fourth"
    assert tail.last_words(2) == "[hidden] third | fourth"


async def test_line_without_end_is_known_by_its_beginning() -> None:
    tail, _, _ = await followed(b"began ", *[b"x" * CHUNK_BYTES] * 20, b"\nlast\n")
    words = tail.last_words().split(" | ")
    assert [word[:6] for word in words] == ["began ", "last"]


async def test_secret_behind_many_blanks_is_not_cut() -> None:
    for ending in (b"", b" refused\n"):
        tail, _, _ = await followed(b" " * (LINE_BYTES - 10) + KEY[:4].encode(), KEY[4:].encode() + ending)
        assert tail.last_words().startswith("[hidden]")


@pytest.mark.parametrize("line", [b"x\n", b"\n", b"x" * 1_000 + b"\n"])
async def test_of_what_comes_at_once_the_last_lines_are_looked_at_and_then_is_rested(line: bytes) -> None:
    chunks = [line * (CHUNK_BYTES // len(line))] * 10
    tail, count, seconds = await followed(b"early\n", *chunks, b"the last\n")
    assert tail.last_words(1) == "the last"
    assert count <= LINES * len(chunks) + 3
    assert seconds >= 0.9 * len(chunks) * PAUSE_SECONDS


async def test_what_comes_without_a_newline_is_rested_from_too() -> None:
    *_, seconds = await followed(*[b"x" * CHUNK_BYTES] * 10)
    assert seconds >= 0.9 * 10 * PAUSE_SECONDS


async def test_many_small_pieces_are_rested_from_too() -> None:
    *_, seconds = await followed(*[b"x\n"] * 500)
    assert seconds >= 0.9 * 10 * PAUSE_SECONDS


async def test_last_words_before_many_blank_lines_are_kept() -> None:
    tail, _, _ = await followed(b"why\n", b"\n" * CHUNK_BYTES, b"\n" * CHUNK_BYTES)
    assert tail.last_words() == "why"
