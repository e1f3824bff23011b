"""Signs a person in to an upstream: authorization code with PKCE and a loopback redirect.

Source: RFC 6749, RFC 7636 (PKCE), RFC 7591 (registration), RFC 8252 (native apps), 7.3 and 8.3, RFC 9207 (issuer);
MCP 2026-07-28, basic/authorization.
"""

import asyncio
import base64
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, Self, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit

from mcp.client.auth import OAuthFlowError
from mcp.client.auth.utils import (
    create_client_registration_request,
    handle_registration_response,
    validate_authorization_response_iss,
)
from mcp.shared.auth import OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl, ValidationError

from manifests.portal_manifest import HttpUpstream, OAuthSettings
from upstreams.oauth.authorization_server import (
    CODE,
    Client,
    Discovered,
    GuardedHttp,
    OAuthError,
    OAuthRefusedError,
    OAuthUnreachableError,
    configured_client,
    discover,
    error_code,
    form_request,
    oauth_error,
    open_guarded_http,
    request_token,
)
from upstreams.oauth.tokens import Login

LOGIN_SECONDS: Final = 600.0
"""Time limit for the person."""
_PATH: Final = "/callback"
_MAX_HEAD_BYTES: Final = 32 * 1024
_HEAD_SECONDS: Final = 5.0
_PAGE: Final = "<!doctype html><title>mcp-code-portal</title><p>{}</p><p>You can close this window.</p>"

Show: TypeAlias = Callable[[str, str], None]
"""Called with the authorization server's issuer and the URL to open in a browser on this machine."""


async def log_in(spec: HttpUpstream, show: Show) -> Login:
    """Sign in. The upstream names the issuer for `show`, unless the manifest does. Raises OAuthError."""
    settings = spec.oauth or OAuthSettings()
    async with (
        open_redirection(settings.redirect_port or 0) as redirection,
        open_guarded_http(spec.url, settings.issuer) as http,
    ):
        found = await discover(spec, http)
        started = await CodeRequest.of(spec, found, redirection.uri, http)
        show(str(found.server.issuer), started.url(redirection.state, http))
        token = await started.token(await redirection.answer(), http)
        return Login.first(spec.url, found, started.client, token)


@dataclass(frozen=True)
class CodeRequest:
    """An authorization code that a person is sent for, with PKCE."""

    found: Discovered
    client: Client
    redirect_uri: str
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(64), repr=False)

    @classmethod
    async def of(cls, spec: HttpUpstream, found: Discovered, redirect_uri: str, http: GuardedHttp) -> Self:
        """A request for a login at an upstream. Raises OAuthError: it would not be safe, or there is no client."""
        if "S256" not in (found.server.code_challenge_methods_supported or ()):
            raise OAuthRefusedError(
                "the authorization server does not support PKCE with S256, which a safe login requires"
            )
        return cls(
            found, await _client(spec.oauth or OAuthSettings(), found, redirect_uri, http), redirect_uri
        )

    def url(self, state: str, http: GuardedHttp) -> str:
        """Where to send the person. Raises OAuthRefusedError: the server's URL is not allowed."""
        endpoint = str(self.found.server.authorization_endpoint)
        http.checked(endpoint)
        digest = hashlib.sha256(self.verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": self.client.client_id,
            "redirect_uri": self.redirect_uri,
            "state": state,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
            "resource": self.found.resource,
        }
        if self.found.scope:
            asked["scope"] = self.found.scope
            if "offline_access" in self.found.scope.split():
                asked["prompt"] = "consent"  # OpenID Connect Core, 11
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}"

    async def token(self, query: Mapping[str, str], http: GuardedHttp) -> OAuthToken:
        """The token for what the redirect brought. Raises OAuthError: refused, or from another server."""
        error = query.get("error", "")
        if error or "code" not in query:
            reason = error if CODE.fullmatch(error) else "no"
            raise OAuthRefusedError(f"the authorization server says {reason}", code=reason)
        try:
            validate_authorization_response_iss(query.get("iss"), self.found.server)
        except OAuthFlowError:
            raise OAuthRefusedError("the answer came from a different authorization server") from None
        form = {
            "grant_type": "authorization_code",
            "code": query["code"],
            "redirect_uri": self.redirect_uri,
            "code_verifier": self.verifier,
            "resource": self.found.resource,
        }
        return await request_token(http, str(self.found.server.token_endpoint), self.client, form)


