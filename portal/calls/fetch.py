"""`portal.fetch`: the portal checks a script's request against the manifest, and sends it."""

import base64
import ipaddress
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, TypeAlias

import anyio
import anyio.to_thread
import httpx2
import pydantic

from manifests import constraints
from manifests.grants import NetworkGrant
from manifests.json_value import Json
from manifests.manifest import Manifest
from portal.records.ledger import CallState
from sandbox_runtime.call_port import CallError
from sandbox_runtime.guest_json import encode
from sandbox_runtime.result import limit_text
from upstreams import http_client
from upstreams.errors import UpstreamUnavailableError

IsPortal: TypeAlias = Callable[[int], bool]
"""Returns whether a portal listens on a port of this machine. May block."""

_MAX_URL_CHARS = 8192
_MAX_HEADERS = 100
_MAX_HEADER_BYTES = 16 * 1024
_MAX_REDIRECTS = 5
_MAX_ADDRESSES = 20
_PARALLEL = 8

FROM_SCRIPT = "mcp-code-portal-script"
"""The header in each request of a script. Portals refuse requests that have it, even behind a proxy."""

_SET_BY_PORTAL = re.compile(
    f"{FROM_SCRIPT}|accept-encoding|connection|content-length|expect|host|http2-settings|keep-alive|te|trailer|transfer-encoding|upgrade|"
    "proxy-.*",
    re.IGNORECASE,
)
"""Headers of the transport itself, and the one that names the sender."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HARMLESS = re.compile(
    "accept|accept-language|content-language|content-type|if-modified-since|if-none-match|range|user-agent",
    re.IGNORECASE,
)
"""The headers that a redirect to another host keeps. Any other header may contain a key for the first host."""
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_SYNTAX = "Write it like https://api.example.com/path?query, with method, headers and body beside it."
_NOT_FOUND = "The host's name was not found where the portal runs. Check its spelling, or ask the operator."
_THEIRS = "The server answers so. Ask it for something else."
_CHECK = "Check the effect before retrying: the request may have been processed."
_UNTRUSTED = re.compile(r"certificate verify failed: (.+) \(_ssl")
_AUTHORITIES = (
    "It got no request. The operator names a private authority in SSL_CERT_FILE of the portal's environment."
)
_ONLY_PRIVATE = "Only capabilities.network.private can allow {}, which it must name. Ask the operator."
_WHAT_ALLOWS = {
    constraints.AddressClass.PRIVATE: _ONLY_PRIVATE.format("a host at a private address"),
    constraints.AddressClass.BY_ADDRESS: _ONLY_PRIVATE.format("that address itself"),
    constraints.AddressClass.NEVER: "No rule can allow it: the address is reserved, or embeds another one.",
}
"""Hints: the rule that could allow an address, or that none can."""


class FetchError(Exception):
    """A fetch failed; `state` is the call's state in the ledger."""

    def __init__(self, code: str, message: str, hint: str = "", state: CallState = "refused") -> None:
        super().__init__(message)
        self.state = state
        self.call_error = CallError(code, message, hint)


