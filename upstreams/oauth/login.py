"""Signs a person in to an upstream: authorization code with PKCE and a loopback redirect.

Source: RFC 6749, RFC 7636 (PKCE), RFC 7591 (registration), RFC 8252 (native apps), 7.3 and 8.3, RFC 9207 (issuer);
MCP 2026-07-28, basic/authorization.
"""

import asyncio
import base64
import errno
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final, Self, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
from pydantic import ValidationError

from manifests.portal_manifest import HttpUpstream, OAuthSettings
from upstreams.oauth import authorization_server as oauth
from upstreams.oauth.documents import Registration, ServerMetadata, Token
from upstreams.oauth.tokens import Login

LOGIN_SECONDS: Final = 600.0
"""Time limit for the person."""
_GRANTS: Final = ("authorization_code", "refresh_token")
_HOSTS: Final = ("127.0.0.1", "localhost")
_LOOPBACK: Final = ("127.0.0.1", "::1")  # a browser may take `localhost` for either
_MAX_HEAD_BYTES: Final = 32 * 1024
_HEAD_SECONDS: Final = 5.0
_PAGE: Final = "<!doctype html><title>mcp-code-portal</title><p>{}</p><p>You can close this window.</p>"

Show: TypeAlias = Callable[[str, str], None]
"""Called with the authorization server's issuer and the URL to open in a browser on this machine."""


async def log_in(spec: HttpUpstream, show: Show) -> Login:
    """Sign in. The upstream names the issuer for `show`, unless the manifest does. Raises OAuthError."""
    settings = spec.oauth or OAuthSettings()
    async with (
        open_redirection(settings) as redirection,
        oauth.open_guarded_http(spec.url, settings.issuer) as http,
    ):
        found = await oauth.discover(spec, http)
        started = await CodeRequest.of(spec, found, redirection.uris, http)
        show(found.server.issuer, started.url(redirection.state, http))
        token = await started.token(await redirection.answer(), http)
        return Login.first(spec.url, found, started.client, token)


