"""The portal's HTTP client. Its guard decides what the client may reach.

| client | schemes | addresses | proxy | redirects | at most |
|---|---|---|---|---|---|
| `portal.fetch` | http(s) | as `capabilities.network` says; never a portal's | no | 5, checked | its limits |
| webhooks | http(s) | the same; loopback or an address if the URL names it | no | no | 10 s, 64 KiB |
| OAuth | https | public; private only beside the upstream or `issuer` | yes | 4, one origin | 10 s, 1 MiB |
| sign-in | the manifest's | any | yes | no | 5 s, 1 MiB |
| replicas | the store's | any | no | no | - |
| upstreams | the manifest's | any | yes | 5, one origin | the limits of calls |

A name is resolved once for each request, and only checked addresses are connected to: the name's owner cannot change
them in between. Such a connection is used for one request, because its certificate was checked for one name.
A name behind a proxy is resolved by the proxy, which may have rules of its own; an address is checked here.
"""

import asyncio
import os
import re
import socket
import ssl
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache, partial
from typing import Final, NamedTuple, TypeAlias

import anyio
import anyio.to_thread
import httpx2
from httpx2._utils import URLPattern, get_environment_proxies  # noqa: PLC2701  # it has no public ones

from manifests.constraints import Address, addresses_in, is_address
from upstreams.errors import UpstreamUnavailableError, describe

_LOOKUPS: Final = 128
"""Concurrent name lookups; further ones wait. A name server may hang for half a minute."""

_MAX_ADDRESSES: Final = 4
_ADDRESS_SECONDS: Final = 2.0
"""Time limit to connect to one address before the next one is tried."""

_SLOW_ADDRESS_SECONDS: Final = 10.0
"""The same for an address that has no other after it. One that was slow is tried again after the others."""

_ANY_NUMBER: Final = httpx2.Limits(max_connections=None)
MAX_ANSWER_BYTES: Final = 1 << 20
_MAX_CHUNKS: Final = 20_000
"""Limit of a body: each chunk costs the portal some microseconds."""

_HEAVY_CODINGS: Final = re.compile("br|zstd|.*,.*")
"""They may take much time or memory to decode. A value that is no coding, like `utf-8`, is ignored."""

_PROXIES: Final = ("http", "https", "socks5", "socks5h")


class AnswerError(Exception):
    """A rejected answer. The message continues after its URL or host. `is_long`: it has too many bytes."""

    def __init__(self, message: str, is_long: bool = False) -> None:
        super().__init__(message)
        self.is_long = is_long


class Destination(NamedTuple):
    """A checked host: its canonical name, which the certificate has to have, and the addresses to connect to."""

    host: str
    addresses: Sequence[Address]


Check: TypeAlias = Callable[[httpx2.URL], Awaitable[Destination]]
"""Decides about each request, redirects included. Raises its own error, or OSError if the host is not found."""


@cache
def trusted_authorities() -> ssl.SSLContext:
    """The trusted certificate authorities. Cached: loading them takes 30 to 70 ms.

    Raises UpstreamUnavailableError: those of the environment cannot be read.
    """
    try:
        if not os.environ.get("SSL_CERT_FILE") and not os.path.isdir(os.environ.get("SSL_CERT_DIR") or "/"):
            raise NotADirectoryError("no such folder")
        return httpx2.create_ssl_context()
    except OSError as error:
        named, reason = _named_authorities(), error.strerror or error
        raise UpstreamUnavailableError(f"the certificates of {named} cannot be read: {reason}") from None


