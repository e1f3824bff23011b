"""Requests to an upstream and its authorization server: discovery, metadata and tokens.

Upstreams name these servers, so the URLs are untrusted: only https:// at public addresses is requested, discovery alone
follows redirects, within an origin, and answers are capped. Errors contain no token, code or secret; of foreign text
they show only URLs, an OAuth error code, and the beginning of its description.

    OAuthError
    ├── OAuthRefusedError        the authorization server refused, or cannot be trusted: a retry will not help
    └── OAuthUnreachableError    no usable answer: a later retry may help

Source: RFC 9728 (protected resource metadata), RFC 8414 (authorization server metadata), RFC 8707 (resource
indicators), RFC 6749 (OAuth 2.0), RFC 7009 (revocation); MCP 2026-07-28, basic/authorization.
"""

import base64
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import IPv4Network
from typing import Final, Literal, TypeAlias, TypeVar
from urllib.parse import quote, urldefrag, urljoin, urlsplit

import httpx2
from mcp.client.auth import utils as sdk
from mcp.shared.auth_utils import check_resource_allowed
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from manifests.constraints import (
    DEFAULT_PORTS,
    Address,
    AddressClass,
    Resolver,
    classify_address,
    is_safe_for_tokens,
)
from manifests.portal_manifest import AuthSettings, HttpUpstream, OAuthSettings
from upstreams import http_client
from upstreams.errors import UpstreamUnavailableError
from upstreams.oauth.documents import ResourceMetadata, ServerMetadata, Token, words
from upstreams.redaction import Redaction
from upstreams.transports.http_credentials import challenge_of

T = TypeVar("T", ResourceMetadata, ServerMetadata)


class OAuthError(Exception):
    """No token can be obtained. `remedy` is for the operator, as in `UpstreamError`."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy


class OAuthRefusedError(OAuthError):
    """The request was refused; `code` is the OAuth error code, or ""."""

    def __init__(self, message: str, code: str = "", remedy: str = "") -> None:
        super().__init__(message, remedy or _REMEDIES.get(code, ""))
        self.code = code


class OAuthUnreachableError(OAuthError):
    """There was no usable answer."""


REQUEST_SECONDS: Final = 10.0
MAX_REDIRECTS: Final = 4
_MAX_SERVERS: Final = 4
_FAKE_IP: Final = IPv4Network("198.18.0.0/15")
"""Addresses that some VPNs return for every name and resolve later ("fake IP"): they count as public."""

CODE: Final = re.compile(r"[a-z_]{1,64}")
"""An OAuth error code. A description is shown only next to one."""

_MAX_DESCRIPTION: Final = 300
_USER: Final = re.compile(r"//[^/?#]*@")
_SECRETS: Final = ("code", "code_verifier", "refresh_token")
_PING: Final = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
_ACCEPT: Final = {"Accept": "application/json, text/event-stream"}
_REMEDIES: Final = {
    "consent_required": "see `oauth.authorize_parameters`",
    "invalid_target": "see `oauth.send_resource`",
}
_LATER: Final = frozenset({"server_error", "slow_down", "temporarily_unavailable"})

AuthMethod: TypeAlias = Literal["none", "client_secret_basic", "client_secret_post"]


@asynccontextmanager
async def open_guarded_http(
    upstream_url: str, issuer: str | None = None, resolve: Resolver = http_client.resolve_by_system
) -> AsyncIterator["GuardedHttp"]:
    """A separate HTTP client: it shares no header, cookie or connection with the upstream's client.

    `issuer` is the manifest's authorization server. An invalid URL becomes an OAuthRefusedError.
    """
    own_urls = (upstream_url, *([issuer] if issuer else []))
    network = GuardedNetwork(own_urls, resolve)
    guard = http_client.Guard(network.check, http_client.environment_proxy)
    async with http_client.guarded_client(guard) as client:
        try:
            yield GuardedHttp(client, urlsplit(upstream_url).scheme == "http")
        except (httpx2.InvalidURL, ValueError):
            raise OAuthRefusedError("the upstream's OAuth metadata has an invalid URL") from None


@dataclass(frozen=True)
class GuardedHttp:
    """One upstream's OAuth client. It requests https://, and http:// on this machine if the upstream is local."""

    client: httpx2.AsyncClient
    may_be_local: bool

    async def ask(self, request: httpx2.Request, *, reads: bool = True) -> httpx2.Response:
        """Send a request and read the whole answer, or only its head. A redirect is an answer.

        Raises OAuthRefusedError: the URL is not allowed. Raises OAuthUnreachableError: no answer within
        `REQUEST_SECONDS`, or one over `MAX_ANSWER_BYTES` when decoded.
        """
        self.checked(str(request.url))
        url = shown(str(request.url))
        try:
            return await http_client.exchange(self.client, request, REQUEST_SECONDS, reads=reads)
        except TimeoutError:
            raise OAuthUnreachableError(f"{url} did not answer within {REQUEST_SECONDS:g} s") from None
        except http_client.AnswerError as error:
            raise OAuthUnreachableError(f"{url} {error}") from None
        except UpstreamUnavailableError as error:
            raise OAuthUnreachableError(f"{url} cannot be reached: {error}", error.remedy) from None
        except (httpx2.RequestError, OSError) as error:
            raise OAuthUnreachableError(f"{url} cannot be reached ({type(error).__name__})") from None

    async def find(self, request: httpx2.Request, *, reads: bool = True) -> httpx2.Response:
        """Like `ask`, but follows redirects that keep the method and the origin. Each hop is checked."""
        answer = await self.ask(request, reads=reads)
        asked = (request.method, origin_of(str(request.url)))
        for _ in range(MAX_REDIRECTS):
            new = answer.next_request
            if new is None or (new.method, origin_of(str(new.url))) != asked:
                break
            answer = await self.ask(new, reads=reads)
        return answer

    def checked(self, url: str) -> None:
        """Check a URL that will be requested, or shown to a browser.

        Raises OAuthRefusedError: the URL is not allowed. Raises ValueError: it is not a URL, or its port is invalid.
        """
        parts = urlsplit(url)
        host = parts.hostname or ""
        is_host = re.fullmatch(r"(?!-)[a-z0-9_.:-]+(?<!-)", host)
        is_safe = is_safe_for_tokens(url) and (parts.scheme == "https" or self.may_be_local)
        if not is_host or not is_safe or parts.username is not None or parts.port == 0:
            raise OAuthRefusedError(f"the upstream's OAuth metadata has {shown(url)}, which is not https://")


