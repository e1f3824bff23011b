"""Requests to an upstream and its authorization server: discovery, metadata and tokens.

Upstreams name these servers, so the URLs are untrusted: only https:// at public addresses is requested, no redirect is
followed, and answers are capped. Errors contain no token, code or secret, and of foreign text only an OAuth error code.

    OAuthError
    ├── OAuthRefusedError        the authorization server refused, or cannot be trusted: a retry will not help
    └── OAuthUnreachableError    no usable answer: a later retry may help

Source: RFC 9728 (protected resource metadata), RFC 8414 (authorization server metadata), RFC 8707 (resource
indicators), RFC 6749 (OAuth 2.0), RFC 7009 (revocation); MCP 2026-07-28, basic/authorization.
"""

import base64
import re
import socket
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import IPv4Network
from typing import Final, Literal, TypeAlias
from urllib.parse import quote, urlsplit

import anyio
import httpcore2
import httpx2
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    create_oauth_metadata_request,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    get_client_metadata_scopes,
    handle_auth_metadata_response,
    handle_protected_resource_response,
    issuers_match,
)
from mcp.shared.auth import OAuthMetadata, OAuthToken, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from manifests.constraints import (
    Address,
    AddressClass,
    Resolver,
    addresses_in,
    classify_address,
    is_address,
    is_safe_for_tokens,
)
from manifests.portal_manifest import AuthSettings, HttpUpstream, OAuthSettings
from upstreams.transports.routes import trusted_authorities


class OAuthError(Exception):
    """No token can be obtained."""


class OAuthRefusedError(OAuthError):
    """The request was refused; `code` is the OAuth error code, or ""."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class OAuthUnreachableError(OAuthError):
    """There was no usable answer."""


MAX_ANSWER_BYTES: Final = 1024 * 1024
REQUEST_SECONDS: Final = 10.0
ADDRESS_SECONDS: Final = 2.0
"""Time per address of a host, before the next one is tried."""

_MAX_ADDRESSES: Final = 4
_FAKE_IP: Final = IPv4Network("198.18.0.0/15")
"""Addresses that some VPNs return for every name and resolve later ("fake IP"): they count as public."""
_HEADERS: Final = ("content-type", "www-authenticate")

CODE: Final = re.compile(r"[a-z_]{1,64}")
"""An OAuth error code, the only foreign text that is shown."""

_PING: Final = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
_ACCEPT: Final = {"Accept": "application/json, text/event-stream"}
_GRANTS: Final = ["authorization_code", "refresh_token"]
_LATER: Final = frozenset({"server_error", "slow_down", "temporarily_unavailable"})

AuthMethod: TypeAlias = Literal["none", "client_secret_basic", "client_secret_post"]


async def ask_system(host: str, port: int) -> Sequence[Address]:
    """Resolve a host with the system's resolver."""
    try:
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError("not a name") from error
    return addresses_in(found)


@asynccontextmanager
async def open_guarded_http(
    upstream_url: str, issuer: str | None = None, resolve: Resolver = ask_system
) -> AsyncIterator["GuardedHttp"]:
    """A separate HTTP client: it shares no header, cookie or connection with the upstream's client.

    `issuer` is the manifest's authorization server. An invalid URL becomes an OAuthRefusedError.
    """
    network = GuardedNetwork((upstream_url, *([issuer] if issuer else [])), resolve)
    client = httpx2.AsyncClient(
        headers={"accept-encoding": "identity"},
        timeout=REQUEST_SECONDS,
        follow_redirects=False,
        verify=trusted_authorities(),
    )
    # Not as an argument: with a transport HTTPX ignores the proxies of the environment.
    client._transport = transport = httpx2.AsyncHTTPTransport(verify=trusted_authorities())
    # HTTPX has no parameter for the network backend.
    transport._pool = httpcore2.AsyncConnectionPool(
        ssl_context=trusted_authorities(), http2=False, network_backend=network
    )
    async with client:
        try:
            yield GuardedHttp(client, network, urlsplit(upstream_url).scheme == "http")
        except (httpx2.InvalidURL, ValueError):
            raise OAuthRefusedError("the upstream's OAuth metadata has an invalid URL") from None


