"""Long answers are read at a pace that leaves time to others."""

import pytest

from upstreams.pace import BYTES_AT_ONCE, BYTES_BETWEEN_RESTS, REST_SECONDS, Pace

PIECE = 64 * 1024


def seconds_for(size: int) -> float:
    pace = Pace()
    return sum(pace.rest_seconds(read) for read in range(PIECE, size + 1, PIECE))


def test_what_is_long_rests_after_each_piece() -> None:
    assert seconds_for(BYTES_AT_ONCE + 4 * BYTES_BETWEEN_RESTS) == pytest.approx(5 * REST_SECONDS)


def test_what_is_not_so_long_never_rests() -> None:
    assert seconds_for(BYTES_AT_ONCE - PIECE) == 0
