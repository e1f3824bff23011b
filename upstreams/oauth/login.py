"""Signs a person in to an upstream: authorization code with PKCE, through a browser that comes back to this machine.

Source: RFC 6749, RFC 7636 (PKCE), RFC 7591 (registration), RFC 8252 (native apps), 7.3 and 8.3, RFC 9207 (issuer);
MCP 2026-07-28, basic/authorization.
"""

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeAlias
from urllib.parse import parse_qs, urlencode, urlsplit

import anyio
from anyio.abc import SocketAttribute, SocketStream
from mcp.client.auth import OAuthFlowError, PKCEParameters
from mcp.client.auth.utils import (
    create_client_registration_request,
    handle_registration_response,
    should_use_client_metadata_url,
    validate_authorization_response_iss,
)
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
from pydantic import AnyUrl, ValidationError

from manifests.upstream_sections import HttpUpstream, OAuthSettings
from upstreams.oauth.discovery import (
    Client,
    Discovered,
    configured_client,
    discover,
    refusal,
    request_token,
    revoke_token,
)
from upstreams.oauth.http import (
    GuardedHttp,
    OAuthError,
    OAuthRefusedError,
    OAuthUnreachableError,
    open_guarded_http,
)
from upstreams.oauth.store import Login

LOGIN_SECONDS: Final = 600.0
"""How long a person may take."""
_PATH: Final = "/callback"
_MAX_HEAD_BYTES: Final = 32 * 1024
_HEAD_SECONDS: Final = 5.0
_PAGE: Final = "<!doctype html><title>mcp-code-portal</title><p>{}</p><p>You can close this window.</p>"

Show: TypeAlias = Callable[[str, str], None]
"""Gets the name of the authorization server, and the URL that a person has to open in a browser on this machine."""


async def log_in(spec: HttpUpstream, show: Show) -> Login:
    """Sign in. Whom `show` names is what the upstream says, unless the manifest names an issuer. Raises OAuthError."""
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
        form = {
            "grant_type": "authorization_code",
            "code": await _code(found, client, proof, redirection, http, show),
            "redirect_uri": redirection.uri,
            "code_verifier": proof.code_verifier,
            "resource": found.resource,
        }
        token = await request_token(http, str(found.server.token_endpoint), client, form)
        return Login.first(spec.url, found, client, token)


async def revoke(login: Login, http: GuardedHttp) -> bool:
    """Have the tokens forgotten where they came from (RFC 7009); False if the server cannot. Raises OAuthError."""
    if login.revocation_endpoint is None:
        return False
    for token, kind in ((login.refresh_token, "refresh_token"), (login.access_token, "access_token")):
        if token is not None:
            await revoke_token(http, login.revocation_endpoint, login.client, token, kind)
    return True


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
    redirection: "Redirection",
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


class Redirection:
    """What came back for one login. Whatever has not its `state` is turned away, and the login goes on waiting."""

    def __init__(self, port: int) -> None:
        self.uri = f"http://127.0.0.1:{port}{_PATH}"
        self.state = secrets.token_urlsafe(32)
        self._hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        self._came = anyio.Event()
        self._result: AuthorizationCodeResult | OAuthRefusedError | None = None

    async def result(self) -> AuthorizationCodeResult:
        """What the authorization server sent. Raises OAuthRefusedError: that is a no."""
        await self._came.wait()
        if isinstance(self._result, AuthorizationCodeResult):
            return self._result
        raise self._result or OAuthRefusedError("nothing came back")

    async def answer(self, stream: SocketStream) -> None:
        """Serve one connection of a browser, or of whoever found the port."""
        async with stream:
            with anyio.move_on_after(_HEAD_SECONDS):
                try:
                    await stream.send(_response(*self._taken(await _head(stream))))
                except ValueError:  # a URL that is none, or with too many fields
                    await stream.send(_response("400 Bad Request", "This makes no sense."))
                except (anyio.BrokenResourceError, anyio.EndOfStream):
                    return

    def _taken(self, head: bytes) -> tuple[str, str]:
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        host = next((line[5:].strip() for line in lines if line.lower().startswith("host:")), "")
        if len(words) != 3 or words[0] != "GET" or host not in self._hosts:
            return "400 Bad Request", "This is not for you."
        parts = urlsplit(words[1])
        if parts.path != _PATH:
            return "404 Not Found", "Nothing is here."
        query = parse_qs(parts.query, max_num_fields=50)
        if not secrets.compare_digest(_one(query, "state").encode(), self.state.encode()):
            return "400 Bad Request", "This is not the login that was begun."
        if not self._came.is_set():
            self._result = _result(query)
            self._came.set()
        return "200 OK", "Signed in." if _one(query, "code") else "Not signed in."


@asynccontextmanager
async def open_redirection(port: int) -> AsyncIterator[Redirection]:
    """Listen on 127.0.0.1 until the login is over; port 0 takes a free one. Raises OAuthError: the port is taken."""
    try:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    except OSError as error:
        raise OAuthError(f"cannot listen on 127.0.0.1:{port}: {error.strerror or error}") from None
    redirection = Redirection(listener.extra(SocketAttribute.local_port))
    failure: OAuthError | None = None
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, redirection.answer)
        try:
            yield redirection
        except OAuthError as error:  # raised here it would become a group of errors
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _head(stream: SocketStream) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head and len(head) < _MAX_HEAD_BYTES:
        head += await stream.receive(4096)
    return head.partition(b"\r\n\r\n")[0]


def _response(status: str, text: str) -> bytes:
    body = _PAGE.format(text).encode()
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nContent-Security-Policy: default-src 'none'\r\n"
        "Connection: close\r\n\r\n"
    ).encode() + body


def _one(query: dict[str, list[str]], name: str) -> str:
    values = query.get(name, [])
    return values[0] if len(values) == 1 else ""


def _result(query: dict[str, list[str]]) -> AuthorizationCodeResult | OAuthRefusedError:
    code, error = _one(query, "code"), _one(query, "error")
    if code and not error:
        return AuthorizationCodeResult(code=code, state=_one(query, "state"), iss=_one(query, "iss") or None)
    said = error if error.isascii() and error.replace("_", "").isalpha() and len(error) <= 64 else "no"
    return OAuthRefusedError(f"the authorization server says {said}", code=said)
