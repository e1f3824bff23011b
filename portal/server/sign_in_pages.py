"""The pages on which a person signs in at an upstream, and the request that signs out.

Rule 1: a link is for one person. Whoever opens it signs in at the portal's identity provider, and may continue only as
that person. So no one can sign in for another person, or be tricked into giving a login away.
Rule 2: each step comes from the browser that began, which has a cookie. Elsewhere the URL of a later step is useless.

Source: MCP 2026-07-28, client/elicitation#phishing; RFC 9700 (OAuth security), 4.7; RFC 9207.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from typing import Final, TypeAlias

import structlog
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from manifests.portal_manifest import AuthSettings, HttpUpstream, OAuthSettings
from portal.base.caller import BEARER, Bearer
from portal.base.errors import SignInError
from portal.identity.accounts import LINK_SECONDS, PATH, Accounts, PersonLogins, SignInSeal
from portal.records.store.records import StoreError
from portal.records.store.run_tables import RunTables
from portal.records.store.writer import RunStore
from upstreams.oauth import authorization_server as oauth
from upstreams.oauth.login import CodeRequest, revoke
from upstreams.oauth.tokens import Login

log = structlog.get_logger()

STEP_SECONDS: Final = 600
"""Time for the person at the identity provider, and then at the upstream."""

COOKIE: Final = "mcp-code-portal-sign-in"
"""The name of the cookie; over https with `__Host-`, so that no other host of the domain can set it."""

_STARTED: Final = "sign-in"
_BROWSER: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_PAGE: Final = "<!doctype html><title>mcp-code-portal</title><p>{}</p>"
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
_AGAIN: Final = "Run the script again for another link."

Whose: TypeAlias = Callable[[str], Awaitable[Bearer | None]]
"""Identifies the bearer of an access token for the portal. Raises SignInError."""


class PageError(Exception):
    """Ends the sign-in; the page tells the person why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class _Started:
    """A sign-in at an upstream that has begun: the latest of this person there."""

    nonce: str
    browser: str
    who: str
    url: str
    """The upstream's URL when the sign-in began."""
    request: CodeRequest


_ADAPTER: Final = TypeAdapter(_Started)


def account_routes(accounts: Accounts, whose: Whose) -> list[Route]:
    """The routes; all below `PATH` are for browsers, without a token. Empty if people cannot sign in."""
    auth, store, seal = accounts.auth, accounts.store, accounts.seal
    if auth is None or auth.client_id is None or store is None or seal is None:
        return []
    pages = _Pages(accounts, auth, store, seal, whose)
    shown = [("/start/{link}", pages.start), ("/identity", pages.identity), ("/callback", pages.callback)]
    routes = [Route(f"{PATH}{path}", partial(_answered, page), methods=["GET"]) for path, page in shown]
    out = Route("/oauth/logins/{upstream}", partial(_answered, pages.sign_out), methods=["DELETE"])
    return [*routes, out]