async def revoke(login: Login, settings: OAuthSettings) -> bool:
    """Revoke the tokens (RFC 7009). Returns False if the server does not support it. Raises OAuthError."""
    # If the manifest names another server by now, at the stored one.
    login = login.as_configured(settings) or login
    endpoint, client = login.revocation_endpoint, login.client
    if endpoint is None:
        return False
    # Of issuers only the manifest's is trusted with a private address.
    async with open_guarded_http(login.url, settings.issuer) as http:
        for token, kind in ((login.refresh_token, "refresh_token"), (login.access_token, "access_token")):
            if token is None:
                continue
            form = {"token": token, "token_type_hint": kind}
            answer = await http.ask(form_request(endpoint, client, form))
            if error_code(answer) == "invalid_request":
                # Servers on the Python SDK (2.3) require the field even of clients without a secret.
                answer = await http.ask(form_request(endpoint, client, {"client_secret": "", **form}))
            if not answer.is_success:
                raise oauth_error(answer)
    return True


async def _client(settings: OAuthSettings, found: Discovered, redirect_uri: str, http: GuardedHttp) -> Client:
    """The manifest's client, or a new one for this login: few servers accept another port for the same client."""
    if settings.client_id is not None:
        return configured_client(settings, found.server)
    if settings.client_metadata_url and found.server.client_id_metadata_document_supported:
        return Client(client_id=settings.client_metadata_url)
    if found.server.registration_endpoint is None:
        raise OAuthRefusedError(
            "the authorization server does not register clients automatically; register one there with the redirect "
            f"URI {redirect_uri}, and set its client_id and redirect_port in the manifest"
        )
    wish = OAuthClientMetadata(
        redirect_uris=[AnyUrl(redirect_uri)],
        client_name="mcp-code-portal",
        token_endpoint_auth_method="none",
        scope=found.scope,
    )
    answer = await http.ask(create_client_registration_request(found.server, wish, ""))
    if not answer.is_success:
        raise oauth_error(answer)
    try:
        client = await handle_registration_response(answer)
        method = client.token_endpoint_auth_method or (
            "client_secret_basic" if client.client_secret else "none"
        )
        return Client.model_validate({**client.model_dump(), "auth_method": method})
    except (OAuthFlowError, ValidationError):
        raise OAuthUnreachableError("the authorization server registered an unusable client") from None


class Redirection:
    """The redirect of one login. Requests with another `state` are refused, and the login keeps waiting."""

    def __init__(self) -> None:
        self.state = secrets.token_urlsafe(32)
        self.port = 0
        self._came: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}{_PATH}"

    async def answer(self) -> dict[str, str]:
        """Wait for the authorization server's answer. Raises OAuthUnreachableError: it does not come."""
        try:
            async with asyncio.timeout(LOGIN_SECONDS):
                return await self._came
        except TimeoutError:
            raise OAuthUnreachableError(f"no sign-in within {LOGIN_SECONDS / 60:g} minutes") from None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one HTTP request, from the browser or from anyone else."""
        with suppress(TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                try:
                    status, text = self._handle(head.decode("latin-1"))
                except ValueError:  # an invalid URL, or too many parameters
                    status, text = "400 Bad Request", "The request is invalid."
                body = _PAGE.format(text)
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
                    "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n"
                    f"Content-Security-Policy: default-src 'none'\r\n\r\n{body}".encode()
                )
                await writer.drain()
        writer.close()

    def _handle(self, head: str) -> tuple[str, str]:
        """The status and the text for a request. Raises ValueError: it is malformed."""
        line, *fields = head.split("\r\n")
        method, target, _ = line.split(" ")
        host = next((field[5:].strip() for field in fields if field.lower().startswith("host:")), "")
        if method != "GET" or host not in (f"127.0.0.1:{self.port}", f"localhost:{self.port}"):
            return "400 Bad Request", "The request is not a redirect of a login."
        parts = urlsplit(target)
        if parts.path != _PATH:
            return "404 Not Found", "Not found."
        pairs = parse_qsl(parts.query, max_num_fields=50)
        query = dict(pairs)
        is_ours = secrets.compare_digest(query.get("state", "").encode(), self.state.encode())
        if not is_ours or len(query) < len(pairs):
            return "400 Bad Request", "This is not the current login."
        if not self._came.done():
            self._came.set_result(query)
        return "200 OK", "Not signed in." if "error" in query else "Signed in."


@asynccontextmanager
async def open_redirection(port: int) -> AsyncIterator[Redirection]:
    """Listen on 127.0.0.1 during the login; port 0 takes a free one. Raises OAuthError: the port is in use."""
    redirection = Redirection()
    try:
        server = await asyncio.start_server(redirection.serve, "127.0.0.1", port, limit=_MAX_HEAD_BYTES)
    except OSError as error:
        raise OAuthError(f"cannot listen on 127.0.0.1:{port}: {error.strerror or error}") from None
    try:
        redirection.port = server.sockets[0].getsockname()[1]
        yield redirection
    finally:
        server.close()
