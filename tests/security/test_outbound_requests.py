"""The purpose of an outbound request decides what it may reach; upstreams/http_client.py has the table.

Fetches, webhooks and OAuth follow URLs and names of strangers. They reach no inner address, by name, by redirect or by
a name that changes, unless the operator names it: the twin. What the operator configures may be anywhere.
"""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import httpx2
import pytest

from manifests.grants import NetworkGrant
from manifests.loader import load_manifest
from manifests.portal_manifest import AuthSettings, HttpUpstream
from portal.app.replicas import ReplicaMiddleware
from portal.calls.fetch import Fetcher, FetchError, Network
from portal.identity.sign_in import Provider
from portal.runs.webhooks import network_of
from tests.portal.peers import write_manifest
from tests.sandbox_runtime.fetching import Names, redirect, response
from tests.upstreams.peers import fleet_of
from upstreams import http_client
from upstreams.oauth.authorization_server import (
    OAuthError,
    OAuthRefusedError,
    OAuthUnreachableError,
    open_guarded_http,
)

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("own_state")]

INNER = {
    "loopback.example": "127.0.0.1",
    "mapped.example": "::ffff:127.0.0.1",
    "private.example": "10.0.0.7",
    "link-local.example": "169.254.1.1",
    "metadata.example": "169.254.169.254",
    "metadata6.example": "fd00:ec2::254",
}


@dataclass
class Door:
    """Keeps the first bytes of each connection, and answers, by default with {}, or leads to `location`.

    `is_slow`: it does not answer the first connection.
    """

    port: int = 0
    location: str = ""
    answer: bytes = response(b"{}")
    is_slow: bool = False
    heard: list[bytes] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard.append(await reader.read(1 << 16))
        if self.is_slow and len(self.heard) == 1:
            await reader.read()  # until the client has gone
        writer.write(redirect(self.location, "307 Moved") if self.location else self.answer)
        writer.close()


@asynccontextmanager
async def listening(address: str = "127.0.0.1", port: int = 0, location: str = "") -> AsyncIterator[Door]:
    door = Door(port, location)
    async with await asyncio.start_server(door.serve, address, port) as server:
        door.port = server.sockets[0].getsockname()[1]
        yield door