def shown(url: str) -> str:
    """A URL as messages show it: escaped, shortened, and without user and query, which may contain a key."""
    return ascii(_USER.sub("//", url).partition("?")[0][:200])


def origin_of(url: str) -> str:
    """The normalized origin of a URL (RFC 3986, 6.2)."""
    return http_client.origin(httpx2.URL(url.lower()))


class GuardedNetwork:
    """The addresses that requests on behalf of one upstream may reach.

    The hosts of the upstream and of the manifest's `issuer` may have any address. Others may have private addresses
    only if one of these two has. Each name is resolved once, because its owner controls the answer: an upstream that
    pretends to be private is then unreachable, so it cannot name another host.
    """

    def __init__(self, own_urls: Iterable[str], resolve: Resolver) -> None:
        self._own = {httpx2.URL(url).raw_host.decode("ascii") for url in own_urls}
        self._resolve = resolve
        self._found: dict[str, Sequence[Address]] = {}

    async def check(self, url: httpx2.URL) -> http_client.Destination:
        """The guard's check. Raises what `addresses` raises."""
        host = url.raw_host.decode("ascii")
        addresses = await self.addresses(host, url.port or DEFAULT_PORTS[url.scheme])
        return http_client.Destination(host, addresses)

    async def addresses(self, host: str, port: int) -> Sequence[Address]:
        """The allowed addresses of a host. Raises OAuthRefusedError if none is allowed, OSError if it has none."""
        found = await self._looked_up(host, port)
        if host in self._own:
            return found
        is_private = any([await self._is_private(own) for own in self._own])
        classes = {AddressClass.PUBLIC, AddressClass.PRIVATE} if is_private else {AddressClass.PUBLIC}
        allowed = [each for each in found if classify_address(each) in classes or each in _FAKE_IP]
        if not allowed:
            raise OAuthRefusedError(
                f"the upstream's OAuth URL uses {host[:100]}, which has a non-public address",
                remedy="if that is intended, set `oauth.issuer` in the manifest",
            )
        return allowed

    async def _is_private(self, host: str) -> bool:
        try:
            found = await self._looked_up(host, 443)
            return all(classify_address(each) is AddressClass.PRIVATE for each in found)
        except OSError:
            return False

    async def _looked_up(self, host: str, port: int) -> Sequence[Address]:
        if host not in self._found:
            self._found[host] = tuple(dict.fromkeys(await self._resolve(host, port)))
        return self._found[host]


class Client(BaseModel):
    """The portal as an OAuth client."""

    model_config = ConfigDict(frozen=True)

    client_id: str = Field(repr=False)
    client_secret: str | None = Field(default=None, repr=False)
    auth_method: AuthMethod = "none"


@dataclass(frozen=True)
class Discovered:
    """The result of discovery: `resource` is the audience of tokens, `scope` None leaves the choice to the server."""

    server: ServerMetadata
    resource: str | None
    """Not sent if None."""
    scope: str | None


