"""The proxy and the certificates that the environment names for an upstream, and the errors if they fail."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from anyio.abc import SocketAttribute, SocketStream

from tests.upstreams.peers import fleet_at
from tests.upstreams.raw_http_server import RawHttpServer
from upstreams.errors import UpstreamUnavailableError
from upstreams.http_client import Route, trusted_authorities

HERE = "http://127.0.0.1:8000/mcp"
NOWHERE = httpx2.ConnectError("All connection attempts failed")
UNTRUSTED = httpx2.ConnectError(
    "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate"
)


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    for name in os.environ:
        if name.lower().endswith("_proxy") or name.startswith("SSL_CERT"):
            monkeypatch.delenv(name)

    return lambda **variables: [monkeypatch.setenv(*each) for each in variables.items()]


@pytest.mark.parametrize(
    ("url", "variables", "proxy"),
    [
        (HERE, {}, None),
        (HERE, {"HTTP_PROXY": "http://p:1"}, "HTTP_PROXY=http://p:1"),
        (HERE, {"http_proxy": "http://p:1", "HTTP_PROXY": "http://q:1"}, "http_proxy=http://p:1"),
        (HERE, {"HTTP_PROXY": "http://bob:s3cret@p:1/x?y"}, "HTTP_PROXY=http://p:1"),
        (HERE, {"HTTP_PROXY": "p:1"}, "HTTP_PROXY=http://p:1"),
        (HERE, {"HTTPS_PROXY": "http://p:1"}, None),
        ("https://a.example", {"HTTPS_PROXY": "http://p:1"}, "HTTPS_PROXY=http://p:1"),
        (HERE, {"ALL_PROXY": "socks5h://p:1"}, "ALL_PROXY=socks5h://p:1"),
        (HERE, {"ALL_PROXY": "socks://p:1", "NO_PROXY": "127.0.0.0/8"}, None),
        (HERE, {"ALL_PROXY": "http://p:1", "NO_PROXY": "other.example"}, "ALL_PROXY=http://p:1"),
    ],
)
def test_proxy_of_an_upstream_is_what_the_environment_says(
    environ: Callable[..., None], url: str, variables: dict[str, str], proxy: str | None
) -> None:
    environ(**variables)
    route = Route.to(url)
    assert route.variable == (proxy or "") and bool(route.proxy) == bool(proxy)
    assert route.variable in route.explain(NOWHERE)


@pytest.mark.parametrize("value", ["socks://p:1", "socks4://p:1", "ftp://p:1", "http://p:x"])
def test_proxy_that_cannot_be_used_is_told_by_its_variable(environ: Callable[..., None], value: str) -> None:
    environ(ALL_PROXY=value)
    with pytest.raises(UpstreamUnavailableError, match="ALL_PROXY"):
        Route.to(HERE)


def test_error_names_the_host_and_the_certificates(environ: Callable[..., None]) -> None:
    route = Route.to("https://secret@tickets.example/mcp?key=secret")
    assert "(tickets.example:443)" in route.explain(NOWHERE) and "secret" not in route.explain(NOWHERE)
    assert "SSL_CERT_FILE" in route.explain(UNTRUSTED)
    environ(SSL_CERT_DIR="/etc/ours")
    assert "SSL_CERT_DIR=/etc/ours" in route.explain(UNTRUSTED)
    environ(SSL_CERT_FILE="/etc/ours.pem")
    assert "SSL_CERT_FILE=/etc/ours.pem" in route.explain(UNTRUSTED)


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
@pytest.mark.parametrize("is_there", [False, True])
def test_unreadable_certificates_are_named(
    environ: Callable[..., None], tmp_path: Path, variable: str, is_there: bool
) -> None:
    path = tmp_path / "ours"
    if is_there:
        path.write_text("no certificate")
    environ(**{variable: str(path)})
    with pytest.raises(UpstreamUnavailableError, match=f"{variable}={path}"):
        trusted_authorities.__wrapped__()


@asynccontextmanager
async def socks_proxy() -> AsyncIterator[tuple[int, list[bytes]]]:
    """A SOCKS5 proxy without credentials; yields its port and what it was asked for."""
    asked: list[bytes] = []

    async def serve(stream: SocketStream) -> None:
        async with stream, anyio.create_task_group() as tasks:
            await stream.receive()
            await stream.send(b"\x05\x00")
            request = await stream.receive()
            asked.append(request[3:])
            there = await anyio.connect_tcp("127.0.0.1", int.from_bytes(request[-2:], "big"))
            await stream.send(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")

            async def pump(source: SocketStream, sink: SocketStream) -> None:
                async for chunk in source:
                    await sink.send(chunk)
                tasks.cancel_scope.cancel()

            tasks.start_soon(pump, stream, there)
            await pump(there, stream)

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, serve)
        yield listener.extra(SocketAttribute.local_port), asked
        tasks.cancel_scope.cancel()


async def test_upstream_is_reached_through_a_socks_proxy(environ: Callable[..., None]) -> None:
    async with socks_proxy() as (port, asked):
        environ(ALL_PROXY=f"socks5://127.0.0.1:{port}")
        async with fleet_at(RawHttpServer().app) as fleet:
            await fleet.call("echo")
        assert asked
