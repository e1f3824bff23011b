"""The tokens that one upstream's requests carry: taken from the store, renewed once for all calls that need it."""

import shlex
from collections.abc import Mapping
from typing import Final

import anyio

from manifests.models import HttpUpstream
from manifests.oauth import OAuthSettings
from upstreams.errors import (
    UpstreamDownError,
    UpstreamError,
    UpstreamNeedsLoginError,
    UpstreamUnavailableError,
)
from upstreams.oauth.browser_login import configured_client
from upstreams.oauth.discovery import Discovered, discover
from upstreams.oauth.errors import OAuthError, OAuthRefusedError, OAuthUnreachableError
from upstreams.oauth.guarded_http import open_guarded_http
from upstreams.oauth.login import Login, new_login
from upstreams.oauth.login_store import LoginStore
from upstreams.oauth.token_endpoint import request_token
from upstreams.scrubber import Scrubber

RENEWAL_SECONDS: Final = 25.0
"""All of a renewal: waiting for another portal's, finding the server, and asking it."""


class OAuthTokens:
    """The bearer tokens of one upstream. What they are is told to its scrubber before anything is sent."""

    def __init__(self, name: str, spec: HttpUpstream, store: LoginStore, scrub: Scrubber) -> None:
        self._name = name
        self._spec = spec
        self._settings = spec.oauth or OAuthSettings()
        self._store = store
        self._scrub = scrub
        self._login: Login | None = None
        self._renewal: _Renewal | None = None
        self._unproven = ""
        """A token that came of a renewal and was not accepted yet."""
        self._spent = ""
        """A refresh token that was refused: it is not tried twice."""
        self._found: Discovered | None = None

    async def headers(self) -> Mapping[str, str]:
        login = self._login
        if login is None or login.wants_renewal():
            login = await self._fresh(login)
        return _bearer(login)

    async def renewed(self, refused: Mapping[str, str]) -> bool:
        login = self._login
        if login is not None and _bearer(login) == refused:
            await self._fresh(login)
        return True

    def accepted(self, sent: Mapping[str, str]) -> None:
        if self._login is not None and _bearer(self._login) == sent:
            self._unproven = ""

    async def _fresh(self, stale: Login | None) -> Login:
        """One that is not `stale`. Of many that ask at once the first one gets it, and the others what it got."""
        if self._login is not None and self._login is not stale:
            return self._login
        if (renewal := self._renewal) is not None:
            await renewal.done.wait()
            return renewal.outcome()
        renewal = self._renewal = _Renewal()
        try:
            # A server that has given a new refresh token may have forgotten the old one: it must not be lost halfway.
            with anyio.CancelScope(shield=True):
                renewal.login = self._login = await self._renew(stale)
        except UpstreamError as error:
            renewal.error = error
        finally:
            self._renewal = None
            renewal.done.set()
        return renewal.outcome()

    async def _renew(self, stale: Login | None) -> Login:
        try:
            with anyio.fail_after(RENEWAL_SECONDS):
                if self._settings.grant == "client_credentials":
                    login = await self._signed_in()
                else:
                    login = await self._kept_or_refreshed(stale)
        except TimeoutError:
            raise UpstreamUnavailableError(f"got no token within {RENEWAL_SECONDS:g} s") from None
        except OAuthUnreachableError as error:
            raise UpstreamUnavailableError(f"got no token: {error}") from None
        except OAuthRefusedError as error:
            if self._settings.grant == "client_credentials":
                raise UpstreamDownError(f"got no token: {error}; check `oauth` in the manifest") from None
            raise self._needs_login(str(error)) from None
        except OAuthError as error:
            raise self._needs_login(str(error)) from None
        self._scrub.hide(login.secrets)
        return login

    async def _kept_or_refreshed(self, stale: Login | None) -> Login:
        async with self._store.locked():
            kept = await self._store.load()
            if kept is None:
                raise self._needs_login("nobody is signed in" if stale is None else "somebody logged out")
            self._scrub.hide(kept.secrets)
            is_new = stale is None or kept.access_token != stale.access_token
            if is_new and not kept.wants_renewal():  # another portal renewed it, or somebody signed in
                return kept
            if kept.access_token == self._unproven:
                raise self._needs_login("even a token that is new is refused")
            login = await self._refreshed(kept)
            await self._store.save(login)
            return login

    async def _refreshed(self, login: Login) -> Login:
        if login.refresh_token is None:
            raise self._needs_login("its token has expired or is refused, and cannot be renewed")
        if login.refresh_token == self._spent:
            raise self._needs_login("its tokens cannot be renewed any more")
        form = {
            "grant_type": "refresh_token",
            "refresh_token": login.refresh_token,
            "resource": login.resource,
        }
        async with open_guarded_http(self._spec.url) as http:
            try:
                token = await request_token(http, login.token_endpoint, login.client, form)
            except OAuthRefusedError as error:
                self._spent = login.refresh_token
                raise self._needs_login(f"its tokens cannot be renewed: {error}") from None
        self._unproven = token.access_token
        return login.with_tokens(token)

    async def _signed_in(self) -> Login:
        """By the client's own credentials; kept nowhere, because they can be used again."""
        if self._login is not None and self._login.access_token == self._unproven:
            raise UpstreamDownError("refuses even a token that is new; check `oauth` in the manifest")
        async with open_guarded_http(self._spec.url) as http:
            found = self._found = self._found or await discover(
                self._spec.url, self._spec.headers, self._settings, http
            )
            client = configured_client(self._settings, found.server)
            form = {"grant_type": "client_credentials", "scope": found.scope, "resource": found.resource}
            token = await request_token(http, str(found.server.token_endpoint), client, form)
        login = new_login(self._spec.url, found, client, token)
        self._unproven = token.access_token
        return login

    def _needs_login(self, reason: str) -> UpstreamNeedsLoginError:
        return UpstreamNeedsLoginError(f"{reason}; run: mcp-code-portal login {shlex.quote(self._name)}")


class _Renewal:
    """One renewal that is under way, and what it came to."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.login: Login | None = None
        self.error: UpstreamError | None = None

    def outcome(self) -> Login:
        if self.login is not None:
            return self.login
        if self.error is not None:
            raise type(self.error)(str(self.error))  # to each its own: whoever catches it writes into it
        raise UpstreamUnavailableError("got no token")


def _bearer(login: Login) -> dict[str, str]:
    return {"authorization": f"Bearer {login.access_token}"}
