"""HTTP servers with one fault each, in processes of their own: what they do must not count as the portal's work.

    python -m benchmarks.faulty_http FAULT

It tells its URL, and serves until it is killed. It imports next to nothing, so that it starts quickly.
"""

import argparse
import asyncio
from typing import Final

from tests.upstreams.faults import http_server
from tests.upstreams.faults.http_server import Exchange, Fault, FaultyHttpServer, acted, status

NO_FAULT: Final = "no fault, over HTTP"
NO_FAULT_CLOSING: Final = "no fault, each on its connection"


async def succeed_and_close(exchange: Exchange) -> None:
    exchange.act()
    await exchange.send("200 OK", exchange.body(), Connection="close")
    exchange.close()


async def trickled_body(exchange: Exchange) -> None:
    body = exchange.body()
    await exchange.send("200 OK", length=len(body))
    for byte in body:
        await exchange.raw(bytes([byte]))


EVENTS_OF_NOTHING: Final = {
    "comments": b":\n",
    "blank lines": b"\n",
    "ids": b"id: 1\n\n",
    "other kinds": b"event: x\ndata: y\n\n",
    "empty data": b"data:\n",
    "data without end": b"data: x\n",
}
FAULTS: Final[dict[str, Fault]] = {
    NO_FAULT: Exchange.succeed,
    NO_FAULT_CLOSING: succeed_and_close,
    "HTTP 401": status("401 Unauthorized"),
    "HTTP 429": status("429 Too Many Requests"),
    "HTTP 503": status("503 Service Unavailable"),
    "hang": acted(http_server.hang),
    "reset": acted(http_server.reset),
    "reset in the body": acted(http_server.reset_in_the_body),
    "endless body": acted(http_server.body_that_never_ends),
    "compressed bomb": acted(http_server.compressed_bomb),
    "event stream and silence": acted(http_server.event_stream_and_silence),
    "event stream broken off": http_server.event_stream_broken_off,
    **{
        f"event stream of {name}": acted(http_server.flood_of_events(unit))
        for name, unit in EVENTS_OF_NOTHING.items()
    },
    "trickled body": acted(trickled_body),
    "too many values": acted(http_server.too_many_values),
}
"""Of each call."""

UNASKED: Final[dict[str, Fault]] = {
    f"unasked stream of {name}": http_server.flood_of_events(unit)
    for name, unit in {
        **EVENTS_OF_NOTHING,
        "notices": http_server.notice(10_000),
        "long notices": http_server.notice(1_000_000),
    }.items()
}
"""Of the stream that the portal listens to meanwhile."""


async def serve(name: str) -> None:
    server = FaultyHttpServer(Exchange.succeed if name in UNASKED else FAULTS[name], always=True)
    server.unasked = UNASKED.get(name)
    async with server.serving():
        print(server.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fault")
    asyncio.run(serve(parser.parse_args().fault))
