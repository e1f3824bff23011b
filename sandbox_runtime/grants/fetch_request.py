"""What a script asks to be fetched, and where that may go: read and checked before anything is sent."""

import base64
import binascii
import ipaddress
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Literal, NoReturn, TypeAlias

import httpx2

from manifests.grants import NetworkGrant
from manifests.hosts import (
    DEFAULT_PORTS,
    Address,
    HostPattern,
    Reach,
    Resolver,
    canonical_host,
    is_address,
    reach_of,
)
from manifests.json_value import Json
from sandbox_runtime.calls import CallError

FetchState: TypeAlias = Literal["not_started", "done", "failed", "refused", "unknown"]
"""As a ledger has them: refused was not sent, unknown was sent and may have had its effect."""


class FetchError(Exception):
    """`state` is what the ledger says of the call."""

    def __init__(self, code: str, message: str, hint: str = "", state: FetchState = "refused") -> None:
        super().__init__(message)
        self.state = state
        self.told = CallError(code, message, hint)

    def but(self, state: FetchState) -> "FetchError":
        """The same error of a call that has gone further."""
        return FetchError(self.told.code, self.told.message, self.told.hint, state)


MAX_URL_CHARS = 8192
MAX_ADDRESSES = 20

_MAX_TOLD_HOSTS = 20


@dataclass(frozen=True, slots=True)
class Destination:
    """A checked URL: `host` in canonical form, and the only addresses that may be connected to."""

    url: httpx2.URL
    host: str
    port: int
    addresses: tuple[Address, ...]


class Destinations:
    """Decides for one manifest."""

    def __init__(self, grant: NetworkGrant, where: Callable[[str], str]) -> None:
        self._allow = tuple(map(HostPattern.parse, grant.allow))
        self._private = tuple(map(HostPattern.parse, grant.private))
        self._where = where

    async def check(self, url: httpx2.URL, resolve: Resolver) -> Destination:
        """Look a URL over, and its host up.

        Raises:
            FetchError: It is no URL of http or https, or leads where the manifest does not allow.
        """
        host, port = _host_and_port(url)
        allowed = [p for p in self._allow if p.matches(url.scheme, host, port)]
        private = [p for p in self._private if p.matches(url.scheme, host, port)]
        if not (allowed or private):
            raise self._not_granted(host, port)
        addresses = await _addresses(host, port, resolve)
        for address in addresses:
            reach = reach_of(address)
            by_address = is_address(host) and any(p.host == host for p in (*allowed, *private))
            if not (
                reach is Reach.PUBLIC
                or (reach is Reach.PRIVATE and private)
                or (reach is Reach.BY_ADDRESS and by_address and private)
            ):
                raise self._not_public(host, reach)
        return Destination(url, host, port, addresses)

    def _not_granted(self, host: str, port: int) -> FetchError:
        patterns = [str(pattern) for pattern in (*self._allow, *self._private)]
        more = f" and {len(patterns) - _MAX_TOLD_HOSTS} more" if len(patterns) > _MAX_TOLD_HOSTS else ""
        return FetchError(
            "not_granted",
            f"scripts are not granted {host} on port {port}",
            f"They may fetch from {', '.join(patterns[:_MAX_TOLD_HOSTS])}{more}. "
            f"An operator can change that at {self._where('allow')}.",
        )

    def _not_public(self, host: str, reach: Reach) -> FetchError:
        if reach is Reach.PRIVATE:
            hint = f"An operator can list it under private ({self._where('private')})."
        elif reach is Reach.BY_ADDRESS:
            hint = f"An operator can list the address itself under private ({self._where('private')})."
        else:
            hint = ""
        return FetchError("address_not_allowed", f"{host} is at an address that scripts may not reach", hint)


async def _addresses(host: str, port: int, resolve: Resolver) -> tuple[Address, ...]:
    if is_address(host):
        return (ipaddress.ip_address(host),)
    try:
        addresses = tuple(dict.fromkeys(await resolve(host, port)))
    except OSError:
        addresses = ()
    if not addresses:
        raise FetchError("fetch_failed", f"the name {host} is not known", state="not_started")
    return addresses[:MAX_ADDRESSES]


def parse_url(text: str) -> httpx2.URL:
    """Raises FetchError."""
    if len(text) > MAX_URL_CHARS:
        raise FetchError("invalid_arguments", f"the URL has more than {MAX_URL_CHARS:,} characters")
    try:
        return httpx2.URL(text)
    except (httpx2.InvalidURL, ValueError, TypeError):
        raise _no_url(text) from None


def _host_and_port(url: httpx2.URL) -> tuple[str, int]:
    if url.scheme not in DEFAULT_PORTS:
        message = f"only http and https are fetched, not {url.scheme[:20]!r}"
        raise FetchError("invalid_arguments", message)
    if url.userinfo:
        raise FetchError(
            "invalid_arguments", "a URL holds no user and no password", "Send an Authorization header."
        )
    try:
        host = canonical_host(url.raw_host.decode("ascii"))
        port = DEFAULT_PORTS[url.scheme] if url.port is None else url.port
    except ValueError:
        raise _no_url(str(url)) from None
    if not 0 < port < 65536:
        raise _no_url(str(url))
    return host, port


def _no_url(text: str) -> FetchError:
    message = f"{text[:200]!r} is no URL that can be fetched"
    return FetchError("invalid_arguments", message, "Write it like https://api.example.com/path?query.")


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
MAX_HEADERS = 100
MAX_HEADER_BYTES = 16 * 1024

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_VALUE = re.compile(r"(?:[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?)?")
# They say how the message travels, which is ours to say.
_OURS = frozenset(
    [
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]
)