async def discover(spec: HttpUpstream, http: GuardedHttp) -> Discovered:
    """Ask the upstream, then the authorization server that it names; a configured `issuer` must be among those named.

    Raises OAuthRefusedError: there is no usable metadata. Raises OAuthUnreachableError: there may be some later.
    """
    url, settings = _USER.sub("//", urldefrag(spec.url).url), spec.oauth or OAuthSettings()
    if settings.token_url is not None:
        server = ServerMetadata(
            issuer=settings.issuer or origin_of(settings.token_url),
            token_endpoint=settings.token_url,
            authorization_endpoint=settings.authorize_url,
            code_challenge_methods_supported=("S256",),  # PKCE is used in any case
        )
        return Discovered(server, url, settings.scope)
    probe = httpx2.Request("POST", url, json=_PING, headers={**spec.headers, **_ACCEPT})
    answer = await http.find(probe, reads=False)
    challenge = challenge_of(answer) if answer.status_code == HTTPStatus.UNAUTHORIZED else {}
    if hint := challenge.get("resource_metadata"):
        hint = urljoin(url, hint)  # some servers name a path
    faults: list[OAuthError] = []
    urls = sdk.build_protected_resource_metadata_discovery_urls(hint, url)
    metadata = await _first(http, urls, ResourceMetadata, lambda found: "", faults)
    error = _none("the upstream's OAuth metadata is unavailable", faults)
    if metadata is not None:
        faults.clear()
    elif isinstance(error, OAuthUnreachableError):  # the metadata may still exist
        raise error
    metadata = metadata or ResourceMetadata.model_construct(resource=url)
    # RFC 8707 and 9728 compare URLs after normalization.
    one, other = (origin_of(each) + urlsplit(each).path for each in (url, metadata.resource))
    if not check_resource_allowed(one, other):
        told = f"{shown(metadata.resource)}, not for the manifest's `url` {shown(url)}"
        raise OAuthRefusedError(f"the upstream's OAuth metadata is for {told}")
    issuers, issuer = metadata.authorization_servers, settings.issuer
    if issuer and issuers and not any(sdk.issuers_match(each, issuer) for each in issuers):
        told = f"{', '.join(map(shown, issuers[:_MAX_SERVERS]))}, not the manifest's `issuer` {shown(issuer)}"
        raise OAuthRefusedError(f"the upstream lists as its authorization server {told}")
    server = await server_metadata([issuer] if issuer else issuers, url, http, faults)
    # The upstream's scopes, never all that the authorization server knows.
    scopes = words(challenge.get("scope")) or metadata.scopes_supported
    if scopes and settings.grant == "authorization_code" and "offline_access" in server.scopes_supported:
        scopes = tuple(dict.fromkeys((*scopes, "offline_access")))
    return Discovered(server, metadata.resource, settings.scope or " ".join(scopes) or None)


async def server_metadata(
    issuers: Sequence[str], url: str, http: GuardedHttp, faults: Iterable[OAuthError] = ()
) -> ServerMetadata:
    """The metadata of the first issuer that has any. Without issuers the upstream is its own issuer, as in 2025-03-26.

    A document that offers PKCE with S256 is preferred. Raises OAuthError if no document is usable.
    """
    faults, spare = list(faults), list[ServerMetadata]()

    def check(server: ServerMetadata) -> str:
        # Otherwise a server could impersonate another one (mix-up attack). RFC 8414 compares texts.
        if not sdk.issuers_match(server.issuer, issuer):
            is_slash = server.issuer.rstrip("/") == issuer.rstrip("/")
            how = " (only the slash at the end differs)" if is_slash else ""
            return f"its issuer is {shown(server.issuer)}, not {shown(issuer)}{how}"
        if "S256" not in server.code_challenge_methods_supported:
            spare.append(server)
            return "it does not offer PKCE with S256"
        return ""

    for issuer in issuers[:_MAX_SERVERS] or ["://".join(urlsplit(url)[:2])]:
        urls = sdk.build_oauth_authorization_server_metadata_discovery_urls(issuer, url)
        server = await _first(http, urls, ServerMetadata, check, faults) or next(iter(spare), None)
        if server is not None:
            http.checked(server.token_endpoint)
            return server
    remedy = "set `oauth.token_url`, and for people `oauth.authorize_url`, to skip discovery"
    raise _none("no usable metadata of an authorization server", faults, remedy)