class Network:
    """The guard of fetches: a grant of the manifest, and the transport that keeps it."""

    def __init__(
        self,
        grant: NetworkGrant,
        where: Callable[[str], str],
        *,
        resolve: constraints.Resolver = http_client.resolve_by_system,
        trusted: ssl.SSLContext | None = None,
        is_portal: IsPortal = lambda port: False,
        is_of_scripts: bool = True,
    ) -> None:
        """`where` gives the place of a limit; `trusted` are the certificate authorities, by default the system's.

        `is_portal` finds the ports of this machine where a portal listens: no rule lets scripts reach those.
        """
        self.grant = grant
        self.headers = [(FROM_SCRIPT, "1")] if is_of_scripts else []
        self._is_portal = is_portal
        self._private = tuple(map(constraints.HostPattern.parse, grant.private))
        self._granted = (*map(constraints.HostPattern.parse, grant.allow), *self._private)
        self._resolve = resolve
        self._where = where
        authorities = (lambda: trusted) if trusted else http_client.trusted_authorities
        self.transport = http_client.GuardedTransport(http_client.Guard(self.check, authorities=authorities))

    def name(self, limit: str) -> str:
        return limit_text(self.grant, limit, self._where)

    async def check(self, url: httpx2.URL) -> http_client.Destination:
        """Check a URL and resolve its host. Raises FetchError: the manifest does not allow it."""
        host = constraints.canonical_host(url.raw_host.decode("ascii"))
        port = url.port or constraints.DEFAULT_PORTS[url.scheme]
        if not any(pattern.matches(url.scheme, host, port) for pattern in self._granted):
            patterns = ", ".join(map(str, self._granted[:20]))
            hint = f"Scripts may fetch from {patterns}. Ask the operator for another host."
            raise FetchError("not_granted", f"{host} on port {port} is not granted", hint)
        private = {each.host for each in self._private if each.matches(url.scheme, host, port)}
        allowed = {constraints.AddressClass.PUBLIC, *([constraints.AddressClass.PRIVATE] if private else [])}
        addresses: Sequence[constraints.Address] = ()
        if constraints.is_address(host):
            addresses = (ipaddress.ip_address(host),)
            allowed |= {constraints.AddressClass.BY_ADDRESS} if host in private else set()
        else:
            with suppress(OSError):
                addresses = tuple(dict.fromkeys(await self._resolve(host, port)))[:_MAX_ADDRESSES]
        if not addresses:
            raise FetchError("fetch_failed", f"the name {host} cannot be resolved", _NOT_FOUND, "not_started")
        kinds = map(constraints.classify_address, addresses)
        reasons = [_WHAT_ALLOWS[kind] for kind in kinds if kind not in allowed]
        is_own = not reasons and any(map(_is_of_this_machine, addresses))
        if is_own and await anyio.to_thread.run_sync(self._is_portal, port):
            reasons = ["A portal listens there. No rule can allow it."]
        if reasons:
            message = f"{host} has an address that scripts must not reach"
            raise FetchError("address_not_allowed", message, reasons[0])
        return http_client.Destination(host, addresses)


def _is_of_this_machine(address: constraints.Address) -> bool:
    # Only an address of this machine can be bound.
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((str(address), 0))
        return True
    return address.is_loopback


def _url(text: object) -> httpx2.URL:
    if not isinstance(text, str) or len(text) > _MAX_URL_CHARS:
        raise ValueError(f"a URL is a string of at most {_MAX_URL_CHARS:,} characters")
    try:
        url = httpx2.URL(text)
        url = url.copy_with(host=constraints.canonical_host(url.raw_host.decode("ascii")))
        is_valid = url.port is None or 0 < url.port < 65536
    except (httpx2.InvalidURL, TypeError, ValueError):
        is_valid = False
    if not is_valid or url.scheme not in constraints.DEFAULT_PORTS:
        raise ValueError(f"{text[:200]!r} is not a valid URL with http or https")
    if url.userinfo:
        raise ValueError("the URL must not contain a user or a password; send an Authorization header")
    return url


def _header_name(name: str) -> str:
    if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}", name):
        raise ValueError(f"{name[:60]!r} is not a header name")
    if _SET_BY_PORTAL.fullmatch(name):
        raise ValueError(f"only the portal sets the header {name}")
    return name


def _header_value(value: str) -> str:
    if not re.fullmatch(r"(?:[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?)?", value):
        raise ValueError("a header's value is ASCII without line breaks, and without blanks at its ends")
    return value


_Header: TypeAlias = tuple[
    Annotated[str, pydantic.AfterValidator(_header_name)],
    Annotated[str, pydantic.AfterValidator(_header_value)],
]


