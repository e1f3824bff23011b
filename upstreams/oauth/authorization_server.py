"""What an upstream and its authorization server are asked: who that is, what it offers, and for tokens.

Upstreams name these servers. So none is asked in the clear or at an address that is not public, no redirect is
followed, and no answer read without end. Errors hold no token, code or secret, and of a stranger's text a word.

    OAuthError
    ├── OAuthRefusedError        an authorization server said no, or cannot be trusted: asking again will not help
    └── OAuthUnreachableError    it could not be asked, or made no sense: later it may

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
from manifests.portal_manifest import HttpUpstream, OAuthSettings
from upstreams.transports.http import trusted_authorities


class OAuthError(Exception):
    """There is no token to be had."""


class OAuthRefusedError(OAuthError):
    """The answer was no; `code` is OAuth's own word for it, if it gave one."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class OAuthUnreachableError(OAuthError):
    """There was no answer that could be used."""


MAX_ANSWER_BYTES: Final = 1024 * 1024
REQUEST_SECONDS: Final = 10.0
ADDRESS_SECONDS: Final = 2.0
"""After which the host's next address is tried."""

_MAX_ADDRESSES: Final = 4
_FAKE_IP: Final = IPv4Network("198.18.0.0/15")
"""What some VPNs answer for every name, to look it up later: public, as far as can be hint_url."""
_HEADERS: Final = ("content-type", "www-authenticate")

CODE: Final = re.compile(r"[a-z_]{1,64}")
"""A word of OAuth for an error. Of what a stranger says nothing else is shown."""

_PING: Final = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
_ACCEPT: Final = {"Accept": "application/json, text/event-stream"}
_GRANTS: Final = ["authorization_code", "refresh_token"]
_LATER: Final = frozenset({"server_error", "slow_down", "temporarily_unavailable"})

AuthMethod: TypeAlias = Literal["none", "client_secret_basic", "client_secret_post"]


async def ask_system(host: str, port: int) -> Sequence[Address]:
    """A host's addresses, by the resolver of the system."""
    try:
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError("not a name") from error
    return addresses_in(found)


@asynccontextmanager
async def open_guarded_http(
    upstream_url: str, issuer: str | None = None, resolve: Resolver = ask_system
) -> AsyncIterator["GuardedHttp"]:
    """A client of its own: no header, cookie or connection is shared with what speaks to the upstream.

    `issuer` is the authorization server that the manifest names. A URL that makes no sense becomes an
    OAuthRefusedError.
    """
    network = GuardedNetwork((upstream_url, *([issuer] if issuer else [])), resolve)
    client = httpx2.AsyncClient(
        headers={"accept-encoding": "identity"},
        timeout=REQUEST_SECONDS,
        follow_redirects=False,
        verify=trusted_authorities(),
    )
    # Not as an argument: given a transport HTTPX asks no proxy of the environment any more.
    client._transport = transport = httpx2.AsyncHTTPTransport(verify=trusted_authorities())
    # HTTPX cannot be given a network.
    transport._pool = httpcore2.AsyncConnectionPool(
        ssl_context=trusted_authorities(), http2=False, network_backend=network
    )
    async with client:
        try:
            yield GuardedHttp(client, network, urlsplit(upstream_url).scheme == "http")
        except (httpx2.InvalidURL, ValueError):
            raise OAuthRefusedError("the upstream leads to a URL that makes no sense") from None


