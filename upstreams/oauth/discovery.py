"""Finds the authorization server of an upstream, and asks its endpoints for tokens.

Source: RFC 9728 (protected resource metadata), RFC 8414 (authorization server metadata), RFC 8707 (resource
indicators), RFC 6749 (OAuth 2.0), RFC 7009 (revocation); MCP 2026-07-28, basic/authorization.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Literal, TypeAlias
from urllib.parse import quote, urlsplit

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

from manifests.upstream_sections import HttpUpstream, OAuthSettings
from upstreams.oauth.http import GuardedHttp, OAuthRefusedError, OAuthUnreachableError

CODE: Final = re.compile(r"[a-z_]{1,64}")
"""A word of OAuth for an error. Of what a stranger says nothing else is shown."""

_PING: Final = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
_ACCEPT: Final = {"Accept": "application/json, text/event-stream"}
_GRANTS: Final = ["authorization_code", "refresh_token"]
_LATER: Final = frozenset({"server_error", "slow_down", "temporarily_unavailable"})

AuthMethod: TypeAlias = Literal["none", "client_secret_basic", "client_secret_post"]


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
    told, wanted = None, None
    if answer.status_code == HTTPStatus.UNAUTHORIZED:
        told, wanted = extract_resource_metadata_from_www_auth(answer), extract_scope_from_www_auth(answer)
    resource = resource_url_from_server_url(url)
    metadata = await _resource_metadata(told, url, http)
    if metadata is not None:
        if not check_resource_allowed(resource, str(metadata.resource)):
            raise OAuthRefusedError("what the upstream says of itself is about another server")
        resource = str(metadata.resource)
    server = await _server(_issuer(metadata, settings), url, http)
    scope = settings.scope
    if not scope and (wanted is not None or (metadata is not None and metadata.scopes_supported is not None)):
        # What the upstream wants, never all that the authorization server has to give.
        scope = get_client_metadata_scopes(wanted, metadata, server, _GRANTS)
    return Discovered(server, resource, scope)


async def _resource_metadata(
    told: str | None, url: str, http: GuardedHttp
) -> ProtectedResourceMetadata | None:
    is_faulty = False
    for candidate in build_protected_resource_metadata_discovery_urls(told, url):
        answer = await http.ask(create_oauth_metadata_request(candidate))
        if (metadata := await handle_protected_resource_response(answer)) is not None:
            return metadata
        is_faulty |= answer.is_server_error or answer.status_code == HTTPStatus.TOO_MANY_REQUESTS
    if is_faulty:  # which says nothing about whether there is any
        raise OAuthUnreachableError("the upstream cannot say at present which authorization server it trusts")
    return None


def _issuer(metadata: ProtectedResourceMetadata | None, settings: OAuthSettings) -> str | None:
    """Which authorization server to ask; None is the upstream itself, as servers of 2025-03-26 have it."""
    if metadata is None:
        return settings.issuer
    named = [str(server) for server in metadata.authorization_servers]
    if settings.issuer is None:
        return named[0]
    for server in named:
        if issuers_match(server, settings.issuer):
            return server
    raise OAuthRefusedError("the upstream trusts another authorization server than the manifest's `issuer`")


async def _server(issuer: str | None, url: str, http: GuardedHttp) -> OAuthMetadata:
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
        raise refusal(answer)
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


def refusal(answer: httpx2.Response) -> OAuthRefusedError | OAuthUnreachableError:
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
