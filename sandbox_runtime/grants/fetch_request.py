"""What a guest asks to be fetched, read as far as it makes sense."""

import base64
import binascii
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import NoReturn, TypeAlias

import httpx2

from manifests.hosts import DEFAULT_PORTS, Address
from manifests.json_value import Json
from sandbox_runtime.grants.destination import Destination, parse_url
from sandbox_runtime.grants.fetch_body import ACCEPTED
from sandbox_runtime.grants.fetch_error import FetchError

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
            ("Accept-Encoding", ACCEPTED),
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
