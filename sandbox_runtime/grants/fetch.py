"""`portal.fetch`: the portal checks a script's request against the manifest, and sends it."""

import asyncio
import base64
import ipaddress
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, NamedTuple, TypeAlias

import anyio
import anyio.to_thread
import httpx2
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    ValidationError,
)

from manifests.constraints import (
    DEFAULT_PORTS,
    Address,
    AddressClass,
    HostPattern,
    Resolver,
    addresses_in,
    canonical_host,
    classify_address,
    is_address,
)
from manifests.grants import NetworkGrant
from manifests.json_value import Json
from sandbox_runtime.call_port import CallError
from sandbox_runtime.guest_json import encode
from sandbox_runtime.result import limit_text

IsPortal: TypeAlias = Callable[[int], bool]
"""Whether a portal listens on a port of this machine. It may block."""

FetchState: TypeAlias = Literal["not_started", "done", "failed", "refused", "unknown"]
"""The states of the ledger: `refused` was not sent, `unknown` was sent and may have had its effect."""

_MAX_URL_CHARS = 8192
_MAX_HEADERS = 100
_MAX_HEADER_BYTES = 16 * 1024
_MAX_REDIRECTS = 5
_MAX_ADDRESSES = 20
_MAX_CHUNKS = 20_000
"""Limit of a body: each chunk costs the portal some microseconds."""
_LOOKUPS = 128
"""Concurrent name lookups, eight of each run; further ones wait. A name server may hang for half a minute."""
_PARALLEL = 8
_TRIED_ADDRESSES = 3
_CONNECT_SECONDS = 10.0

FROM_SCRIPT = "mcp-code-portal-script"
"""The header of each request of a script, by which portals know and refuse it, also behind a proxy."""

_SET_BY_PORTAL = re.compile(
    f"{FROM_SCRIPT}|accept-encoding|connection|content-length|expect|host|http2-settings|keep-alive|te|trailer|transfer-encoding|upgrade|"
    "proxy-.*",
    re.IGNORECASE,
)
"""Headers of the transport itself, and the one that names the sender."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# Methods that become a GET without a body: POST after 301 and 302, as in browsers, and all but GET and HEAD after 303.
_POST = frozenset({"POST"})
_CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_HARMLESS = re.compile(
    "accept|accept-language|content-language|content-type|if-modified-since|if-none-match|range|user-agent",
    re.IGNORECASE,
)
"""The headers that a redirect to another host keeps: any other may contain a key for the first host."""
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_DEFAULTS = (("Accept", "*/*"), ("User-Agent", "mcp-code-portal"))
_SYNTAX = "Write it like https://api.example.com/path?query, with method, headers and body beside it."
_THEIRS = "The server answers so. Ask it for something else."
_CHECK = "Check the effect before retrying: the request may have been processed."


_ONLY_PRIVATE = "Only capabilities.network.private can allow {}, which it must name. Ask the operator."
_WHAT_ALLOWS = {
    AddressClass.PRIVATE: _ONLY_PRIVATE.format("a host at a private address"),
    AddressClass.BY_ADDRESS: _ONLY_PRIVATE.format("that address itself"),
    AddressClass.NEVER: "No rule can allow it: the address is reserved, or embeds another one.",
}
"""Which rule could allow an address, or that none can."""


class FetchError(Exception):
    """A fetch failed; `state` is the call's state in the ledger."""

    def __init__(self, code: str, message: str, hint: str = "", state: FetchState = "refused") -> None:
        super().__init__(message)
        self.state = state
        self.call_error = CallError(code, message, hint)


class Destination(NamedTuple):
    """The target of a checked URL: its canonical host, and the only addresses that may be connected to."""

    host: str
    port: int
    addresses: tuple[Address, ...]


