"""What a script asks to be fetched, and where that may go: read and checked before anything is sent."""

import base64
import ipaddress
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

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


MAX_HEADERS = 100
MAX_HEADER_BYTES = 16 * 1024

_SET_BY_PORTAL = re.compile(
    "accept-encoding|connection|content-length|expect|host|http2-settings|keep-alive|te|trailer|transfer-encoding|upgrade|"
    "proxy-.*",
    re.IGNORECASE,
)
"""They say how the message travels."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# What goes on as a GET without a body: POST after 301 and 302, as browsers do, and all but reading after 303.
_POST = frozenset({"POST"})
_CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_HARMLESS = re.compile(
    "accept|accept-language|content-language|content-type|if-modified-since|if-none-match|range|user-agent",
    re.IGNORECASE,
)
"""All that goes on to another host: any other header may hold a key that was meant for the first one."""
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_DEFAULTS = (("Accept", "*/*"), ("User-Agent", "mcp-code-portal"))
_CONNECT_SECONDS = 10.0

Trace: TypeAlias = Callable[[str, Json], Awaitable[None]]
"""Hears of the steps of a request by name."""


def _settable(name: str) -> str:
    if _SET_BY_PORTAL.fullmatch(name):
        raise ValueError(f"the header {name} is set by the portal alone")
    return name


def _decoded(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


_Name: TypeAlias = Annotated[
    str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}$"), AfterValidator(_settable)
]
_Value: TypeAlias = Annotated[str, Field(pattern=r"^(?:[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?)?$")]
"""ASCII without line breaks, and without blanks at its ends."""


class FetchRequest(BaseModel):
    """A request that a script may mean. `timeout` is None where it leaves that to the manifest, `body` is base64."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Annotated[str, Field(max_length=MAX_URL_CHARS)]
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] = "GET"
    headers: Annotated[tuple[tuple[_Name, _Value], ...], Field(max_length=MAX_HEADERS)] = ()
    body: Annotated[bytes, BeforeValidator(_decoded)] = b""
    timeout: Annotated[float, Field(strict=True, gt=0, lt=1e9)] | None = None
    follow_redirects: StrictBool = True

    @classmethod
    def parse(cls, given: dict[str, Json]) -> "FetchRequest":
        """Read what a script sends.

        Raises:
            FetchError: Something in it cannot be sent.
        """
        try:
            request = cls.model_validate({key: value for key, value in given.items() if value is not None})
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            place = ".".join(str(part) for part in first["loc"])[:60]
            raise FetchError("invalid_arguments", f"portal.fetch: {place}: {first['msg']}") from None
        if sum(len(name) + len(value) for name, value in request.headers) > MAX_HEADER_BYTES:
            message = f"headers have at most {MAX_HEADER_BYTES:,} characters in all"
            raise FetchError("invalid_arguments", message)
        return request

    def may_follow(self, status: int) -> bool:
        """Whether an answer with this status sends the request elsewhere."""
        return self.follow_redirects and status in _REDIRECTS

    def redirected(self, status: int, location: str) -> "FetchRequest":
        """The request that follows it, without what was meant for the former host alone.

        Raises:
            FetchError: It is redirected to what is no URL.
        """
        try:
            old = parse_url(self.url)
            url = old.join(parse_url(location)).copy_with(fragment=None)
            is_elsewhere = (url.scheme, url.host, url.port) != (old.scheme, old.host, old.port)
        except (FetchError, httpx2.InvalidURL, ValueError):
            raise FetchError("fetch_failed", "it is redirected to no URL", state="done") from None
        becomes_get = self.method in (_POST if status in (301, 302) else _CHANGING if status == 303 else ())
        headers = tuple(
            (name, value)
            for name, value in self.headers
            if not (is_elsewhere and not _HARMLESS.fullmatch(name))
            and not (becomes_get and name.lower().startswith("content-"))
        )
        method, body = ("GET", b"") if becomes_get else (self.method, self.body)
        changed = {"url": str(url), "method": method, "headers": headers, "body": body}
        return self.model_copy(update=changed)

    def as_sent(self, destination: Destination, address: Address, trace: Trace) -> httpx2.Request:
        """The request on its way to one address, naming the host that the script named."""
        headers = [
            ("Host", _host_header(destination)),
            ("Connection", "close"),
            ("Accept-Encoding", "identity"),
        ]
        given = {name.lower() for name, _ in self.headers}
        headers += [(name, value) for name, value in _DEFAULTS if name.lower() not in given]
        url = destination.url.copy_with(host=str(address), port=destination.port, fragment=None)
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


def _host_header(destination: Destination) -> str:
    host = f"[{destination.host}]" if ":" in destination.host else destination.host
    is_default = destination.port == DEFAULT_PORTS[destination.url.scheme]
    return host if is_default else f"{host}:{destination.port}"
