"""Upstreams that lead the portal to addresses that they cannot reach themselves: none of them is connected to."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address

import anyio
import httpx2
import pytest
from anyio.abc import SocketAttribute, SocketStream
from starlette.requests import Request
from starlette.responses import Response

from manifests.constraints import Address
from tests.portal.peers import Peer
from tests.upstreams.oauth_peer import protected
from tests.upstreams.peers import fleet_of
from upstreams.oauth.authorization_server import (
    GuardedNetwork,
    OAuthError,
    OAuthRefusedError,
    OAuthUnreachableError,
    open_guarded_http,
)
from upstreams.oauth.login import log_in

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("own_state")]

PUBLIC, ALSO_PUBLIC = "93.184.216.34", "2606:2800:220:1::1"


@dataclass
class NameServer:
    """Answers for names with the addresses given, one set after the other, and for addresses with themselves."""

    names: dict[str, list[list[str]]]
    asked: list[str] = field(default_factory=list)

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        self.asked.append(host)
        if host not in self.names:
            return [ip_address(int(host) if host.isdigit() else host)]
        answers = self.names[host]
        return [ip_address(each) for each in (answers.pop(0) if len(answers) > 1 else answers[0])]


def names(**places: str | list[str]) -> NameServer:
    """`tickets` is `tickets.example`."""
    return NameServer(
        {f"{name}.example": [[at] if isinstance(at, str) else at] for name, at in places.items()}
    )


@dataclass
class Listener:
    """Takes connections on a loopback port, and says nothing."""

    port: int = 0
    first_bytes: list[bytes] = field(default_factory=list)

    async def serve(self, stream: SocketStream) -> None:
        async with stream:
            self.first_bytes.append(await stream.receive())


@asynccontextmanager
async def listening() -> AsyncIterator[Listener]:
    listener = Listener()
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as server:
        listener.port = server.extra(SocketAttribute.local_port)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, listener.serve)
            yield listener
            tasks.cancel_scope.cancel()


async def asked(
    url: str,
    name_server: NameServer,
    upstream: str = "https://tickets.example/mcp",
    issuer: str | None = None,
) -> OAuthError:
    """The error of a request to a port that does not speak TLS."""
    with pytest.raises(OAuthError) as caught:
        async with open_guarded_http(upstream, issuer, name_server) as http:
            await http.ask(httpx2.Request("GET", url))
    return caught.value


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1:{port}/",
        "https://[::ffff:7f00:1]:{port}/",
        "https://2130706433:{port}/",
        "https://inner.example:{port}/admin",
        "https://10.0.0.5/admin",
        "https://169.254.169.254/latest/meta-data",
        "https://metadata.example/",
    ],
)
async def test_public_upstream_leads_to_nobody_on_this_machine_or_its_networks(url: str) -> None:
    name_server = names(tickets=PUBLIC, inner="127.0.0.1", metadata="169.254.169.254")
    async with listening() as listener:
        assert isinstance(await asked(url.format(port=listener.port), name_server), OAuthRefusedError)
    assert listener.first_bytes == []


@pytest.mark.parametrize(
    ("upstream", "issuer"),
    [
        ("http://127.0.0.1:1/mcp", None),  # it is on this machine itself
        ("https://inner.example/mcp", None),  # it is the very host
        ("https://tickets.example/mcp", "https://inner.example"),  # the manifest names it
        ("https://tickets.example/mcp", "https://near.example/x"),  # or one as near
    ],
)
async def test_server_on_this_machine_is_asked_where_the_manifest_leads_there(
    upstream: str, issuer: str | None
) -> None:
    name_server = names(tickets=PUBLIC, inner="127.0.0.1", near="127.0.0.2")
    async with listening() as listener:
        url = f"https://inner.example:{listener.port}/"
        assert isinstance(await asked(url, name_server, upstream, issuer), OAuthUnreachableError)
    assert [each[:2] for each in listener.first_bytes] == [b"\x16\x03"], "TLS was spoken, and not answered"


@pytest.mark.parametrize(
    ("own", "named", "left"),
    [
        (PUBLIC, [PUBLIC, ALSO_PUBLIC], [PUBLIC, ALSO_PUBLIC]),
        (PUBLIC, ["10.0.0.5", ALSO_PUBLIC], [ALSO_PUBLIC]),
        (PUBLIC, ["64:ff9b::a00:5", "::ffff:10.0.0.5", "0.0.0.0", "224.0.0.1"], []),
        ("10.1.1.1", ["10.0.0.5", "fd00::5", "169.254.169.254"], ["10.0.0.5", "fd00::5"]),
        ("127.0.0.1", ["10.0.0.5", "127.0.0.1", PUBLIC, "fe80::1"], ["10.0.0.5", "127.0.0.1", PUBLIC]),
        ([PUBLIC, "127.0.0.1"], ["127.0.0.1"], []),  # a host with two addresses is not private
        ("169.254.169.254", ["169.254.169.254", "10.0.0.5"], []),
        (
            "198.18.0.5",
            ["198.18.0.6", "10.0.0.5"],
            ["198.18.0.6"],
        ),  # a VPN makes up an address for every name
    ],
)
async def test_hosts_are_at_private_addresses_only_if_the_upstream_is(
    own: str | list[str], named: list[str], left: list[str]
) -> None:
    network = GuardedNetwork(["https://tickets.example/mcp"], names(tickets=own, login=named))
    if left:
        assert list(await network.addresses("login.example", 443)) == list(map(ip_address, left))
    else:
        with pytest.raises(OAuthRefusedError):
            await network.addresses("login.example", 443)


async def test_name_that_stands_for_another_address_later_is_looked_up_once() -> None:
    name_server = NameServer(
        {"tickets.example": [[PUBLIC], ["127.0.0.1"]], "login.example": [[PUBLIC], ["127.0.0.1"]]}
    )
    network = GuardedNetwork(["https://tickets.example/mcp"], name_server)
    for host in ("tickets.example", "login.example") * 3:
        assert list(await network.addresses(host, 443)) == [ip_address(PUBLIC)]
    assert name_server.asked == ["tickets.example", "login.example"]


@pytest.mark.parametrize("url", ["https://169.254.169.254/", "https://[fe80::1]/"])
async def test_upstream_that_names_such_an_address_gets_no_login_and_no_token(url: str) -> None:
    async def challenge(request: Request) -> Response:
        return Response(status_code=401, headers={"www-authenticate": f'Bearer resource_metadata="{url}"'})

    async with protected(Peer()) as server:
        server.answers["/mcp"] = challenge
        with pytest.raises(OAuthRefusedError):
            await log_in(server.spec(), lambda issuer, url: None)
        async with fleet_of(tickets=server.client_spec("its-secret")) as fleet:
            assert fleet["tickets"].state.status == "down"
        assert server.authorization.grants == []