class FetchRequest(pydantic.BaseModel):
    """A validated request of a script. A `timeout` of None means the manifest's limit. `body` arrives as base64."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    url: Annotated[httpx2.URL, pydantic.BeforeValidator(_url)]
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] = "GET"
    headers: Annotated[tuple[_Header, ...], pydantic.Field(max_length=_MAX_HEADERS)] = ()
    body: Annotated[bytes, pydantic.BeforeValidator(partial(base64.b64decode, validate=True))] = b""
    timeout: Annotated[float, pydantic.Field(strict=True, gt=0, lt=1e9)] | None = None
    follow_redirects: pydantic.StrictBool = True

    @classmethod
    def parse(cls, given: dict[str, Json]) -> "FetchRequest":
        """Validate a script's arguments. Raises FetchError: they are invalid."""
        try:
            request = cls.model_validate({key: value for key, value in given.items() if value is not None})
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            place = ".".join(str(part) for part in first["loc"])[:60]
            raise FetchError("invalid_arguments", f"portal.fetch: {place}: {first['msg']}", _SYNTAX) from None
        if sum(len(name) + len(value) for name, value in request.headers) > _MAX_HEADER_BYTES:
            message = f"the headers may have at most {_MAX_HEADER_BYTES:,} characters in total"
            raise FetchError("invalid_arguments", message, "Send fewer headers, or shorter ones.")
        return request

    def redirected(self, status: int, location: str) -> "FetchRequest":
        """The request after a redirect. Another host gets only harmless headers. Raises FetchError."""
        old = self.url
        try:
            url = _url(str(old.join(location))).copy_with(fragment=None)
        except (httpx2.InvalidURL, ValueError):
            raise FetchError("fetch_failed", "the redirect has an invalid URL", _THEIRS, "done") from None
        is_elsewhere = (url.scheme, url.netloc) != (old.scheme, old.netloc)
        # As in browsers: POST becomes a GET without a body after 301 and 302, and all but HEAD after 303.
        is_post, is_head = self.method == "POST", self.method in ("GET", "HEAD")
        becomes_get = (status in (301, 302) and is_post) or (status == 303 and not is_head)
        headers = tuple(
            (name, value)
            for name, value in self.headers
            if not (is_elsewhere and not _HARMLESS.fullmatch(name))
            and not (becomes_get and name.lower().startswith("content-"))
        )
        method, body = ("GET", b"") if becomes_get else (self.method, self.body)
        return self.model_copy(update={"url": url, "method": method, "headers": headers, "body": body})

    def as_sent(
        self, trace: Callable[[str, Json], Awaitable[None]], own: Sequence[tuple[str, str]]
    ) -> httpx2.Request:
        """The request; `own` are headers of the portal."""
        # HTTPX would read the host in Unicode, which some hosts do not have.
        headers = [("Host", self.url.netloc.decode("ascii")), ("Accept-Encoding", "identity"), *own]
        return httpx2.Request(
            self.method,
            self.url,
            headers=[*headers, *self.headers],
            content=self.body if self.body or self.method in _WITH_BODY else None,
            extensions={"trace": trace},
        )


@dataclass(frozen=True)
class Fetchers:
    """Shared by the fetches of all runs. `is_portal` is as for `Network`."""

    is_portal: IsPortal

    def of_run(self, manifest: Manifest, requests: int = 0) -> "Fetcher | None":
        """The fetcher for a segment of a run that has made so many requests; None if the manifest grants no network."""
        grant = manifest.portal.capabilities.network
        if grant is None:
            return None
        where = partial(manifest.where, "capabilities", "network")
        return Fetcher(Network(grant, where, is_portal=self.is_portal), requests)