async def _answered(page: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
    try:
        response = await page(request)
    except PageError as error:
        response = _text(str(error), error.status)
    except oauth.OAuthError as error:
        log.warning("sign_in_failed", reason=str(error), remedy=error.remedy)
        response = _text(f"Not signed in: {error}. {_AGAIN}", 502)
    except SignInError as error:
        response = _text(f"Not signed in: {error}. {_AGAIN}", error.status)
    except StoreError as error:
        log.error("sign_in_failed", reason=str(error))
        response = _text("The store of runs cannot be used now. Try again later.", 503)
    response.headers.update(_HEADERS)
    return response


@dataclass(frozen=True)
class _Pages:
    accounts: Accounts
    auth: AuthSettings
    store: RunStore
    seal: SignInSeal
    whose: Whose

    async def start(self, request: Request) -> Response:
        """Send the person to the identity provider."""
        upstream, owner = self._sealed(request.path_params["link"], "link", LINK_SECONDS)
        known = request.cookies.get(self._cookie, "")
        browser = known if _BROWSER.fullmatch(known) else secrets.token_urlsafe(32)
        async with self._provider_http() as http:
            asked = await self._identity_request(http)
            state = self.seal.close("identity", upstream, owner, _sha256(browser), asked.verifier)
            response = RedirectResponse(asked.url(state, http), 303)
        response.set_cookie(
            self._cookie, browser, max_age=LINK_SECONDS, secure=self._is_safe, httponly=True, samesite="lax"
        )
        return response

    async def identity(self, request: Request) -> Response:
        """The person returns from the identity provider, and is sent to the upstream's authorization server."""
        query = _query(request)
        upstream, owner, browser, verifier = self._sealed(query["state"], "identity", STEP_SECONDS)
        self._check_browser(request, browser)
        async with self._provider_http() as http:
            asked = replace(await self._identity_request(http), verifier=verifier)
            token = await asked.token(query, http)
        bearer = await self.whose(token.access_token)
        if bearer is None or bearer.run_owner != owner:
            raise PageError(
                403, "This link is for someone else, or for another tenant or profile. Do not use it."
            )
        spec, redirect_uri = self._spec(upstream), f"{self.auth.base_url}{PATH}/callback"
        async with oauth.open_guarded_http(spec.url, _settings(spec).issuer) as http:
            started = await CodeRequest.of(spec, await oauth.discover(spec, http), [redirect_uri], http)
            nonce = secrets.token_urlsafe(32)
            url = started.url(self.seal.close("callback", upstream, owner, nonce), http)
        value = _ADAPTER.dump_json(_Started(nonce, browser, bearer.name, spec.url, started))
        await self.store.write(partial(RunTables.put, kind=_STARTED, owner=owner, name=upstream, value=value))
        return RedirectResponse(url, 303)

    async def callback(self, request: Request) -> Response:
        """The person returns from the upstream's authorization server. Each sign-in gets here once."""
        query = _query(request)
        upstream, owner, nonce = self._sealed(query["state"], "callback", STEP_SECONDS)

        def take(tables: RunTables) -> _Started:
            tables.lock(_STARTED, owner, upstream)  # two replicas may get the same request at once
            value = tables.get(_STARTED, owner, upstream)
            started = None if not value else _ADAPTER.validate_json(value)
            if started is None or not hmac.compare_digest(started.nonce, nonce):
                raise PageError(400, f"This sign-in is over, or another one took its place. {_AGAIN}")
            self._check_browser(request, started.browser)
            tables.drop(_STARTED, owner, upstream)
            return started

        started, spec = await self.store.write(take), self._spec(upstream)
        if started.url != spec.url:  # the token would be sent to the new URL
            raise PageError(400, f"This upstream has another URL since the sign-in began. {_AGAIN}")
        logins = self.accounts.logins(upstream, owner)
        async with oauth.open_guarded_http(spec.url, _settings(spec).issuer) as http:
            token = await started.request.token(query, http)
        server, own = started.request.found.server, oauth.origin_of(self.auth.issuer)
        if own in map(
            oauth.origin_of, (server.issuer, str(server.authorization_endpoint), server.token_endpoint)
        ):
            await self._check_is_foreign(token.access_token)
        login = Login.first(spec.url, started.request.found, started.request.client, token)
        await logins.save(login)
        self.accounts.fleet.people.remove(upstream, "its person signed in again", owner)
        self.accounts.audit.note("signed_in", who=started.who, upstream=upstream)
        log.info("signed_in", upstream=upstream, issuer=login.issuer)
        return _text(f"You are signed in at {upstream}. You can close this window.")

    async def _check_is_foreign(self, token: str) -> None:
        """Raises PageError: the token is valid for the portal. An upstream that claims the portal's identity provider,
        or its endpoints, as its own could request such a token, and act as the person.
        """
        try:
            await self.whose(token)
        except SignInError as error:
            if error.status == 503:
                raise
        else:
            log.error("sign_in_refused", reason="the upstream's token would open the portal")
            raise PageError(502, "Not signed in: the token for this upstream would open the portal, too.")

    async def sign_out(self, request: Request) -> Response:
        """Delete and revoke the requester's own login, even at an upstream that the manifest no longer has."""
        upstream, bearer = request.path_params["upstream"], request.scope.get(BEARER)
        login: Login | None = None
        if isinstance(bearer, Bearer):
            logins = PersonLogins(self.store, upstream, None, bearer.run_owner)
            if await logins.load() is not None:  # else the lock of a made-up name would be stored
                async with logins.locked():  # else the tokens of a concurrent renewal would survive
                    login = await logins.delete()
        if login is None or not isinstance(bearer, Bearer):
            raise PageError(404, "There is no such login.")
        self.accounts.fleet.people.remove(upstream, "its person signed out", bearer.run_owner)
        self.accounts.audit.note("signed_out", who=bearer.name, upstream=upstream)
        spec = self.accounts.spec(upstream)
        try:
            await revoke(login, OAuthSettings() if spec is None else _settings(spec))
        except oauth.OAuthError as error:
            raise PageError(502, f"The login is deleted, but was not revoked: {error}.") from None
        return Response(status_code=204)

    @asynccontextmanager
    async def _provider_http(self) -> AsyncIterator[oauth.GuardedHttp]:
        """An HTTP client for the identity provider, whose name appears in its errors."""
        try:
            async with oauth.open_guarded_http(self.auth.issuer, self.auth.issuer) as http:
                yield http
        except oauth.OAuthError as error:
            raise oauth.OAuthError(f"at the identity provider: {error}", error.remedy) from error

    async def _identity_request(self, http: oauth.GuardedHttp) -> CodeRequest:
        """The request for an access token for the portal itself. The token is then verified like any other."""
        server = await oauth.server_metadata([self.auth.issuer], self.auth.issuer, http)
        resource = self.auth.resource if self.auth.send_resource else None
        found = oauth.Discovered(server, resource, " ".join(self.auth.scopes) or None)
        redirect_uri = f"{self.auth.base_url}{PATH}/identity"
        return CodeRequest(found, oauth.configured_client(self.auth, server), redirect_uri)

    def _spec(self, upstream: str) -> HttpUpstream:
        spec = self.accounts.spec(upstream)
        if spec is None:
            raise PageError(404, "People no longer sign in at this upstream.")
        return spec

    @property
    def _is_safe(self) -> bool:
        return self.auth.base_url.startswith("https://")

    @property
    def _cookie(self) -> str:
        return f"__Host-{COOKIE}" if self._is_safe else COOKIE

    def _check_browser(self, request: Request, browser: str) -> None:
        if not hmac.compare_digest(_sha256(request.cookies.get(self._cookie, "")), browser):
            raise PageError(400, f"This sign-in began in another browser, or its cookie is gone. {_AGAIN}")

    def _sealed(self, text: str, step: str, seconds: int) -> list[str]:
        parts = self.seal.open(text, step, seconds)
        if parts is None:
            raise PageError(400, f"The link is wrong or has expired. {_AGAIN}")
        return parts


def _settings(spec: HttpUpstream) -> OAuthSettings:
    return spec.oauth or OAuthSettings()


def _query(request: Request) -> dict[str, str]:
    pairs = request.query_params.multi_items()
    query = {"state": "", **dict(pairs)}
    if len(dict(pairs)) < len(pairs):
        raise PageError(400, "The request is invalid.")
    return query


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _text(words: str, status: int = 200) -> Response:
    return HTMLResponse(_PAGE.format(escape(words)), status)