async def _first(
    http: GuardedHttp, urls: Iterable[str], kind: type[T], check: Callable[[T], str], faults: list[OAuthError]
) -> T | None:
    """Return the first document without a fault; the faults of the others are added to `faults`.

    An http:// URL, which servers behind a proxy may name, is skipped. Raises OAuthRefusedError: an https:// URL is not
    allowed.
    """
    for url in dict.fromkeys(urls):
        try:
            answer = await http.find(sdk.create_oauth_metadata_request(url))
            new = answer.next_request
            fault = f"HTTP {answer.status_code}{f', a redirect to {shown(str(new.url))}' if new else ''}"
            is_later = answer.is_server_error or answer.status_code == HTTPStatus.TOO_MANY_REQUESTS
            if answer.status_code == HTTPStatus.OK:
                document = kind.model_validate_json(answer.content)
                if not (fault := check(document)):
                    return document
        except ValidationError as error:
            fault = fault_of(error)
        except OAuthError as error:
            fault, is_later = str(error), isinstance(error, OAuthUnreachableError)
            if not is_later and urlsplit(url).scheme == "https":
                raise
        faults.append((OAuthUnreachableError if is_later else OAuthRefusedError)(f"{shown(url)}: {fault}"))
    return None


def _none(message: str, faults: Sequence[OAuthError], remedy: str = "") -> OAuthError:
    is_later = any(isinstance(each, OAuthUnreachableError) for each in faults)
    kind = OAuthUnreachableError if is_later else OAuthRefusedError
    return kind(f"{message} ({'; '.join(map(str, faults))})", remedy=remedy)


def fault_of(error: ValidationError) -> str:
    """Name the first invalid field of a document and the reason."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, first['loc']))} {first['msg'][:100]}".strip()


def configured_client(settings: OAuthSettings | AuthSettings, server: ServerMetadata) -> Client:
    """The manifest's client, with an authentication method that its server supports."""
    assert settings.client_id is not None
    method: AuthMethod = "none"
    if settings.client_secret is not None:
        # Basic is the default of RFC 7591, 2.
        is_basic = "client_secret_basic" in (
            server.token_endpoint_auth_methods_supported or ["client_secret_basic"]
        )
        known: AuthMethod = "client_secret_basic" if is_basic else "client_secret_post"
        method = settings.token_endpoint_auth_method or known
    return Client(client_id=settings.client_id, client_secret=settings.client_secret, auth_method=method)


async def request_token(
    http: GuardedHttp, endpoint: str, client: Client, form: Mapping[str, str | None]
) -> Token:
    """Request a token with any grant. None values of the form are left out. Raises OAuthError."""
    answer = await http.ask(form_request(endpoint, client, form))
    if not answer.is_success or error_code(answer):  # some servers send errors with HTTP 200
        raise oauth_error(answer, [client.client_secret, *map(form.get, _SECRETS)])
    try:
        return Token.model_validate_json(answer.content)
    except ValidationError as error:
        raise OAuthUnreachableError(f"{shown(endpoint)} gives no usable token: {fault_of(error)}") from None


def form_request(endpoint: str, client: Client, form: Mapping[str, str | None]) -> httpx2.Request:
    """A form request of the client to its authorization server, authenticated in one way (RFC 6749, 2.3)."""
    data = {name: value for name, value in form.items() if value is not None}
    headers = {"Accept": "application/json"}
    if client.client_secret is not None and client.auth_method == "client_secret_basic":
        # RFC 6749, 2.3.1: id and secret are form-encoded first.
        pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    else:
        data["client_id"] = client.client_id
        if client.client_secret is not None and client.auth_method == "client_secret_post":
            data["client_secret"] = client.client_secret
    return httpx2.Request("POST", endpoint, data=data, headers=headers)


def oauth_error(answer: httpx2.Response, secrets: Iterable[str | None] = ()) -> OAuthError:
    """The error for a failed request. `secrets` were sent, and are masked.

    A refusal has an OAuth error code, or HTTP 400 or 401 (RFC 6749, 5.2). Other statuses come from a gateway or a
    deployment.
    """
    code, status = error_code(answer), answer.status_code
    text = _Refusal.model_validate_json(answer.content).error_description if code else None
    said = f"{shown(str(answer.request.url))} says {described(code or f'HTTP {status}', text, secrets)}"
    is_later = code in _LATER or answer.is_server_error or status in (408, 429)
    if is_later or not (code or status in (400, 401)):
        return OAuthUnreachableError(said)
    return OAuthRefusedError(said, code=code)


class _Refusal(BaseModel):
    error: str
    error_description: object = None


def error_code(answer: httpx2.Response) -> str:
    """The OAuth error code of an answer, or ""."""
    try:
        code = _Refusal.model_validate_json(answer.content).error
    except ValidationError:
        return ""
    return code if CODE.fullmatch(code) else ""


def described(code: str, description: object, secrets: Iterable[str | None] = ()) -> str:
    """A code, its `error_description` (masked, printable, shortened)."""
    text = description.encode("utf-8", "replace") if isinstance(description, str) else b""
    why = f": {Redaction(filter(None, secrets)).excerpt(text, _MAX_DESCRIPTION)!r}" if text.strip() else ""
    return f"{code}{why}"