@dataclass(frozen=True)
class CodeRequest:
    """A request for an authorization code, with PKCE. A person follows its URL."""

    found: oauth.Discovered
    client: oauth.Client
    redirect_uri: str
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(64), repr=False)
    parameters: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    """Further parameters of the authorization request. None omits one."""

    @classmethod
    async def of(
        cls, spec: HttpUpstream, found: oauth.Discovered, uris: Sequence[str], http: oauth.GuardedHttp
    ) -> Self:
        """A login with the first redirect URI that the server accepts. Raises OAuthError if it accepts none."""
        settings, offered = spec.oauth or OAuthSettings(), found.server.code_challenge_methods_supported
        if settings.pkce == "required" and "S256" not in offered:
            raise oauth.OAuthRefusedError(
                "the server offers no PKCE (S256), which is required", remedy="see `oauth.pkce`"
            )
        if found.server.authorization_endpoint is None:
            raise oauth.OAuthRefusedError(
                "the metadata has no authorization_endpoint", remedy="set `oauth.authorize_url`"
            )
        client, redirect_uri = await _client(settings, found, uris, http)
        if not settings.send_resource:
            found = replace(found, resource=None)
        return cls(found, client, redirect_uri, parameters=settings.authorize_parameters)

    def url(self, state: str, http: oauth.GuardedHttp) -> str:
        """The URL that the person opens. Raises OAuthRefusedError if the server's URL is not allowed."""
        endpoint = str(self.found.server.authorization_endpoint)
        http.checked(endpoint)
        digest = hashlib.sha256(self.verifier.encode()).digest()
        asked = {
            **self.parameters,
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
                asked.setdefault("prompt", "consent")  # OpenID Connect Core, 11
        query = urlencode({name: value for name, value in asked.items() if value is not None})
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{query}"

    async def token(self, query: Mapping[str, str], http: oauth.GuardedHttp) -> Token:
        """Exchange the code in the redirect's query for a token. Raises OAuthError: refused, or from another server."""
        error, server = query.get("error", ""), self.found.server
        if error or "code" not in query:
            reason = error if oauth.CODE.fullmatch(error) else "no"
            said = oauth.described(reason, query.get("error_description") if error == reason else None)
            raise oauth.OAuthRefusedError(
                f"{oauth.shown(str(server.authorization_endpoint))} says {said}", code=reason
            )
        issuer = query.get("iss")
        # RFC 9207, 2.4: compared as texts. Otherwise a server could pass on the code of another one (mix-up attack).
        is_due = issuer is not None or server.authorization_response_iss_parameter_supported
        if is_due and issuer != server.issuer:
            raise oauth.OAuthRefusedError(
                f"the answer is from {oauth.shown(issuer or '')}, not {oauth.shown(server.issuer)}"
            )
        form = {
            "grant_type": "authorization_code",
            "code": query["code"],
            "redirect_uri": self.redirect_uri,
            "code_verifier": self.verifier,
            "resource": self.found.resource,
        }
        return await oauth.request_token(http, server.token_endpoint, self.client, form)


async def revoke(login: Login, settings: OAuthSettings) -> bool:
    """Revoke the tokens (RFC 7009). Returns False if the server does not support it. Raises OAuthError."""
    # At the stored server, even if the manifest names another one by now.
    login = login.as_configured(settings) or login
    endpoint, client = login.revocation_endpoint, login.client
    if endpoint is None:
        return False
    # Only the manifest's issuer may have a private address.
    async with oauth.open_guarded_http(login.url, settings.issuer) as http:
        for token, kind in ((login.refresh_token, "refresh_token"), (login.access_token, "access_token")):
            if token is None:
                continue
            form = {"token": token, "token_type_hint": kind}
            answer = await http.ask(oauth.form_request(endpoint, client, form))
            if client.client_secret is None and oauth.error_code(answer) == "invalid_request":
                # Servers on the Python SDK (2.3) require the field even of clients without a secret.
                answer = await http.ask(oauth.form_request(endpoint, client, {"client_secret": "", **form}))
            if not answer.is_success:
                raise oauth.oauth_error(answer, login.secrets)
    return True


async def _client(
    settings: OAuthSettings, found: oauth.Discovered, uris: Sequence[str], http: oauth.GuardedHttp
) -> tuple[oauth.Client, str]:
    """The client and its redirect URI: the manifest's, or one for this login, as few servers accept another port."""
    server = found.server
    if settings.client_id is not None:
        return oauth.configured_client(settings, server), uris[0]
    if settings.client_metadata_url and server.client_id_metadata_document_supported:
        return oauth.Client(client_id=settings.client_metadata_url), uris[0]
    if server.registration_endpoint is None:
        raise oauth.OAuthRefusedError(
            "the authorization server does not register clients automatically",
            remedy=f"register one there with the redirect URI {uris[0]}, and set its client_id and redirect_port",
        )
    asked = settings.token_endpoint_auth_method or _method_to_ask_for(server)
    uri, answer = await _registration(found, uris, asked, http)
    try:
        client = Registration.model_validate_json(answer.content)
        # The server may choose another one.
        redirect_uri = next((each for each in uris if each in client.redirect_uris), uri)
        # Basic is the default of RFC 7591, 2.
        known: Sequence[oauth.AuthMethod] = ("client_secret_basic", "client_secret_post")
        offered = (*server.token_endpoint_auth_methods_supported, *known)
        secret = min(known, key=offered.index) if asked == "none" else asked
        method = client.token_endpoint_auth_method or (secret if client.client_secret else "none")
        return oauth.Client.model_validate({**client.model_dump(), "auth_method": method}), redirect_uri
    except ValidationError as error:
        told = f"{oauth.shown(server.registration_endpoint)} registered an unusable client: {oauth.fault_of(error)}"
        raise oauth.OAuthUnreachableError(told) from None


def _method_to_ask_for(server: ServerMetadata) -> oauth.AuthMethod:
    """How a new client authenticates: not at all if the server offers that or lists no methods."""
    offered = server.token_endpoint_auth_methods_supported or ["none"]
    # Servers on the Python SDK (2.3) offer Basic too, but then miss the client_id in the form.
    known: Sequence[oauth.AuthMethod] = ("none", "client_secret_post")
    return next((method for method in known if method in offered), "client_secret_basic")


async def _registration(
    found: oauth.Discovered, uris: Sequence[str], method: oauth.AuthMethod, http: oauth.GuardedHttp
) -> tuple[str, httpx2.Response]:
    """Register with the first redirect URI that the server accepts. Raises the first OAuthError if it accepts none."""
    server, refusals = found.server, []
    for uri in uris:
        wish = {
            "redirect_uris": [uri],
            "client_name": "mcp-code-portal",
            "application_type": "native" if uri.startswith("http://") else "web",
            "token_endpoint_auth_method": method,
            "grant_types": [each for each in _GRANTS if each in (server.grant_types_supported or _GRANTS)],
            "response_types": ["code"],
            **({"scope": found.scope} if found.scope else {}),
        }
        answer = await http.ask(httpx2.Request("POST", str(server.registration_endpoint), json=wish))
        if answer.is_success and not oauth.error_code(answer):
            return uri, answer
        refusals.append(oauth.oauth_error(answer))
    raise refusals[0]


class Redirection:
    """The redirect of one login. Requests with another `state` are refused, and the login keeps waiting."""

    def __init__(self, settings: OAuthSettings) -> None:
        self.state = secrets.token_urlsafe(32)
        self.port = settings.redirect_port or 0
        self._settings = settings
        self._came: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    @property
    def uris(self) -> Sequence[str]:
        """The URIs that lead here, the manifest's first."""
        hosts = sorted(_HOSTS, key=lambda host: host != self._settings.redirect_host)
        return [f"http://{host}:{self.port}{self._settings.redirect_path}" for host in hosts]

    async def answer(self) -> dict[str, str]:
        """Wait for the authorization server's answer. Raises OAuthUnreachableError: it does not come."""
        try:
            async with asyncio.timeout(LOGIN_SECONDS):
                return await self._came
        except TimeoutError:
            raise oauth.OAuthUnreachableError(f"no sign-in within {LOGIN_SECONDS / 60:g} minutes") from None

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
        asked = urlsplit(f"//{host}")
        if method != "GET" or asked.hostname not in _HOSTS or (asked.port or 80) != self.port:
            return "400 Bad Request", "The request is not a redirect of a login."
        parts = urlsplit(target)
        if parts.path != self._settings.redirect_path:
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
async def open_redirection(settings: OAuthSettings) -> AsyncIterator[Redirection]:
    """Listen on loopback during the login, on any free port unless one is set. Raises OAuthError: it is in use."""
    redirection = Redirection(settings)
    async with AsyncExitStack() as servers:
        for host in _LOOPBACK:
            try:
                server = await asyncio.start_server(
                    redirection.serve, host, redirection.port, limit=_MAX_HEAD_BYTES
                )
            except OSError as error:
                if host == "::1" and error.errno != errno.EADDRINUSE:
                    continue  # there is no IPv6
                message = f"cannot listen on port {redirection.port} of {host}: {error.strerror or error}"
                raise oauth.OAuthError(message) from None
            servers.callback(server.close)
            redirection.port = redirection.port or server.sockets[0].getsockname()[1]
        yield redirection