_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# What goes on as a GET without a body: POST after 301 and 302, as browsers do, and all but reading after 303.
_POST = frozenset({"POST"})
_CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# All that goes on to another host: any other header may hold a key that was meant for the first one.
_HARMLESS = frozenset(
    [
        "accept",
        "accept-language",
        "content-language",
        "content-type",
        "if-modified-since",
        "if-none-match",
        "range",
        "user-agent",
    ]
)
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_DEFAULTS = (("Accept", "*/*"), ("User-Agent", "mcp-code-portal"))
_CONNECT_SECONDS = 10.0

Trace: TypeAlias = Callable[[str, Json], Awaitable[None]]
"""Hears of the steps of a request by name."""


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """A request that a script may mean. `seconds` is None where it leaves that to the manifest."""

    url: httpx2.URL
    method: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    seconds: float | None
    follows_redirects: bool

    @classmethod
    def parse(cls, given: dict[str, Json]) -> "FetchRequest":
        """Read `{url, method?, headers?: [[name, value]], body?: base64, timeout?, follow_redirects?}`.

        Raises:
            FetchError: Something in it cannot be sent.
        """
        url, method, seconds = given.get("url"), given.get("method", "GET"), given.get("timeout")
        if unknown := given.keys() - _KEYS:
            _refuse(f"portal.fetch has no argument {sorted(unknown)[0][:60]!r}")
        if not isinstance(url, str):
            _refuse("url is text")
        if method not in METHODS:
            _refuse(f"method is one of {', '.join(METHODS)}")
        if seconds is not None and (
            isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < 1e9
        ):
            _refuse("timeout is a number of seconds above 0")
        return cls(
            parse_url(url),
            method,
            _headers(given.get("headers")),
            _body(given.get("body")),
            seconds,
            given.get("follow_redirects", True) is not False,
        )

    def may_follow(self, status: int) -> bool:
        """Whether an answer with this status sends the request elsewhere."""
        return self.follows_redirects and status in _REDIRECTS

    def redirected(self, status: int, location: str) -> "FetchRequest":
        """The request that follows it, without what was meant for the former host alone.

        Raises:
            FetchError: It is redirected to what is no URL.
        """
        try:
            url = self.url.join(parse_url(location)).copy_with(fragment=None)
            is_elsewhere = (url.scheme, url.host, url.port) != (self.url.scheme, self.url.host, self.url.port)
        except (FetchError, httpx2.InvalidURL, ValueError):
            raise FetchError("fetch_failed", "it is redirected to no URL", state="done") from None
        becomes_get = self.method in (_POST if status in (301, 302) else _CHANGING if status == 303 else ())
        headers = tuple(
            (name, value)
            for name, value in self.headers
            if not (is_elsewhere and name.lower() not in _HARMLESS)
            and not (becomes_get and name.lower().startswith("content-"))
        )
        method, body = ("GET", b"") if becomes_get else (self.method, self.body)
        return replace(self, url=url, method=method, headers=headers, body=body)

    def as_sent(self, destination: Destination, address: Address, trace: Trace) -> httpx2.Request:
        """The request on its way to one address, naming the host that the script named."""
        headers = [
            ("Host", _host_header(destination)),
            ("Connection", "close"),
            ("Accept-Encoding", "gzip"),
        ]
        given = {name.lower() for name, _ in self.headers}
        headers += [(name, value) for name, value in _DEFAULTS if name.lower() not in given]
        url = self.url.copy_with(host=str(address), port=destination.port, fragment=None)
        return httpx2.Request(
            self.method,
            url,
            headers=[*headers, *self.headers],
            content=self.body if self.body or self.method in _WITH_BODY else None,
            extensions={
                # The certificate has to be the named host's, whatever address it is at.
                "sni_hostname": destination.host,
                "timeout": {"connect": _CONNECT_SECONDS, "read": None, "write": None, "pool": None},
                "trace": trace,
            },
        )


_KEYS = frozenset({"url", "method", "headers", "body", "timeout", "follow_redirects"})


def _host_header(destination: Destination) -> str:
    host = f"[{destination.host}]" if ":" in destination.host else destination.host
    is_default = destination.port == DEFAULT_PORTS[destination.url.scheme]
    return host if is_default else f"{host}:{destination.port}"


def _headers(given: Json) -> tuple[tuple[str, str], ...]:
    if given is None:
        return ()
    if not isinstance(given, list) or len(given) > MAX_HEADERS:
        _refuse(f"headers are at most {MAX_HEADERS} pairs of text")
    headers = tuple(_header(pair) for pair in given)
    if sum(len(name) + len(value) for name, value in headers) > MAX_HEADER_BYTES:
        _refuse(f"headers have at most {MAX_HEADER_BYTES:,} characters in all")
    return headers


def _header(pair: Json) -> tuple[str, str]:
    if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair)):
        _refuse("headers are pairs of text")
    name, value = pair
    if not _TOKEN.fullmatch(name):
        _refuse(f"{name[:60]!r} cannot name a header")
    if not _VALUE.fullmatch(value):
        _refuse(f"the header {name} holds a line break, a blank at an end, or a character that is not ASCII")
    if name.lower() in _OURS or name.lower().startswith("proxy-"):
        _refuse(f"the header {name} is set by the portal alone")
    return name, value


def _body(given: Json) -> bytes:
    if given is None:
        return b""
    try:
        return base64.b64decode(given, validate=True) if isinstance(given, str) else _refuse("body is base64")
    except (binascii.Error, ValueError):
        _refuse("body is base64")


def _refuse(message: str) -> NoReturn:
    raise FetchError("invalid_arguments", message)
