"""A connection whose other side is gone without a word does not stay open for good."""

import socket

import pytest
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tests.upstreams.peers import http_peer
from upstreams.http_client import SseHttpClient, UpstreamHttpClient
from upstreams.kept_alive import PROBE_SECONDS, PROBES, SILENT_SECONDS, KeptAliveClient, keepalive_options

pytestmark = pytest.mark.anyio


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Says which host it was asked for, also as a proxy."""
    if scope["type"] == "http":
        await PlainTextResponse(Headers(scope=scope)["host"])(scope, receive, send)


@pytest.mark.parametrize("through_proxy", [False, True])
async def test_connection_is_asked_for_a_sign_of_life(
    through_proxy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with http_peer(answer) as peer:
        url = f"http://127.0.0.1:{peer.port}/"
        if through_proxy:
            monkeypatch.setenv("http_proxy", url)
            url = "http://upstream.invalid/"
        async with KeptAliveClient() as client, client.stream("GET", url) as response:
            raw: socket.socket = response.extensions["network_stream"].get_extra_info("socket")
            options = {(level, name): raw.getsockopt(level, name) for level, name, _ in keepalive_options()}
            assert (await response.aread()).decode() == url.split("/")[2]
    assert options[socket.SOL_SOCKET, socket.SO_KEEPALIVE] == 1
    assert options[socket.IPPROTO_TCP, socket.TCP_KEEPINTVL] == PROBE_SECONDS
    assert options[socket.IPPROTO_TCP, socket.TCP_KEEPCNT] == PROBES
    if hasattr(socket, "TCP_KEEPIDLE"):
        assert options[socket.IPPROTO_TCP, socket.TCP_KEEPIDLE] == SILENT_SECONDS


@pytest.mark.parametrize("client", [UpstreamHttpClient, SseHttpClient])
def test_clients_of_both_transports_do(client: type) -> None:
    assert issubclass(client, KeptAliveClient)