@dataclass(frozen=True)
class Guard:
    """What a client may reach: by default anything, without a proxy. `proxy` returns the proxy for a URL."""

    check: Check | None = None
    proxy: Callable[[httpx2.URL], str | None] = lambda url: None
    authorities: Callable[[], ssl.SSLContext] = trusted_authorities


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends the requests that the guard allows. Raises what the guard raises."""

    def __init__(self, guard: Guard, limits: httpx2.Limits = _ANY_NUMBER) -> None:
        self._guard = guard
        self._limits = limits
        self._opened: dict[tuple[str, str | None], httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url, guard = request.url, self._guard
        request.headers.setdefault("Accept", "*/*")
        request.headers.setdefault("User-Agent", "mcp-code-portal")
        proxy = guard.proxy(url)
        is_resolved_there = proxy is not None and not is_address(url.raw_host.decode("ascii").rstrip("."))
        there = None if guard.check is None or is_resolved_there else await guard.check(url)
        transport = self._opened.get((url.scheme, proxy))
        if transport is None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            if url.scheme == "https" or proxy is not None:
                tls = await anyio.to_thread.run_sync(guard.authorities)
            opened = httpx2.AsyncHTTPTransport(verify=tls, proxy=proxy, limits=self._limits)
            transport = self._opened.setdefault((url.scheme, proxy), opened)
        if there is None or proxy is not None:
            return await transport.handle_async_request(request)
        failure: Exception = httpx2.ConnectError("no address")
        # Alternate IPv4 and IPv6, so that a broken family does not use up all attempts.
        found = there.addresses
        turn = {each: [a for a in found if a.version == each.version].index(each) for each in found}
        left = [(each, _ADDRESS_SECONDS) for each in sorted(found, key=turn.__getitem__)[:_MAX_ADDRESSES]]
        while left:
            address, seconds = left.pop(0)
            seconds = seconds if left else _SLOW_ADDRESS_SECONDS
            try:
                return await transport.handle_async_request(_pinned(request, there.host, address, seconds))
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
                if isinstance(error, httpx2.ConnectTimeout) and seconds < _SLOW_ADDRESS_SECONDS:
                    left.append((address, _SLOW_ADDRESS_SECONDS))
        raise failure

    async def aclose(self) -> None:
        for transport in self._opened.values():
            await transport.aclose()


def guarded_client(
    guard: Guard,
    limits: httpx2.Limits = _ANY_NUMBER,
    timeout: httpx2.Timeout | None = None,
    headers: Mapping[str, str] | None = None,
) -> httpx2.AsyncClient:
    """A client that reaches what the guard allows. It follows no redirects by itself."""
    transport = GuardedTransport(guard, limits)
    return httpx2.AsyncClient(transport=transport, timeout=timeout, headers=headers, trust_env=False)


async def exchange(
    client: httpx2.AsyncClient, request: httpx2.Request, seconds: float, *, reads: bool = True
) -> httpx2.Response:
    """Send a request and read the whole answer, or only its status and WWW-Authenticate. A redirect is an answer.

    Raises TimeoutError: not within `seconds`. Raises AnswerError: over `MAX_ANSWER_BYTES` when decoded, or in a heavy
    encoding. Raises ValueError: of a head, WWW-Authenticate is not ASCII. Raises httpx2.RequestError, OSError, and
    what the guard raises.
    """
    with anyio.fail_after(seconds):
        response = await client.send(request, stream=True)
        async with aclosing(response):
            coding = response.headers.get("content-encoding", "").strip().lower()
            if reads and _HEAVY_CODINGS.fullmatch(coding):
                raise AnswerError(f"answers in the encoding {coding[:200]!a}, which was not requested")
            body = await whole_body(response.aiter_bytes(), MAX_ANSWER_BYTES) if reads else b""
    challenge = {} if reads else {"www-authenticate": response.headers.get("www-authenticate", "")}
    body = body.removeprefix(b"\xef\xbb\xbf")  # some servers serve files with a byte order mark
    answer = httpx2.Response(response.status_code, headers=challenge, content=body, request=request)
    answer.next_request = response.next_request
    return answer


async def whole_body(chunks: AsyncIterable[bytes], max_bytes: int) -> bytes:
    """Join the chunks of a body. Raises AnswerError if they are too many or too long."""
    body, count = bytearray(), 0
    async for chunk in chunks:
        body += chunk
        count += 1
        if len(body) > max_bytes:
            raise AnswerError(f"answers with more than {max_bytes} bytes", is_long=True)
        if count > _MAX_CHUNKS:
            raise AnswerError(f"answers in more than {_MAX_CHUNKS:,} chunks")
    return bytes(body)


async def resolve_by_system(host: str, port: int) -> Sequence[Address]:
    """Resolve a host with the system's resolver. Raises OSError if it is not found or not a valid name."""
    ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        return addresses_in(await asyncio.get_running_loop().run_in_executor(_lookup_threads(), ask))
    except UnicodeError as error:
        raise OSError("not a name") from error