class Network:
    """What the fetches of all runs share. Connections are not reused, so each request checks its host again."""

    def __init__(
        self,
        grant: NetworkGrant,
        where: Callable[[str], str],
        *,
        resolve: Resolver | None = None,
        trusted: ssl.SSLContext | None = None,
        is_portal: IsPortal = lambda port: False,
        is_of_scripts: bool = True,
    ) -> None:
        """`where` gives the place of a limit; `trusted` are the certificate authorities, by default the system's.

        `is_portal` says whether a portal listens on a port of this machine, which no rule lets scripts reach.
        """
        self.grant = grant
        self.headers = [(FROM_SCRIPT, "1")] if is_of_scripts else []
        self._is_portal = is_portal
        self._private = tuple(map(HostPattern.parse, grant.private))
        self._granted = (*map(HostPattern.parse, grant.allow), *self._private)
        self._resolve = resolve or self._look_up
        self._threads = ThreadPoolExecutor(_LOOKUPS, thread_name_prefix="lookup")
        self._where = where
        self._trusted = trusted

    def name(self, limit: str) -> str:
        return limit_text(self.grant, limit, self._where)

    async def check(self, url: httpx2.URL) -> Destination:
        """Check a URL and resolve its host. Raises FetchError: not http(s), or not allowed by the manifest."""
        host, port = _host_and_port(url)
        if not any(pattern.matches(url.scheme, host, port) for pattern in self._granted):
            patterns = ", ".join(map(str, self._granted[:20]))
            hint = f"Scripts may fetch from {patterns}. Ask the operator for another host."
            raise FetchError("not_granted", f"{host} on port {port} is not granted", hint)
        private = {each.host for each in self._private if each.matches(url.scheme, host, port)}
        allowed = {AddressClass.PUBLIC, *([AddressClass.PRIVATE] if private else [])}
        if is_address(host) and host in private:
            allowed.add(AddressClass.BY_ADDRESS)
        addresses = await self._addresses(host, port)
        message = f"{host} has an address that scripts must not reach"
        for kind in map(classify_address, addresses):
            if kind not in allowed:
                raise FetchError("address_not_allowed", message, _WHAT_ALLOWS[kind])
        is_own = any(map(_is_of_this_machine, addresses))
        if is_own and await anyio.to_thread.run_sync(self._is_portal, port):
            hint = "A portal listens there. No rule can allow it."
            raise FetchError("address_not_allowed", message, hint)
        return Destination(host, port, addresses)

    async def transport(self, scheme: str) -> httpx2.AsyncHTTPTransport:
        """The transport for one request. It ignores proxies and credentials of the portal's environment."""
        if scheme == "https" and self._trusted is None:
            # In a thread, because loading the authorities takes long.
            self._trusted = await anyio.to_thread.run_sync(httpx2.create_ssl_context)
        return httpx2.AsyncHTTPTransport(verify=self._trusted or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    async def _addresses(self, host: str, port: int) -> tuple[Address, ...]:
        if is_address(host):
            return (ipaddress.ip_address(host),)
        try:
            addresses = tuple(dict.fromkeys(await self._resolve(host, port)))
        except (OSError, UnicodeError):  # UnicodeError: not a valid name
            addresses = ()
        if not addresses:
            raise FetchError("fetch_failed", f"the name {host} cannot be resolved", _SYNTAX, "not_started")
        return addresses[:_MAX_ADDRESSES]

    async def _look_up(self, host: str, port: int) -> Sequence[Address]:
        # A cancelled wait leaves its thread running; the pool limits how many.
        ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        return addresses_in(await asyncio.get_running_loop().run_in_executor(self._threads, ask))


def _is_of_this_machine(address: Address) -> bool:
    # Only an own address can be bound.
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((str(address), 0))
        return True
    return address.is_loopback


def _host_and_port(url: httpx2.URL) -> tuple[str, int]:
    if url.scheme not in DEFAULT_PORTS:
        raise FetchError(
            "invalid_arguments", f"the scheme is http or https, not {url.scheme[:20]!r}", _SYNTAX
        )
    if url.userinfo:
        message = "the URL must not contain a user or a password"
        raise FetchError("invalid_arguments", message, "Send an Authorization header.")
    try:
        host = canonical_host(url.raw_host.decode("ascii"))
        port = DEFAULT_PORTS[url.scheme] if url.port is None else url.port
    except ValueError:
        port = 0
    if not 0 < port < 65536:
        message = f"{str(url)[:200]!r} is not a valid URL"
        raise FetchError("invalid_arguments", message, _SYNTAX)
    return host, port


def _url(text: object) -> httpx2.URL:
    if not isinstance(text, str) or len(text) > _MAX_URL_CHARS:
        raise ValueError(f"a URL is a string of at most {_MAX_URL_CHARS:,} characters")
    try:
        return httpx2.URL(text)
    except (httpx2.InvalidURL, TypeError) as error:
        raise ValueError(
            f"{text[:200]!r} is not a URL; write it like https://api.example.com/path"
        ) from error


def _header_name(name: str) -> str:
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}", name):
        raise ValueError(f"{name[:60]!r} is no name of a header")
    if _SET_BY_PORTAL.fullmatch(name):
        raise ValueError(f"only the portal sets the header {name}")
    return name


