"""What networks do to a connection: routes that vanish, resets, servers that go and come back, wrong TLS."""

import ssl
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from mcp.server.mcpserver import MCPServer

from tests.upstreams.faults.bench import Seen, bench
from tests.upstreams.faults.http_server import FaultyHttpServer
from tests.upstreams.faults.proxy import Proxy
from tests.upstreams.peers import closed_port, http_peer

pytestmark = pytest.mark.anyio

OK = Seen("ok", "done")
LATE = Seen("upstream_timeout", "unknown")
LOST = Seen("upstream_lost", "unknown")
DOWN = Seen("upstream_unavailable", "not_started")
ABSENT = Seen("upstream_unavailable", "refused")


async def test_vanished_route_is_noticed_and_the_upstream_comes_back_with_it(tmp_path: Path) -> None:
    async with FaultyHttpServer().serving() as server, Proxy(server.port).serving() as proxy:
        entry = {"url": proxy.url, "call_seconds": 0.5, "connect_seconds": 1}
        async with bench(tmp_path, entry) as bench_:
            assert await bench_.call("faulty.fine") == OK
            proxy.mode = "hole"
            assert await bench_.call_beside("faulty.act") == LATE
            await bench_.watched.until(lambda: bench_.watched["faulty"].state.status == "down")
            assert await bench_.call("faulty.act") == DOWN
            proxy.mode = "pass"
            await bench_.watched.until(lambda: bench_.watched["faulty"].state.status == "ready")
            assert await bench_.call("faulty.fine") == OK
            assert server.arrivals["act"] == 0


async def test_half_open_event_stream_is_noticed(tmp_path: Path) -> None:
    """On HTTP+SSE every answer comes over one stream: with it half-open, no call would ever be answered again."""
    real = MCPServer("real")

    @real.tool()
    def fine(n: int = 0) -> int:
        return n

    async with http_peer(real.sse_app()) as peer, Proxy(peer.port).serving() as proxy:
        url = proxy.url.replace("/mcp", "/sse")
        entry = {"url": url, "transport": "sse", "call_seconds": 1, "connect_seconds": 20}
        async with bench(tmp_path, entry) as bench_:
            assert await bench_.call("faulty.fine") == OK
            proxy.mode = "hole"
            assert await bench_.call_beside("faulty.fine") == LATE
            await bench_.watched.until(lambda: bench_.watched["faulty"].state.status != "ready")
            proxy.mode = "pass"
            await bench_.watched.until(lambda: bench_.connections == 2)
            assert await bench_.call("faulty.fine") == OK


async def test_answer_that_is_cut_is_unknown(tmp_path: Path) -> None:
    async with (
        FaultyHttpServer().serving() as server,
        Proxy(server.port).serving() as proxy,
        bench(tmp_path, {"url": proxy.url}) as bench_,
    ):
        proxy.mode = "cut"
        assert await bench_.call_beside("faulty.act") == LOST
        assert server.effects["act"] == 1
        proxy.mode = "pass"
        assert await bench_.call("faulty.fine") == OK


async def test_server_that_goes_away_is_down_and_ready_when_it_is_back(tmp_path: Path) -> None:
    async with FaultyHttpServer().serving() as server, AsyncExitStack() as there:
        proxy = await there.enter_async_context(Proxy(server.port).serving())
        async with bench(tmp_path, {"url": proxy.url}) as bench_:
            await there.aclose()
            assert await bench_.call_beside("faulty.act") == DOWN
            assert bench_.watched["faulty"].state.status == "down"
            async with Proxy(server.port).serving(proxy.port):
                await bench_.watched.until(lambda: bench_.watched["faulty"].state.status == "ready")
                assert await bench_.call("faulty.act") == OK
        assert server.effects["act"] == 1


async def test_server_that_was_never_there_is_down(tmp_path: Path) -> None:
    async with bench(tmp_path, {"url": f"http://127.0.0.1:{closed_port()}/mcp"}) as bench_:
        assert await bench_.call_beside("faulty.fine") == ABSENT


async def test_certificate_that_nobody_signed_is_not_trusted(tmp_path: Path) -> None:
    async with (
        FaultyHttpServer().serving(tls=self_signed(tmp_path)) as server,
        bench(tmp_path, {"url": server.url.replace("http:", "https:")}) as bench_,
    ):
        assert await bench_.call_beside("faulty.fine") == ABSENT
        assert "certificate" in bench_.watched["faulty"].state.detail.lower()
        assert not server.sessions


def self_signed(folder: Path) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = folder / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context