@cache
def _lookup_threads() -> ThreadPoolExecutor:
    """The threads of all who ask. A cancelled wait leaves its thread running; the pool limits how many."""
    return ThreadPoolExecutor(_LOOKUPS, thread_name_prefix="lookup")


def _pinned(request: httpx2.Request, host: str, address: Address, seconds: float) -> httpx2.Request:
    """The same request to one address, with its original Host and TLS name."""
    headers = request.headers.copy()
    headers["connection"] = "close"
    timeout = {**request.extensions.get("timeout", {}), "connect": seconds}
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=str(address)),
        headers=headers,
        stream=request.stream,
        # The certificate must be for the host, not for the address.
        extensions={**request.extensions, "sni_hostname": host, "timeout": timeout},
    )


@dataclass(frozen=True)
class Route:
    """How the environment routes a URL. `proxy` is the URL of a proxy; `variable` shows it, without credentials."""

    url: httpx2.URL
    proxy: str | None = None
    variable: str = ""

    @classmethod
    def to(cls, url: str) -> "Route":
        """Return the route to a URL, honouring NO_PROXY. Raises UpstreamUnavailableError if its proxy cannot be used.

        httpx2 would prepare every proxy of the environment, even those that this URL does not need.
        """
        parsed = httpx2.URL(url)
        proxies = {URLPattern(key): value for key, value in get_environment_proxies().items()}
        pattern = min((each for each in proxies if each.matches(parsed)), default=None)
        if pattern is None or not (proxy := proxies[pattern]):
            return cls(parsed)
        kind = f"{pattern.scheme or 'all'}_proxy"
        name = next((each for each in (kind, kind.upper()) if os.environ.get(each)), "the system's proxy")
        try:
            shown = httpx2.URL(proxy)
        except httpx2.InvalidURL:
            raise UpstreamUnavailableError(f"{name} is not the URL of a proxy") from None
        variable = f"{name}={origin(shown)}"
        if shown.scheme not in _PROXIES:
            fault = f"{variable} is none of {', '.join(_PROXIES)}"
            raise UpstreamUnavailableError(fault, remedy="for socks:// try socks5://")
        return cls(parsed, proxy, variable)

    def explain(self, error: httpx2.RequestError) -> str:
        """Describe an error with the host, and with the proxy or the authorities that the environment sets."""
        port = self.url.port or (443 if self.url.scheme == "https" else 80)
        said = f"{describe(error)} ({self.url.host}:{port}"
        if self.proxy:
            said += f", through the proxy of {self.variable}; NO_PROXY names hosts that need none"
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            trusted = _named_authorities() or "the system's authorities; SSL_CERT_FILE names others"
            said += f", trusting {trusted}"
        return f"{said})"


def environment_proxy(url: httpx2.URL) -> str | None:
    """Return the environment's proxy for a URL. Raises UpstreamUnavailableError if it cannot be used."""
    return Route.to(str(url)).proxy


def origin(url: httpx2.URL) -> str:
    """Scheme, host and port, like https://tickets.example:8443."""
    return str(url.copy_with(userinfo=b"", raw_path=b"/", fragment=None)).rstrip("/")


def _named_authorities() -> str:
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR")
    return next((f"{name}={os.environ[name]}" for name in names if os.environ.get(name)), "")
