"""A byte order mark in front of what an upstream says over HTTP, as Windows and PHP put it there, is no part of it."""

from codecs import BOM_UTF8

import pytest

from manifests.upstream_sections import HttpUpstream
from tests.upstreams.peers import DEADLINE_SECONDS, fleet_of, http_peer
from tests.upstreams.raw_http_server import RawHttpServer
from upstreams.http_body import ByteOrderMark
from upstreams.steps import STEP_BYTES

pytestmark = pytest.mark.anyio

REST = b'data: "' + BOM_UTF8 + b'"\n\n' + BOM_UTF8


@pytest.mark.parametrize("piece_bytes", [1, 2, 4, 1_000])
@pytest.mark.parametrize(
    ("front", "kept"),
    [(b"", b""), (BOM_UTF8, b""), (BOM_UTF8 * 2, BOM_UTF8), (BOM_UTF8[:2] + b"x",) * 2],
    ids=["none", "one", "two", "half"],
)
def test_only_the_one_at_the_beginning_is_dropped(front: bytes, kept: bytes, piece_bytes: int) -> None:
    mark, sent = ByteOrderMark(), front + REST
    pieces = [sent[start : start + piece_bytes] for start in range(0, len(sent), piece_bytes)]
    assert b"".join(mark.dropped_from(piece) for piece in pieces) == kept + REST


@pytest.mark.parametrize("size", [1, 2 * STEP_BYTES])
@pytest.mark.parametrize(
    ("as_events", "packs_events"),
    [(False, False), (True, False), (True, True)],
    ids=["body", "events", "packed events"],
)
async def test_what_stands_behind_one_is_read(as_events: bool, packs_events: bool, size: int) -> None:
    server = RawHttpServer()
    server.front, server.as_events, server.packs_events = BOM_UTF8, as_events, packs_events
    server.result_text = '{"content":[],"structuredContent":{"text":"%s"}}' % ("x" * size)
    async with (
        http_peer(server.app) as peer,
        fleet_of(raw=HttpUpstream(url=f"http://127.0.0.1:{peer.port}/mcp")) as fleet,
    ):
        result = await fleet["raw"].call("echo", {}, seconds=DEADLINE_SECONDS)
        assert result.structured == {"text": "x" * size}
