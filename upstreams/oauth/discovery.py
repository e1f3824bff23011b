"""Finds the authorization server of an upstream, and what to ask it for.

Source: RFC 9728 (protected resource metadata), RFC 8414 (authorization server metadata), RFC 8707 (resource
indicators); MCP 2026-07-28, basic/authorization.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

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
from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url

from manifests.upstream_sections import OAuthSettings
from upstreams.oauth.errors import OAuthRefusedError, OAuthUnreachableError
from upstreams.oauth.guarded_http import GuardedHttp

_PING: Final = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
_ACCEPT: Final = {"Accept": "application/json, text/event-stream"}
_GRANTS: Final = ["authorization_code", "refresh_token"]


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
    challenge = await _challenge(url, headers, http)
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
    return Discovered(server, resource, settings.scope or _scope(asked, metadata, server))


async def _challenge(url: str, headers: Mapping[str, str], http: GuardedHttp) -> httpx2.Response | None:
    """The upstream's 401, which says where its metadata is; None if it asks for nothing."""
    answer = await http.ask(httpx2.Request("POST", url, json=_PING, headers={**headers, **_ACCEPT}))
    return answer if answer.status_code == HTTPStatus.UNAUTHORIZED else None


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


def _scope(
    asked: str | None, metadata: ProtectedResourceMetadata | None, server: OAuthMetadata
) -> str | None:
    """What the upstream wants, never all that the authorization server has to give."""
    says = asked is not None or (metadata is not None and metadata.scopes_supported is not None)
    return get_client_metadata_scopes(asked, metadata, server, _GRANTS) if says else None