@dataclass(frozen=True)
class GuardedHttp:
    """The HTTP client of OAuth for one upstream.

    URLs come from metadata, so from strangers: only https:// is asked, and http:// on this machine if the upstream
    itself is there. Redirects are answers like any other.
    """

    client: httpx2.AsyncClient
    network: "GuardedNetwork"
    may_be_local: bool

    async def ask(self, request: httpx2.Request) -> httpx2.Response:
        """The answer, read whole.

        Raises:
            OAuthRefusedError: The URL may not be asked.
            OAuthUnreachableError: No answer within `REQUEST_SECONDS`, or one over `MAX_ANSWER_BYTES`.
        """
        host = self.checked(str(request.url))
        body = bytearray()
        try:
            with anyio.fail_after(REQUEST_SECONDS):
                if is_address(host):  # which a proxy would be asked for without a look
                    await self.network.addresses(host, request.url.port or 443)
                response = await self.client.send(request, stream=True)
                async with aclosing(response):
                    async for chunk in response.aiter_raw():
                        body += chunk
                        if len(body) > MAX_ANSWER_BYTES:
                            message = f"the answer of {host} is longer than {MAX_ANSWER_BYTES} bytes"
                            raise OAuthUnreachableError(message)
        except TimeoutError:
            raise OAuthUnreachableError(f"{host} gave no answer within {REQUEST_SECONDS:g} s") from None
        except (httpx2.RequestError, OSError) as error:
            raise OAuthUnreachableError(f"{host} cannot be reached ({type(error).__name__})") from None
        headers = [pair for pair in response.headers.multi_items() if pair[0].lower() in _HEADERS]
        return httpx2.Response(response.status_code, headers=headers, content=bytes(body), request=request)

    def checked(self, url: str) -> str:
        """The host of a URL that may be asked, or shown to a browser.

        Raises:
            OAuthRefusedError: It may not.
            ValueError: It is no URL, or its port is impossible.
        """
        parts = urlsplit(url)
        is_safe = is_safe_for_tokens(url) and (parts.scheme == "https" or self.may_be_local)
        if not is_safe or not parts.hostname or parts.username is not None or parts.port == 0:
            raise OAuthRefusedError("the upstream leads to a URL that is not https:// and will not be asked")
        return parts.hostname[:100]


