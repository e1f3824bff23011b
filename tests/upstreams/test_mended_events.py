"""Streams of events are mended line by line, however they are cut into pieces."""

import pytest

from tests.upstreams.streams import Pieces
from upstreams.masking import CredentialMask
from upstreams.mended_events import MendedLines
from upstreams.steps import STEP_BYTES

pytestmark = pytest.mark.anyio

BROKEN = b'data: "\\ud83d"'
MENDED = b'data: "\\ufffd"'


async def read(*pieces: bytes) -> bytes:
    return b"".join([piece async for piece in MendedLines(Pieces(pieces), CredentialMask(()))])


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("piece_bytes", [17, 1_000, STEP_BYTES])
async def test_lines_are_mended_and_long_ones_left_to_their_own_reader(end: bytes, piece_bytes: int) -> None:
    long = BROKEN + b" " * (STEP_BYTES + 2 * piece_bytes)
    sent = BROKEN + end + long + end + BROKEN + end * 2
    pieces = [sent[start : start + piece_bytes] for start in range(0, len(sent), piece_bytes)]
    assert await read(*pieces) == MENDED + end + long + end + MENDED + end * 2