@pytest.fixture
async def victim() -> AsyncIterator[Door]:
    async with listening() as door:
        yield door


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The answers of the system's resolver, in order."""
    answers = {name: [address] for name, address in INNER.items()} | {"tickets.example": ["93.184.216.34"]}
    resolve = socket.getaddrinfo

    def look_up(host: Any, port: Any, *more: Any, **named: Any) -> Any:
        found = answers.get(host.decode() if isinstance(host, bytes) else host)
        if found is None:
            return resolve(host, port, *more, **named)
        address = found.pop(0) if len(found) > 1 else found[0]
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return [(family, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    for variable in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.upper(), raising=False)
    return answers


Send: TypeAlias = Callable[[Path, str, bool], Awaitable[bool]]
"""Sends a request to a URL, which the operator names or not. Returns whether the guard let it go."""


async def fetched(network: Network, url: str, **more: bool) -> bool:
    try:
        await Fetcher(network).fetch({"url": url, **more}, lambda: None)
    except FetchError as error:
        return error.call_error.code not in ("not_granted", "address_not_allowed")
    return True


async def by_fetch(folder: Path, url: str, is_named: bool) -> bool:
    host = httpx2.URL(url).netloc.decode()
    grant = NetworkGrant(allow=("*", host), private=(host,) if is_named else ())
    return await fetched(Network(grant, str), url)


async def by_webhook(folder: Path, url: str, is_named: bool) -> bool:
    """Its operator names the host, but its name may lead to an inner address only if it is granted."""
    private = [httpx2.URL(url).netloc.decode()] if is_named else ["other.example"]
    manifest = load_manifest(write_manifest(folder, {}, capabilities={"network": {"private": private}}), {})
    return await fetched(network_of(url, manifest), url, follow_redirects=False)


async def by_oauth(folder: Path, url: str, is_named: bool) -> bool:
    upstream = "http://127.0.0.1:1/mcp" if url.startswith("http:") else "https://tickets.example/mcp"
    try:
        async with open_guarded_http(upstream, url if is_named else None) as http:
            await http.find(httpx2.Request("GET", url))
    except OAuthError as error:
        assert isinstance(error, OAuthRefusedError | OAuthUnreachableError)
        return isinstance(error, OAuthUnreachableError)
    return True


async def by_sign_in(folder: Path, url: str, is_named: bool) -> bool:
    return bool(await Provider(AuthSettings(issuer=url, audience="https://portal.example")).fault())


async def by_replica(folder: Path, url: str, is_named: bool) -> bool:
    runs: Any = SimpleNamespace(store=None)
    with suppress(httpx2.HTTPError):
        await ReplicaMiddleware(by_replica, runs).client.get(url)  # type: ignore[arg-type]
    return True


async def by_upstream(folder: Path, url: str, is_named: bool) -> bool:
    async with fleet_of(up=HttpUpstream(url=f"{url}/mcp")):
        return True


GUARDED = [by_fetch, by_webhook, by_oauth]
TRUSTED = [by_sign_in, by_replica, by_upstream]


@pytest.mark.parametrize("send", GUARDED)
@pytest.mark.parametrize("name", INNER)
async def test_name_of_an_inner_address_is_not_reached(
    tmp_path: Path, victim: Door, send: Send, name: str
) -> None:
    assert not await send(tmp_path, f"https://{name}:{victim.port}", False)
    assert victim.heard == []
    assert await send(tmp_path, f"https://loopback.example:{victim.port}", True)
    assert [each[:2] for each in victim.heard] == [b"\x16\x03"], "the twin speaks TLS"


@pytest.mark.parametrize("send", [by_fetch, by_oauth])
@pytest.mark.parametrize(
    "host", ["127.0.0.1", "10.0.0.7", "169.254.1.1", "169.254.169.254", "[fd00:ec2::254]", "[::]"]
)
async def test_inner_address_is_not_reached(tmp_path: Path, victim: Door, send: Send, host: str) -> None:
    assert not await send(tmp_path, f"https://{host}:{victim.port}", False)
    assert victim.heard == []
    assert await send(tmp_path, f"https://127.0.0.1:{victim.port}", True)
    assert len(victim.heard) == 1


@pytest.mark.parametrize("send", TRUSTED)
async def test_what_the_operator_configures_may_be_at_an_inner_address(
    tmp_path: Path, victim: Door, send: Send
) -> None:
    assert await send(tmp_path, f"https://loopback.example:{victim.port}", True)
    assert {each[:2] for each in victim.heard} == {b"\x16\x03"}


@pytest.mark.parametrize("send", [*GUARDED, *TRUSTED])
async def test_no_redirect_leads_to_another_host(tmp_path: Path, victim: Door, send: Send) -> None:
    async with listening(location=f"http://loopback.example:{victim.port}/inner") as door:
        await send(tmp_path, f"http://127.0.0.1:{door.port}", True)
        assert door.heard and victim.heard == []
        door.location = ""
        await send(tmp_path, f"http://127.0.0.1:{door.port}", True)
        assert victim.heard == []


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address")
@pytest.mark.parametrize("send", GUARDED)
async def test_name_that_changes_after_the_check_leads_where_it_was_checked(
    tmp_path: Path, names: dict[str, list[str]], send: Send
) -> None:
    async with listening() as door, listening("127.0.0.2", door.port) as other:
        names["flips.example"] = ["127.0.0.1", "127.0.0.2"]
        assert await send(tmp_path, f"https://flips.example:{door.port}", True)
        assert door.heard and other.heard == []
        assert await send(tmp_path, f"https://flips.example:{door.port}", True)
        assert other.heard, "the twin: a later request looks the name up again"


async def test_address_that_is_slow_is_tried_again_after_a_broken_one(
    victim: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "_ADDRESS_SECONDS", 0.1)
    victim.is_slow = True
    host = f"slow.example:{victim.port}"
    resolve = Names({"slow.example": [["127.0.0.1", "::1"]]})
    network = Network(NetworkGrant(private=(host,)), str, resolve=resolve)
    assert await fetched(network, f"https://{host}/")
    assert len(victim.heard) == 2, "and no more: the answer to the second is no TLS"


async def test_host_is_sent_in_the_form_that_was_checked(victim: Door) -> None:
    network = Network(NetworkGrant(private=(f"loopback.example:{victim.port}",)), str)
    assert await fetched(network, f"http://LOOPBACK.example.:{victim.port}/")
    assert f"Host: loopback.example:{victim.port}\r\n".encode() in victim.heard[0]


@pytest.mark.parametrize(
    "header", ["Content-Encoding: utf-8", "Content-Encoding: none", "WWW-Authenticate: \xe4"]
)
async def test_odd_header_costs_no_answer(victim: Door, header: str) -> None:
    name, _, value = header.partition(": ")
    request = httpx2.Request("GET", f"http://127.0.0.1:{victim.port}/")
    async with http_client.guarded_client(http_client.Guard()) as http:
        victim.answer = response(b"{}", **{name: value})
        assert (await http_client.exchange(http, request, 10)).content == b"{}"
        victim.answer = response(b"{}", Content_Encoding="br")
        with pytest.raises(http_client.AnswerError):
            await http_client.exchange(http, request, 10)


async def test_cookie_of_one_client_is_not_sent_for_another(victim: Door) -> None:
    async def url(query: object) -> str:
        return f"http://127.0.0.1:{victim.port}"

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        heads.extend(message.get("headers", ()))

    heads: list[tuple[bytes, bytes]] = []
    victim.answer = response(b"{}", Set_Cookie="key=secret")
    runs: Any = SimpleNamespace(store=SimpleNamespace(holder="0" * 16, read=url))
    other = ReplicaMiddleware(by_replica, runs)  # type: ignore[arg-type]
    session = (b"mcp-session-id", b"1" * 16 + b".session")
    scope = {"type": "http", "path": "/mcp", "method": "GET", "query_string": b""}
    await other({**scope, "headers": [session, (b"cookie", b"own=1")]}, receive, send)
    await other({**scope, "headers": [session]}, receive, send)
    assert heads.count((b"Set-Cookie", b"key=secret")) == 2
    assert b"own=1" in victim.heard[0] and b"cookie" not in victim.heard[1].lower()
