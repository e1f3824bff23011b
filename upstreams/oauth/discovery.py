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

from manifests.upstream_sections import OAuthSettings
from upstreams.oauth.http import GuardedHttp, OAuthRefusedError, OAuthUnreachableError

_PING: Final = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
_ACCEPT: Final = {"Accept": "application/json, text/event-stream"}
_GRANTS: Final = ["authorization_code", "refresh_token"]
_CODE: Final = re.compile(r"[a-z_]{1,64}")
_MALFORMED: Final = "invalid_request"
_LATER: Final = frozenset({"server_error", "slow_down", "temporarily_unavailable"})
"""Words of OAuth that say no for now."""
_BUSY: Final = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
_STATUSES_OF_NO: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED)
"""A no has one of these (RFC 6749, 5.2); others without a word of OAuth come of a gateway, or of a deployment."""

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


async def discover(
    url: str, headers: Mapping[str, str], settings: OAuthSettings, http: GuardedHttp
) -> Discovered:
    """Ask the upstream, then the authorization server that it names; only the manifest's, if that names one.

    Raises:
        OAuthRefusedError: There is none, or one that is not what it should be.
        OAuthUnreachableError: One of them does not answer.
    """
    answer = await http.ask(httpx2.Request("POST", url, json=_PING, headers={**headers, **_ACCEPT}))
    # Its 401 says where its metadata is.
    challenge = answer if answer.status_code == HTTPStatus.UNAUTHORIZED else None
    resource = resource_url_from_server_url(url)
    metadata = await _resource_metadata(
        extract_resource_metadata_from_www_auth(challenge) if challenge else None, url, http
    )
    if metadata is not None:
        if not check_resource_allowed(resource, str(metadata.resource)):
            raise OAuthRefusedError("what the upstream says of itself is about another server")
        resource = str(metadata.resource)
    server = await _server(_issuer(metadata, settings), url, http)
    asked = extract_scope_from_www_auth(challenge) if challenge else None
    scope = settings.scope
    if not scope and (asked is not None or (metadata is not None and metadata.scopes_supported is not None)):
        # What the upstream wants, never all that the authorization server has to give.
        scope = get_client_metadata_scopes(asked, metadata, server, _GRANTS)
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
    """Ask for a token by any grant; what is None in the form is left out.

    Raises:
        OAuthRefusedError: The server says no; `code` is its reason.
        OAuthUnreachableError: There is no usable answer.
    """
    answer = await http.ask(_request(endpoint, client, form))
    if answer.is_success:
        try:
            return OAuthToken.model_validate_json(answer.content)
        except ValidationError:
            if _error_code(answer.content):  # some tell it with HTTP 200
                raise refusal(answer) from None
            raise OAuthUnreachableError("the authorization server answered with no token") from None
    raise refusal(answer)


async def revoke_token(http: GuardedHttp, endpoint: str, client: Client, token: str, kind: str) -> None:
    """Have a token forgotten where it came from; `kind` is access_token or refresh_token. Raises OAuthError."""
    form = {"token": token, "token_type_hint": kind}
    answer = await http.ask(_request(endpoint, client, form))
    is_malformed = not answer.is_success and _error_code(answer.content) == _MALFORMED
    if is_malformed and client.auth_method != "client_secret_post":
        # Servers on the Python SDK (2.3) want the field of clients, too, that have no secret or send it elsewhere.
        answer = await http.ask(_request(endpoint, client, {**form, "client_secret": ""}))
    if not answer.is_success:
        raise refusal(answer)


def refusal(answer: httpx2.Response) -> OAuthRefusedError | OAuthUnreachableError:
    """What an answer means that does not hold what was asked for. Of its text only OAuth's own word is shown."""
    code = _error_code(answer.content)
    said = f"the authorization server says {code or f'HTTP {answer.status_code}'}"
    has_said_no = bool(code) or answer.status_code in _STATUSES_OF_NO
    if answer.is_server_error or answer.status_code in _BUSY or code in _LATER or not has_said_no:
        return OAuthUnreachableError(said)
    return OAuthRefusedError(said, code=code)


def _request(endpoint: str, client: Client, form: Mapping[str, str | None]) -> httpx2.Request:
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


class _Refusal(BaseModel):
    error: str


def _error_code(body: bytes) -> str:
    try:
        code = _Refusal.model_validate_json(body).error
    except ValidationError:
        return ""
    return code if _CODE.fullmatch(code) else ""