def _header_value(value: str) -> str:
    if not re.fullmatch(r"(?:[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?)?", value):
        raise ValueError("a header's value is ASCII without line breaks, and without blanks at its ends")
    return value


_Header: TypeAlias = tuple[
    Annotated[str, AfterValidator(_header_name)], Annotated[str, AfterValidator(_header_value)]
]


class FetchRequest(BaseModel):
    """A validated request of a script. `timeout` None means the manifest's limit; `body` arrives as base64."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    url: Annotated[httpx2.URL, BeforeValidator(_url)]
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] = "GET"
    headers: Annotated[tuple[_Header, ...], Field(max_length=_MAX_HEADERS)] = ()
    body: Annotated[bytes, BeforeValidator(partial(base64.b64decode, validate=True))] = b""
    timeout: Annotated[float, Field(strict=True, gt=0, lt=1e9)] | None = None
    follow_redirects: StrictBool = True

    @classmethod
    def parse(cls, given: dict[str, Json]) -> "FetchRequest":
        """Validate a script's arguments. Raises FetchError: they are invalid."""
        try:
            request = cls.model_validate({key: value for key, value in given.items() if value is not None})
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            place = ".".join(str(part) for part in first["loc"])[:60]
            raise FetchError("invalid_arguments", f"portal.fetch: {place}: {first['msg']}", _SYNTAX) from None
        if sum(len(name) + len(value) for name, value in request.headers) > _MAX_HEADER_BYTES:
            message = f"the headers may have at most {_MAX_HEADER_BYTES:,} characters in total"
            raise FetchError("invalid_arguments", message, "Send fewer headers, or shorter ones.")
        return request

    def redirected(self, status: int, location: str) -> "FetchRequest":
        """The request after a redirect; another host gets only harmless headers. Raises FetchError."""
        old = self.url
        try:
            url = _url(str(old.join(_url(location)))).copy_with(fragment=None)
            is_elsewhere = (url.scheme, url.host, url.port) != (old.scheme, old.host, old.port)
        except (httpx2.InvalidURL, ValueError):
            raise FetchError("fetch_failed", "the redirect has an invalid URL", _THEIRS, "done") from None
        becomes_get = self.method in (_POST if status in (301, 302) else _CHANGING if status == 303 else ())
        headers = tuple(
            (name, value)
            for name, value in self.headers
            if not (is_elsewhere and not _HARMLESS.fullmatch(name))
            and not (becomes_get and name.lower().startswith("content-"))
        )
        method, body = ("GET", b"") if becomes_get else (self.method, self.body)
        return self.model_copy(update={"url": url, "method": method, "headers": headers, "body": body})

    def as_sent(
        self,
        destination: Destination,
        address: Address,
        trace: Callable[[str, Json], Awaitable[None]],
        own: Sequence[tuple[str, str]],
    ) -> httpx2.Request:
        """The request to one address, with the Host and the TLS name that the script asked for."""
        host, port, _ = destination
        named = f"[{host}]" if ":" in host else host
        if port != DEFAULT_PORTS[self.url.scheme]:
            named += f":{port}"
        headers = [("Host", named), ("Connection", "close"), ("Accept-Encoding", "identity"), *own]
        given = {name.lower() for name, _ in self.headers}
        headers += [(name, value) for name, value in _DEFAULTS if name.lower() not in given]
        return httpx2.Request(
            self.method,
            self.url.copy_with(host=str(address), port=port, fragment=None),
            headers=[*headers, *self.headers],
            content=self.body if self.body or self.method in _WITH_BODY else None,
            extensions={
                # The certificate must be for the host, not for the address.
                "sni_hostname": host,
                "timeout": {"connect": _CONNECT_SECONDS, "read": None, "write": None, "pool": None},
                "trace": trace,
            },
        )


