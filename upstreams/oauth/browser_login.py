"""Signs a person in to an upstream: authorization code with PKCE, through a browser.

Source: RFC 6749, RFC 7636 (PKCE), RFC 7591 (registration), RFC 9207 (issuer); MCP 2026-07-28, basic/authorization.
"""

from collections.abc import Callable
from typing import Final, TypeAlias
from urllib.parse import urlencode

import anyio
from mcp.client.auth import OAuthFlowError, PKCEParameters
from mcp.client.auth.utils import (
    create_client_registration_request,
    handle_registration_response,
    should_use_client_metadata_url,
    validate_authorization_response_iss,
)
from mcp.shared.auth import OAuthClientMetadata, OAuthMetadata
from pydantic import AnyUrl, ValidationError

from manifests.upstream_sections import HttpUpstream, OAuthSettings
from upstreams.oauth.discovery import Discovered, discover
from upstreams.oauth.errors import OAuthRefusedError, OAuthUnreachableError
from upstreams.oauth.guarded_http import GuardedHttp, open_guarded_http
from upstreams.oauth.login import AuthMethod, Client, Login, new_login
from upstreams.oauth.loopback import Redirection, open_redirection
from upstreams.oauth.token_endpoint import refusal, request_token

LOGIN_SECONDS: Final = 600.0
"""How long a person may take."""


Show: TypeAlias = Callable[[str, str], None]
"""Gets the name of the authorization server, and the URL that a person has to open in a browser on this machine."""


async def log_in(spec: HttpUpstream, show: Show) -> Login:
    """Sign in. Whom `show` names is only what the upstream says, unless the manifest names an issuer.

    Raises:
        OAuthError: It did not come to that.
    """
    settings = spec.oauth or OAuthSettings()
    async with (
        open_redirection(settings.redirect_port or 0) as redirection,
        open_guarded_http(spec.url, settings.issuer) as http,
    ):
        found = await discover(spec.url, spec.headers, settings, http)
        if "S256" not in (found.server.code_challenge_methods_supported or ()):
            raise OAuthRefusedError(
                "the authorization server does not offer PKCE with S256, without which no login is safe"
            )
        client = await _client(settings, found, redirection.uri, http)
        proof = PKCEParameters.generate()
        code = await _code(found, client, proof, redirection, http, show)
        return await _exchanged(spec.url, found, client, proof, code, redirection.uri, http)


async def _client(settings: OAuthSettings, found: Discovered, redirect_uri: str, http: GuardedHttp) -> Client:
    if settings.client_id is not None:
        return configured_client(settings, found.server)
    url = settings.client_metadata_url
    if url is not None and should_use_client_metadata_url(found.server, url):
        return Client(client_id=url)
    if found.server.registration_endpoint is None:
        raise OAuthRefusedError(
            "the authorization server registers no clients by itself: register one there, with the redirect URI "
            f"{redirect_uri}, and write its client_id and redirect_port into the manifest"
        )
    return await _registered(found, redirect_uri, http)


def configured_client(settings: OAuthSettings, server: OAuthMetadata) -> Client:
    """The client that the manifest names, as its server wants it to show its secret."""
    assert settings.client_id is not None
    offered = server.token_endpoint_auth_methods_supported or ["client_secret_basic"]
    method: AuthMethod = "none"
    if settings.client_secret is not None:
        method = "client_secret_basic" if "client_secret_basic" in offered else "client_secret_post"
    return Client(client_id=settings.client_id, client_secret=settings.client_secret, auth_method=method)


async def _registered(found: Discovered, redirect_uri: str, http: GuardedHttp) -> Client:
    """A client for this login alone: few servers take another port for the same client, as they should."""
    wish = OAuthClientMetadata(
        redirect_uris=[AnyUrl(redirect_uri)],
        client_name="mcp-code-portal",
        token_endpoint_auth_method="none",
        scope=found.scope,
    )
    answer = await http.ask(create_client_registration_request(found.server, wish, ""))
    if not answer.is_success:
        raise refusal(answer)
    try:
        client = await handle_registration_response(answer)
        return Client.model_validate(
            {
                "client_id": client.client_id,
                "client_secret": client.client_secret,
                "auth_method": client.token_endpoint_auth_method
                or ("client_secret_basic" if client.client_secret else "none"),
            }
        )
    except (OAuthFlowError, ValidationError):
        raise OAuthUnreachableError(
            "the authorization server registered no client that can be used"
        ) from None


async def _code(
    found: Discovered,
    client: Client,
    proof: PKCEParameters,
    redirection: Redirection,
    http: GuardedHttp,
    show: Show,
) -> str:
    endpoint = str(found.server.authorization_endpoint)
    http.checked(endpoint)
    asked = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirection.uri,
        "state": redirection.state,
        "code_challenge": proof.code_challenge,
        "code_challenge_method": "S256",
        "resource": found.resource,
    }
    if found.scope:
        asked["scope"] = found.scope
        if "offline_access" in found.scope.split():
            asked["prompt"] = "consent"  # OpenID Connect Core, 11
    show(str(found.server.issuer), f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}")
    try:
        with anyio.fail_after(LOGIN_SECONDS):
            result = await redirection.result()
    except TimeoutError:
        raise OAuthUnreachableError(f"nobody signed in within {LOGIN_SECONDS / 60:g} minutes") from None
    try:
        validate_authorization_response_iss(result.iss, found.server)
    except OAuthFlowError:
        raise OAuthRefusedError("the answer came from another authorization server than was asked") from None
    return result.code


async def _exchanged(
    url: str,
    found: Discovered,
    client: Client,
    proof: PKCEParameters,
    code: str,
    redirect_uri: str,
    http: GuardedHttp,
) -> Login:
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri,
        "code_verifier": proof.code_verifier,
        "resource": found.resource,
    }
    token = await request_token(http, str(found.server.token_endpoint), client, form)
    return new_login(url, found, client, token)