@dataclass(frozen=True)
class GuardedHttp:
    """The HTTP client of OAuth for one upstream.

    URLs come from untrusted metadata: only https:// is requested, and http:// on this machine if the upstream itself is
    there. Redirects are not followed.
    """

    client: httpx2.AsyncClient
    network: "GuardedNetwork"
    may_be_local: bool

    async def ask(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and read the whole answer.

        Raises:
            OAuthRefusedError: The URL is not allowed.
            OAuthUnreachableError: No answer within `REQUEST_SECONDS`, or one over `MAX_ANSWER_BYTES`.
        """
        host = self.checked(str(request.url))
        body = bytearray()
        try:
            with anyio.fail_after(REQUEST_SECONDS):
                if is_address(host):  # a proxy would connect to it without this check
                    await self.network.addresses(host, request.url.port or 443)
                response = await self.client.send(request, stream=True)
                async with aclosing(response):
                    async for chunk in response.aiter_raw():
                        body += chunk
                        if len(body) > MAX_ANSWER_BYTES:
                            message = f"the answer of {host} is longer than {MAX_ANSWER_BYTES} bytes"
                            raise OAuthUnreachableError(message)
        except TimeoutError:
            raise OAuthUnreachableError(f"{host} did not answer within {REQUEST_SECONDS:g} s") from None
        except (httpx2.RequestError, OSError) as error:
            raise OAuthUnreachableError(f"{host} cannot be reached ({type(error).__name__})") from None
        headers = [pair for pair in response.headers.multi_items() if pair[0].lower() in _HEADERS]
        return httpx2.Response(response.status_code, headers=headers, content=bytes(body), request=request)

    def checked(self, url: str) -> str:
        """The host of a URL that may be requested, or shown to a browser.

        Raises:
            OAuthRefusedError: The URL is not allowed.
            ValueError: It is not a URL, or its port is invalid.
        """
        parts = urlsplit(url)
        is_safe = is_safe_for_tokens(url) and (parts.scheme == "https" or self.may_be_local)
        if not is_safe or not parts.hostname or parts.username is not None or parts.port == 0:
            raise OAuthRefusedError("the upstream's OAuth metadata has a URL that is not https://")
        return parts.hostname[:100]


class GuardedNetwork(httpcore2.AnyIOBackend):
    """Connects on behalf of one upstream, and checks the addresses.

    The upstream's host and that of the manifest's `issuer` may have any address. Other hosts may have private addresses
    only if one of these does. Each name is resolved once, because its owner controls the answer: an upstream that
    pretends to be private becomes unreachable, and so can name no other host.
    """

    def __init__(self, own_urls: Iterable[str], resolve: Resolver = ask_system) -> None:
        super().__init__()
        self._own = {httpx2.URL(url).raw_host.decode("ascii") for url in own_urls}
        self._resolve = resolve
        self._found: dict[str, Sequence[Address]] = {}

    async def addresses(self, host: str, port: int) -> Sequence[Address]:
        """The allowed addresses of a host.

        Raises:
            OAuthRefusedError: None of its addresses is allowed.
            OSError: It has no address.
        """
        found = await self._looked_up(host, port)
        if host in self._own:
            return found
        is_private = any([await self._is_private(own) for own in self._own])
        classes = {AddressClass.PUBLIC, AddressClass.PRIVATE} if is_private else {AddressClass.PUBLIC}
        allowed = [each for each in found if classify_address(each) in classes or each in _FAKE_IP]
        if not allowed:
            raise OAuthRefusedError(
                f"the upstream's OAuth URL uses {host[:100]}, which has a non-public address; "
                "if that is intended, set `oauth.issuer` in the manifest"
            )
        return allowed

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            addresses = await self.addresses(host, port)
        except OSError:
            raise httpcore2.ConnectError("not a name") from None
        # Alternate between IPv4 and IPv6, so that a broken family does not use up all attempts.
        ordered = sorted(
            addresses, key=lambda each: [a for a in addresses if a.version == each.version].index(each)
        )
        failure: Exception | None = None
        for address in ordered[:_MAX_ADDRESSES]:
            try:
                return await super().connect_tcp(
                    str(address), port, ADDRESS_SECONDS, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure or httpcore2.ConnectError("no address")

    async def _is_private(self, host: str) -> bool:
        try:
            return all(
                classify_address(each) is AddressClass.PRIVATE for each in await self._looked_up(host, 443)
            )
        except OSError:
            return False

    async def _looked_up(self, host: str, port: int) -> Sequence[Address]:
        if host not in self._found:
            self._found[host] = tuple(dict.fromkeys(await self._resolve(host, port)))
        return self._found[host]


class Client(BaseModel):
    """The OAuth client that the portal is."""

    model_config = ConfigDict(frozen=True)

    client_id: str = Field(repr=False)
    client_secret: str | None = Field(default=None, repr=False)
    auth_method: AuthMethod = "none"


@dataclass(frozen=True)
class Discovered:
    """The result of discovery: `resource` is the audience of tokens, `scope` None leaves the choice to the server."""

    server: OAuthMetadata
    resource: str | None
    """None is not sent."""
    scope: str | None


async def discover(spec: HttpUpstream, http: GuardedHttp) -> Discovered:
    """Ask the upstream, then the authorization server that it names. An `issuer` in the manifest must be among those.

    Raises:
        OAuthRefusedError: There is no authorization server, or its metadata is inconsistent.
        OAuthUnreachableError: The upstream or the authorization server does not answer.
    """
    url, settings = spec.url, spec.oauth or OAuthSettings()
    answer = await http.ask(httpx2.Request("POST", url, json=_PING, headers={**spec.headers, **_ACCEPT}))
    hint_url, wanted = None, None
    if answer.status_code == HTTPStatus.UNAUTHORIZED:
        hint_url, wanted = (
            extract_resource_metadata_from_www_auth(answer),
            extract_scope_from_www_auth(answer),
        )
    resource = resource_url_from_server_url(url)
    metadata = await _resource_metadata(hint_url, url, http)
    issuer = settings.issuer
    if metadata is not None:
        if not check_resource_allowed(resource, str(metadata.resource)):
            raise OAuthRefusedError("the upstream's OAuth metadata names a different resource")
        resource = str(metadata.resource)
        named = [str(server) for server in metadata.authorization_servers]
        issuer = issuer or named[0]
        if not any(issuers_match(server, issuer) for server in named):
            raise OAuthRefusedError(
                "the upstream does not list the manifest's `issuer` as its authorization server"
            )
    server = await server_metadata(issuer, url, http)
    scope = settings.scope
    if not scope and (wanted is not None or (metadata is not None and metadata.scopes_supported is not None)):
        # The scopes of the upstream, never all scopes of the authorization server.
        scope = get_client_metadata_scopes(wanted, metadata, server, _GRANTS)
    return Discovered(server, resource, scope)


async def _resource_metadata(
    hint_url: str | None, url: str, http: GuardedHttp
) -> ProtectedResourceMetadata | None:
    is_faulty = False
    for candidate in build_protected_resource_metadata_discovery_urls(hint_url, url):
        answer = await http.ask(create_oauth_metadata_request(candidate))
        if (metadata := await handle_protected_resource_response(answer)) is not None:
            return metadata
        is_faulty |= answer.is_server_error or answer.status_code == HTTPStatus.TOO_MANY_REQUESTS
    if is_faulty:  # a server error does not mean that there is no metadata
        raise OAuthUnreachableError("the upstream's OAuth metadata is unavailable at present")
    return None


async def server_metadata(issuer: str | None, url: str, http: GuardedHttp) -> OAuthMetadata:
    """The server's metadata. Without an issuer the upstream is its own server, as in 2025-03-26."""
    parts = urlsplit(url)
    expected = issuer or f"{parts.scheme}://{parts.netloc}"
    for candidate in build_oauth_authorization_server_metadata_discovery_urls(issuer, url):
        answer = await http.ask(create_oauth_metadata_request(candidate))
        is_answered, metadata = await handle_auth_metadata_response(answer)
        if not is_answered:
            raise OAuthUnreachableError("the authorization server's metadata is unavailable at present")
        if metadata is None:
            continue
        # Otherwise a server could impersonate another one (mix-up attack).
        if not issuers_match(str(metadata.issuer), expected):
            raise OAuthRefusedError("the authorization server's metadata has a different issuer")
        return metadata
    raise OAuthRefusedError("the upstream names no authorization server, or one without metadata")


def configured_client(settings: OAuthSettings | AuthSettings, server: OAuthMetadata) -> Client:
    """The manifest's client, with an authentication method that its server supports."""
    assert settings.client_id is not None
    method: AuthMethod = "none"
    if settings.client_secret is not None:
        method = settings.token_endpoint_auth_method or secret_method(server)
    return Client(client_id=settings.client_id, client_secret=settings.client_secret, auth_method=method)


def secret_method(server: OAuthMetadata) -> AuthMethod:
    """How a client sends its secret if nobody says: Basic is the default of RFC 7591, 2."""
    offered = server.token_endpoint_auth_methods_supported or ["client_secret_basic"]
    return "client_secret_basic" if "client_secret_basic" in offered else "client_secret_post"


async def request_token(
    http: GuardedHttp, endpoint: str, client: Client, form: Mapping[str, str | None]
) -> OAuthToken:
    """Request a token with any grant. None values of the form are left out. Raises OAuthError."""
    answer = await http.ask(form_request(endpoint, client, form))
    if not answer.is_success or error_code(answer):  # some send errors with HTTP 200
        raise oauth_error(answer)
    try:
        return OAuthToken.model_validate_json(answer.content)
    except ValidationError:
        raise OAuthUnreachableError("the authorization server's answer has no token") from None


def form_request(endpoint: str, client: Client, form: Mapping[str, str | None]) -> httpx2.Request:
    """A form request of the client to its authorization server, authenticated in one way (RFC 6749, 2.3)."""
    data = {name: value for name, value in form.items() if value is not None}
    headers = {"Accept": "application/json"}
    if client.client_secret is not None and client.auth_method == "client_secret_basic":
        # RFC 6749, 2.3.1: both are form-encoded first.
        pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    else:
        data["client_id"] = client.client_id
        if client.client_secret is not None and client.auth_method == "client_secret_post":
            data["client_secret"] = client.client_secret
    return httpx2.Request("POST", endpoint, data=data, headers=headers)


def oauth_error(answer: httpx2.Response) -> OAuthRefusedError | OAuthUnreachableError:
    """The error for a failed request.

    A refusal has an OAuth error code, or HTTP 400 or 401 (RFC 6749, 5.2). Other statuses come from a gateway or a
    deployment.
    """
    code, status = error_code(answer), answer.status_code
    said = f"the authorization server says {code or f'HTTP {status}'}"
    is_later = code in _LATER or answer.is_server_error or status in (408, 429)
    if is_later or not (code or status in (400, 401)):
        return OAuthUnreachableError(said)
    return OAuthRefusedError(said, code=code)


class _Refusal(BaseModel):
    error: str


def error_code(answer: httpx2.Response) -> str:
    """The OAuth error code of an answer, or ""."""
    try:
        code = _Refusal.model_validate_json(answer.content).error
    except ValidationError:
        return ""
    return code if CODE.fullmatch(code) else ""