class Fetcher:
    """The fetches of one run."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._requests = 0
        self._slots = anyio.CapacityLimiter(_PARALLEL)

    async def fetch(self, arguments: dict[str, Json], on_sent: Callable[[], None]) -> bytes:
        """Fetch a URL. Returns `{status, url, headers: [[name, value]], body: base64}` as JSON.

        `on_sent` is called before a request may reach its host. Raises FetchError: there is no response.
        """
        request = FetchRequest.parse(arguments)
        most = self.network.grant.seconds
        seconds = min(request.timeout or most, most)
        hops = _Hops(self.network, self._count, on_sent)
        try:
            async with self._slots:
                with anyio.fail_after(seconds):
                    return await hops.follow(request)
        except TimeoutError:
            limit = "" if seconds < most else f", {self.network.name('seconds')}"
            message = f"{hops.host} sent no complete response within {seconds:g} s{limit}"
            raise FetchError("fetch_timeout", message, _CHECK, hops.state) from None
        except (httpx2.HTTPError, OSError, ValueError) as error:
            # HTTPX does not wrap every error, such as invalid TLS or invalid names. Only the type of the error is
            # shown, because its text may contain addresses.
            message = f"{hops.host} sent no valid HTTP response: {type(error).__name__}"
            raise FetchError("fetch_failed", message, _CHECK, hops.state) from None

    def _count(self) -> None:
        """Count a request. Raises FetchError: the limit is used up."""
        if self._requests >= self.network.grant.requests:
            message = f"the request was not sent: {self.network.name('requests')} is used up"
            raise FetchError("fetch_requests_limit", message, "Fetch less, or in several scripts.")
        self._requests += 1


@dataclass
class _Hops:
    """A request and its redirects, each counted and checked like the first."""

    network: Network
    count: Callable[[], None]
    on_sent: Callable[[], None]
    state: FetchState = "not_started"
    """The state of the call if it fails now."""
    host: str = ""
    """The host of the current request, for messages."""

    async def follow(self, request: FetchRequest) -> bytes:
        for _ in range(_MAX_REDIRECTS + 1):
            # `url.host` fails for some names; `raw_host` does not.
            self.host = request.url.raw_host.decode("ascii")
            try:
                self.count()
                destination = await self.network.check(request.url)
            except FetchError as error:
                if self.state != "not_started":
                    error.state = "done"  # the request that was answered with a redirect is done
                raise
            async with await self.network.transport(request.url.scheme) as transport:
                response = await self._send(transport, request, destination)
                async with aclosing(response):
                    location = response.headers.get("location")
                    is_followed = request.follow_redirects and response.status_code in _REDIRECTS
                    if location is None or not is_followed:
                        return await self._answer_json(request, response)
            request = request.redirected(response.status_code, location)
            self.state = "done"
        message = f"redirected more than {_MAX_REDIRECTS} times"
        raise FetchError(
            "too_many_redirects", message, f"The last one led to {str(request.url)[:200]}", "done"
        )

    async def _send(
        self, transport: httpx2.AsyncHTTPTransport, request: FetchRequest, destination: Destination
    ) -> httpx2.Response:
        """Send the request to one of the checked addresses only."""
        sent = partial(request.as_sent, destination, trace=self._note_sent, own=self.network.headers)
        *others, last = destination.addresses[:_TRIED_ADDRESSES]
        for address in others:
            with suppress(httpx2.ConnectError, httpx2.ConnectTimeout):
                return await transport.handle_async_request(sent(address))
        return await transport.handle_async_request(sent(last))

    async def _answer_json(self, request: FetchRequest, response: httpx2.Response) -> bytes:
        body, chunks = bytearray(), 0
        async for chunk in response.aiter_raw():
            body += chunk
            chunks += 1
            if chunks > _MAX_CHUNKS:
                raise FetchError("fetch_failed", "the response body has too many chunks", _THEIRS, "done")
            if len(body) > self.network.grant.response_bytes:
                message = f"the response body is longer than {self.network.name('response_bytes')}"
                raise FetchError("response_limit", message, "Ask for less: filter, limit, or page.", "done")
        headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in response.headers.raw]
        head = encode({"status": response.status_code, "url": str(request.url), "headers": headers})
        return b'%b,"body":"%b"}' % (head[:-1], base64.b64encode(body))

    async def _note_sent(self, event: str, _: Json) -> None:
        if event.endswith(".send_request_headers.started"):
            self.state = "unknown"
            self.on_sent()
