"""`portal.fetch`: one request of a script, sent by the portal, as far as the manifest allows."""

import binascii
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx2

from manifests.grants import NetworkGrant
from manifests.hosts import Address, Resolver, addresses_in
from manifests.json_value import Json
from sandbox_runtime.grants.fetch_request import (
    Destination,
    Destinations,
    FetchError,
    FetchRequest,
    FetchState,
    parse_url,
)
from sandbox_runtime.grants.threads import Threads
from sandbox_runtime.guest_json import encode
from sandbox_runtime.result import limit_text

FETCH = "portal.fetch"
"""The function's name; no namespace of a library is called `portal`."""

MAX_REDIRECTS = 5
MAX_PIECES = 20_000
"""Of a body: each costs the portal some microseconds, however short it is."""
LOOKUPS = 16
"""Names that are looked up at once; further ones wait."""

_PARALLEL = 8
_TRIED_ADDRESSES = 3
_CHECK = "If it was sent, see what it did before sending it again."


class Network:
    """What every run's fetches have in common. Connections are not kept: each request proves its host anew."""

    def __init__(
        self,
        grant: NetworkGrant,
        where: Callable[[str], str],
        *,
        resolve: Resolver | None = None,
        trusted: ssl.SSLContext | None = None,
    ) -> None:
        """`where` says where a limit is set; `trusted` are the authorities, those of the system by default."""
        self.grant = grant
        self.destinations = Destinations(grant, where)
        self.resolve = resolve or self._look_up
        self._threads = Threads(LOOKUPS)
        self._where = where
        self._trusted = trusted

    def name(self, limit: str) -> str:
        return limit_text(self.grant, limit, self._where)

    async def transport(self, scheme: str) -> httpx2.AsyncHTTPTransport:
        """What one request is sent with. It knows no proxy and no credentials of the portal's environment."""
        if scheme == "https" and self._trusted is None:
            # In a thread: there are hundreds of authorities to read.
            self._trusted = await anyio.to_thread.run_sync(httpx2.create_ssl_context)
        return httpx2.AsyncHTTPTransport(verify=self._trusted or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    async def _look_up(self, host: str, port: int) -> Sequence[Address]:
        return await self._threads.run(partial(_looked_up, host, port))


class Fetcher:
    """The fetches of one run."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._requests = 0
        self._slots = anyio.CapacityLimiter(_PARALLEL)

    async def fetch(self, arguments: dict[str, Json], on_sent: Callable[[], None]) -> bytes:
        """Fetch what the arguments say: `{status, url, headers: [[name, value]], body: base64}`, as JSON.

        `on_sent` is called when a request may be about to reach its host.

        Raises:
            FetchError: There is no answer for the script; why.
        """
        request = FetchRequest.parse(arguments)
        most = self._network.grant.seconds
        seconds = min(request.timeout or most, most)
        hops = _Hops(self._network, self._count, on_sent)
        try:
            async with self._slots:
                with anyio.fail_after(seconds):
                    return await hops.follow(request)
        except TimeoutError:
            limit = "" if seconds < most else f", {self._network.name('seconds')}"
            message = f"there was no whole answer from {hops.host} within {seconds:g} s{limit}"
            raise FetchError("fetch_timeout", message, _CHECK, hops.state) from None
        except (httpx2.HTTPError, OSError, ValueError) as error:
            # Not all that a host can do wrong is HTTPX's own error: bytes that are no TLS, names that are none.
            # The kind of error alone: its text may name addresses.
            message = f"{hops.host} did not answer as HTTP does: {type(error).__name__}"
            raise FetchError("fetch_failed", message, _CHECK, hops.state) from None

    def _count(self) -> None:
        if self._requests >= self._network.grant.requests:
            message = f"the request was not sent: {self._network.name('requests')} is used up"
            raise FetchError("fetch_requests_limit", message, "Fetch less, or in several scripts.")
        self._requests += 1


class _Hops:
    """A request and those that it is redirected to, each counted and checked as if it were the first."""

    def __init__(self, network: Network, count: Callable[[], None], on_sent: Callable[[], None]) -> None:
        self.state: FetchState = "not_started"
        """What has become of it when it fails now."""
        self.host = ""
        """Who it is about then."""
        self._network = network
        self._count = count
        self._on_sent = on_sent

    async def follow(self, request: FetchRequest) -> bytes:
        for _ in range(MAX_REDIRECTS + 1):
            try:
                url = parse_url(request.url)
                self.host = url.raw_host.decode("ascii")  # the other form is not there for every name
                self._count()
                destination = await self._network.destinations.check(url, self._network.resolve)
            except FetchError as error:
                if self.state != "not_started":
                    error.state = "done"  # what was answered with a redirection was done, wherever that leads
                raise
            async with await self._network.transport(url.scheme) as transport:
                response = await self._send(transport, request, destination)
                try:
                    location = response.headers.get("location")
                    if location is None or not request.may_follow(response.status_code):
                        return await self._told(request, response)
                finally:
                    await response.aclose()
            request = request.redirected(response.status_code, location)
            self.state = "done"
        message = f"redirected more than {MAX_REDIRECTS} times"
        raise FetchError("too_many_redirects", message, f"The last was to {request.url[:200]}", "done")

    async def _send(
        self, transport: httpx2.AsyncHTTPTransport, request: FetchRequest, destination: Destination
    ) -> httpx2.Response:
        """Send it to one of the addresses that were checked, and to no other."""
        addresses = destination.addresses[:_TRIED_ADDRESSES]
        for address in addresses:
            sent = request.as_sent(destination, address, self._note_sent)
            try:
                return await transport.handle_async_request(sent)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if address is addresses[-1]:
                    raise
        raise AssertionError("a destination has an address")

    async def _told(self, request: FetchRequest, response: httpx2.Response) -> bytes:
        grant = self._network.grant
        body = await _body(response, grant.response_bytes, self._network.name("response_bytes"))
        headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in response.headers.raw]
        told = encode({"status": response.status_code, "url": request.url, "headers": headers})
        return b'%b,"body":"%b"}' % (told[:-1], binascii.b2a_base64(body, newline=False))

    async def _note_sent(self, event: str, _: Json) -> None:
        if event.endswith(".send_request_headers.started"):
            self.state = "unknown"
            self._on_sent()


async def _body(response: httpx2.Response, most_bytes: int, limit: str) -> bytes:
    """The body as it came; `limit` is `most_bytes` in words.

    Raises:
        FetchError: It is too long, or in too many pieces.
    """
    body = bytearray()
    pieces = 0
    async for piece in response.aiter_raw():
        body += piece
        pieces += 1
        if pieces > MAX_PIECES:
            raise FetchError("fetch_failed", "the answer's body comes in too many pieces", state="done")
        if len(body) > most_bytes:
            told = f"the answer's body is longer than {limit}"
            raise FetchError("response_limit", told, "Ask for less: filter, limit, or page.", "done")
    return bytes(body)


def _looked_up(host: str, port: int) -> Sequence[Address]:
    try:
        return addresses_in(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except UnicodeError as error:
        raise OSError("not a name") from error