class GuardedNetwork(httpcore2.AnyIOBackend):
    """Makes the connections on behalf of one upstream.

    Its own host and that of the manifest's `issuer` may be anywhere. Any other host may be at private addresses only
    if one of these is. Whoever answers for a name decides which address it stands for. So each is looked up once: an
    upstream that passes itself off as private is not reached any more, and then names nobody.
    """

    def __init__(self, own_urls: Iterable[str], resolve: Resolver = ask_system) -> None:
        super().__init__()
        self._own = {httpx2.URL(url).raw_host.decode("ascii") for url in own_urls}
        self._resolve = resolve
        self._found: dict[str, Sequence[Address]] = {}

    async def addresses(self, host: str, port: int) -> Sequence[Address]:
        """Those that may be connected to.

        Raises:
            OAuthRefusedError: There are others only.
            OSError: There are none.
        """
        found = await self._looked_up(host, port)
        if host in self._own:
            return found
        is_private = any([await self._is_private(own) for own in self._own])
        classes = {AddressClass.PUBLIC, AddressClass.PRIVATE} if is_private else {AddressClass.PUBLIC}
        allowed = [each for each in found if classify_address(each) in classes or each in _FAKE_IP]
        if not allowed:
            raise OAuthRefusedError(
                f"the upstream leads to {host[:100]}, which is at an address that is not public and will not be asked; "
                "if that is the authorization server, name it as `oauth.issuer` in the manifest"
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
        # The first of each family comes first, so that a dead family does not use up all attempts.
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
    """As whom the portal asks an authorization server."""

    model_config = ConfigDict(frozen=True)

    client_id: str = Field(repr=False)
    client_secret: str | None = Field(default=None, repr=False)
    auth_method: AuthMethod = "none"


@dataclass(frozen=True)
class Discovered:
    """`resource` is what tokens are for, `scope` what to ask for; None is whatever the server thinks right."""

    server: OAuthMetadata
    resource: str
    scope: str | None


async def discover(spec: HttpUpstream, http: GuardedHttp) -> Discovered:
    """Ask the upstream, then the authorization server that it names; only the manifest's, if that names one.

    Raises:
        OAuthRefusedError: There is none, or one that is not what it should be.
        OAuthUnreachableError: One of them does not answer.
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
            raise OAuthRefusedError("what the upstream says of itself is about another server")
        resource = str(metadata.resource)
        named = [str(server) for server in metadata.authorization_servers]
        issuer = issuer or named[0]
        if not any(issuers_match(server, issuer) for server in named):
            raise OAuthRefusedError(
                "the upstream trusts another authorization server than the manifest's `issuer`"
            )
    server = await _server(issuer, url, http)
    scope = settings.scope
    if not scope and (wanted is not None or (metadata is not None and metadata.scopes_supported is not None)):
        # What the upstream wants, never all that the authorization server has to give.
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
    if is_faulty:  # which says nothing about whether there is any
        raise OAuthUnreachableError("the upstream cannot say at present which authorization server it trusts")
    return None


async def _server(issuer: str | None, url: str, http: GuardedHttp) -> OAuthMetadata:
    """What the server says of itself; without an issuer it is the upstream itself, as servers of 2025-03-26 have it."""
    parts = urlsplit(url)
    expected = issuer or f"{parts.scheme}://{parts.netloc}"
    for candidate in build_oauth_authorization_server_metadata_discovery_urls(issuer, url):
        answer = await http.ask(create_oauth_metadata_request(candidate))
        is_answered, metadata = await handle_auth_metadata_response(answer)
        if not is_answered:
            raise OAuthUnreachableError("the authorization server cannot describe itself at present")
        if metadata is None:
            continue
        # Otherwise a server could pass itself off as another one (mix-up).
        if not issuers_match(str(metadata.issuer), expected):
            raise OAuthRefusedError("the authorization server describes itself as another one")
        return metadata
    raise OAuthRefusedError("the upstream names no authorization server, or one that says nothing of itself")


def configured_client(settings: OAuthSettings, server: OAuthMetadata) -> Client:
    """The client that the manifest names, as its server wants it to show its secret."""
    assert settings.client_id is not None
    offered = server.token_endpoint_auth_methods_supported or ["client_secret_basic"]
    method: AuthMethod = "none"
    if settings.client_secret is not None:
        method = "client_secret_basic" if "client_secret_basic" in offered else "client_secret_post"
    return Client(client_id=settings.client_id, client_secret=settings.client_secret, auth_method=method)


async def request_token(
    http: GuardedHttp, endpoint: str, client: Client, form: Mapping[str, str | None]
) -> OAuthToken:
    """Ask for a token by any grant; what is None in the form is left out. Raises OAuthError."""
    answer = await http.ask(form_request(endpoint, client, form))
    if not answer.is_success or error_code(answer):  # some tell it with HTTP 200
        raise oauth_error(answer)
    try:
        return OAuthToken.model_validate_json(answer.content)
    except ValidationError:
        raise OAuthUnreachableError("the authorization server answered with no token") from None


def form_request(endpoint: str, client: Client, form: Mapping[str, str | None]) -> httpx2.Request:
    """A form that the client sends to an endpoint of its authorization server."""
    data = {name: value for name, value in form.items() if value is not None}
    data["client_id"] = client.client_id
    headers = {"Accept": "application/json"}
    if client.client_secret is not None and client.auth_method == "client_secret_basic":
        # RFC 6749, 2.3.1: both are encoded as in a form first.
        pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    elif client.client_secret is not None and client.auth_method == "client_secret_post":
        data["client_secret"] = client.client_secret
    return httpx2.Request("POST", endpoint, data=data, headers=headers)


def oauth_error(answer: httpx2.Response) -> OAuthRefusedError | OAuthUnreachableError:
    """What an answer means that does not hold what was asked for.

    A no is a word of OAuth, or has HTTP 400 or 401 (RFC 6749, 5.2); other statuses come of a gateway or a deployment.
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
    """OAuth's word for what went wrong; "" if nothing did, or it gives none."""
    try:
        code = _Refusal.model_validate_json(answer.content).error
    except ValidationError:
        return ""
    return code if CODE.fullmatch(code) else ""