class Fetcher:
    def __init__(self, network: Network, requests: int = 0) -> None:
        self.network = network
        self.requests = requests
        self._slots = anyio.CapacityLimiter(_PARALLEL)

    async def fetch(self, arguments: dict[str, Json], on_sent: Callable[[], None]) -> bytes:
        """Fetch a URL. Returns `{status, url, headers: [[name, value]], body: base64}` as JSON.

        `on_sent` is called before a request can reach its host. Raises FetchError: there is no response.
        """
        request = FetchRequest.parse(arguments)
        most = self.network.grant.seconds
        seconds = min(request.timeout or most, most)
        hops = _Hops(self, on_sent)
        try:
            async with self._slots:
                with anyio.fail_after(seconds):
                    return await hops.follow(request)
        except TimeoutError:
            limit = "" if seconds < most else f", {self.network.name('seconds')}"
            message = f"{hops.host} sent no complete response within {seconds:g} s{limit}"
            raise FetchError("fetch_timeout", message, _CHECK, hops.state) from None
        except (httpx2.HTTPError, OSError, ValueError, UpstreamUnavailableError) as error:
            # HTTPX does not wrap every error, such as invalid TLS or invalid names. Only the type of the error is
            # shown, because its text may contain addresses.
            message = f"{hops.host} sent no valid HTTP response: {type(error).__name__}"
            hint = _CHECK if hops.state == "unknown" else "It got no request."
            if found := _UNTRUSTED.search(str(error)):
                message, hint = f"the certificate of {hops.host} is not trusted: {found[1]}", _AUTHORITIES
            raise FetchError("fetch_failed", message, hint, hops.state) from None


@dataclass
class _Hops:
    """A request and its redirects, each counted and checked like the first."""

    fetcher: Fetcher
    on_sent: Callable[[], None]
    state: CallState = "not_started"
    """The ledger state of the call, should it fail now."""
    host: str = ""
    """The host of the current request, for messages."""

    async def follow(self, request: FetchRequest) -> bytes:
        network = self.fetcher.network
        for _ in range(_MAX_REDIRECTS + 1):
            # `url.host` fails for some names; `raw_host` does not.
            self.host = request.url.raw_host.decode("ascii")
            try:
                if self.fetcher.requests >= network.grant.requests:
                    is_first = self.state == "not_started"
                    what = "the request was not sent" if is_first else "the redirect was not followed"
                    message = f"{what}: {network.name('requests')} is used up"
                    hint = "Fetch less, or in several scripts."
                    raise FetchError("fetch_requests_limit", message, hint)
                self.fetcher.requests += 1
                sent = request.as_sent(self._note_sent, network.headers)
                response = await network.transport.handle_async_request(sent)
            except FetchError as error:
                if self.state != "not_started":
                    error.state = "done"  # the request that was answered with a redirect is done
                raise
            async with aclosing(response):
                location = response.headers.get("location")
                is_followed = request.follow_redirects and response.status_code in _REDIRECTS
                if location is None or not is_followed:
                    return await self._answer_json(request, response)
            request = request.redirected(response.status_code, location)
            self.state = "done"
        message = f"redirected more than {_MAX_REDIRECTS} times"
        hint = f"The last one led to {str(request.url)[:200]}"
        raise FetchError("too_many_redirects", message, hint, "done")

    async def _answer_json(self, request: FetchRequest, response: httpx2.Response) -> bytes:
        network = self.fetcher.network
        try:
            body = await http_client.whole_body(response.aiter_raw(), network.grant.response_bytes)
        except http_client.AnswerError as error:
            code, message, hint = "fetch_failed", f"the host {error}", _THEIRS
            if error.is_long:
                code, hint = "response_limit", "Ask for less: filter, limit, or page."
                message = f"the response body is longer than {network.name('response_bytes')}"
            raise FetchError(code, message, hint, "done") from None
        headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in response.headers.raw]
        head = encode({"status": response.status_code, "url": str(request.url), "headers": headers})
        return b'%b,"body":"%b"}' % (head[:-1], base64.b64encode(body))

    async def _note_sent(self, event: str, _: Json) -> None:
        if event.endswith(".send_request_headers.started"):
            self.state = "unknown"
            self.on_sent()
