"""The tokens that one upstream's requests carry: taken from the store, renewed once for all calls that need it."""

import asyncio
import shlex
from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeAlias

import anyio
import structlog

from manifests.upstream_sections import HttpUpstream, OAuthSettings
from upstreams.errors import (
    UpstreamDownError,
    UpstreamError,
    UpstreamNeedsLoginError,
    UpstreamUnavailableError,
)
from upstreams.http_credentials import HttpCredentials
from upstreams.oauth.discovery import Discovered, configured_client, discover, request_token
from upstreams.oauth.http import OAuthError, OAuthRefusedError, OAuthUnreachableError, open_guarded_http
from upstreams.oauth.store import Login, LoginStore
from upstreams.redaction import Redaction

log = structlog.get_logger()

RENEWAL_SECONDS: Final = 25.0
"""All of a renewal: waiting for another portal's, finding the server, and asking it."""

REFRESH_SECONDS: Final = 12.0
"""Its last part, which a portal that stops waits for: the server may have forgotten the old refresh token by then."""

_SPENT: Final = frozenset({"invalid_grant", "bad_refresh_token", "invalid_refresh_token"})
"""What is said of a refresh token that will never be good again: by OAuth, GitHub and Slack."""

StartTask: TypeAlias = Callable[..., object]
"""As a task group's `start_soon`, of one that lives as long as the upstream."""


class OAuthTokens(HttpCredentials):
    """The bearer tokens of one upstream. Its redaction learns them before anything is sent.

    A login that cannot be stored is used until it has to be renewed.
    """

    def __init__(
        self,
        name: str,
        spec: HttpUpstream,
        credentials: Collection[str],
        store: LoginStore,
        redaction: Redaction,
        start: StartTask,
    ) -> None:
        super().__init__(spec, credentials, redaction)
        self._name = name
        self._start = start
        self._spec = spec
        self._settings = spec.oauth or OAuthSettings()
        self._is_own = self._settings.grant == "client_credentials"
        self._store = store
        self._login: Login | None = None
        self._renewal: asyncio.Future[Login | UpstreamError] | None = None
        self._unproven = ""
        """A token that came of a renewal and was not accepted yet."""
        self._spent = ""
        """A refresh token that was refused: it is not tried twice."""
        self._found: Discovered | None = None

    async def headers(self) -> Mapping[str, str]:
        login = self._login
        if login is None or login.wants_renewal():
            try:
                login = await self._fresh(login, is_refused=False)
            except UpstreamDownError:  # it is no matter of waiting
                raise
            except UpstreamUnavailableError as error:
                if login is None or login.has_expired():
                    raise
                log.info("token_not_renewed_early", upstream=self._name, reason=str(error))
        return _bearer(login)

    async def renewed(self, refused: Mapping[str, str]) -> bool:
        login = self._login
        if login is not None and _bearer(login) == refused:
            await self._fresh(login, is_refused=True)
        return True

    def accepted(self, sent: Mapping[str, str]) -> None:
        if self._login is not None and _bearer(self._login) == sent:
            self._unproven = ""

    async def _fresh(self, stale: Login | None, *, is_refused: bool) -> Login:
        """One that is not `stale`. Of many that ask at once the first one gets it, and the others what it got."""
        if self._login is not None and self._login is not stale:
            return self._login
        if self._renewal is None:
            self._renewal = asyncio.get_running_loop().create_future()
            # In a task of its own: a caller that gives up must not take a refresh with it that others wait for.
            self._start(self._run, self._renewal, stale, is_refused)
        outcome = await asyncio.shield(self._renewal)
        if isinstance(outcome, Login):
            return outcome
        raise type(outcome)(str(outcome))  # to each its own: whoever catches it writes into it

    async def _run(
        self, renewal: "asyncio.Future[Login | UpstreamError]", stale: Login | None, is_refused: bool
    ) -> None:
        outcome: Login | UpstreamError = UpstreamUnavailableError("got no token")
        renew = self._signed_in if self._is_own else self._kept_or_refreshed
        try:
            with anyio.fail_after(RENEWAL_SECONDS):
                outcome = await renew(stale, is_refused)
            self._learn(outcome.secrets)
            self._login = outcome
        except TimeoutError:
            outcome = UpstreamUnavailableError("got no token in time")
        except OAuthUnreachableError as error:
            outcome = UpstreamUnavailableError(f"got no token: {error}")
        except OAuthError as error:
            if self._is_own:
                outcome = UpstreamDownError(f"got no token: {error}; check `oauth` in the manifest")
            else:
                to_run = f"mcp-code-portal login {shlex.quote(self._name)}"
                outcome = UpstreamNeedsLoginError(f"{error}; run: {to_run}")
        # Whatever strangers made of it: it is this upstream's failure, and not the end of the others.
        except Exception as error:
            log.exception("token_not_renewed", upstream=self._name, error=type(error).__name__)
        finally:
            self._renewal = None
            renewal.set_result(outcome)

    async def _kept_or_refreshed(self, stale: Login | None, is_refused: bool) -> Login:
        """What another portal or a person got meanwhile; else the token is refreshed. Raises OAuthError."""
        async with self._store.locked():
            found = await self._store.load()
            if found is None:
                raise OAuthError("nobody is signed in" if stale is None else "somebody logged out")
            kept = found.as_configured(self._settings)
            if kept is None:
                raise OAuthError("the login is of another authorization server than the manifest names")
            self._redact.add(kept.secrets)
            is_new = stale is None or kept.access_token != stale.access_token
            if is_new and not kept.wants_renewal():
                return kept
            self._check_worth(kept, is_refused)
            with anyio.fail_after(REFRESH_SECONDS, shield=True):
                login = await self._refreshed(kept)
                try:
                    await self._store.save(login)
                except OAuthError as error:
                    log.warning("login_not_kept", upstream=self._name, reason=str(error))
            return login

    async def _refreshed(self, login: Login) -> Login:
        if login.refresh_token is None:
            raise OAuthError("its token has expired or is refused, and cannot be renewed")
        if login.refresh_token == self._spent:
            raise OAuthError("its tokens cannot be renewed any more")
        form = {
            "grant_type": "refresh_token",
            "refresh_token": login.refresh_token,
            "resource": login.resource,
        }
        async with open_guarded_http(self._spec.url, self._settings.issuer) as http:
            try:
                token = await request_token(http, login.token_endpoint, login.client, form)
            except OAuthRefusedError as error:
                if error.code in _SPENT:
                    self._spent = login.refresh_token
                raise OAuthError(f"its tokens cannot be renewed: {error}") from None
        self._unproven = token.access_token
        return Login.of(token, login.model_dump())

    async def _signed_in(self, stale: Login | None, is_refused: bool) -> Login:
        """By the client's own credentials; kept nowhere, because they can be used again. Raises OAuthError."""
        self._check_worth(stale, is_refused)
        async with open_guarded_http(self._spec.url, self._settings.issuer) as http:
            found = self._found = self._found or await discover(self._spec, http)
            client = configured_client(self._settings, found.server)
            form = {"grant_type": "client_credentials", "scope": found.scope, "resource": found.resource}
            token = await request_token(http, str(found.server.token_endpoint), client, form)
        self._unproven = token.access_token
        return Login.first(self._spec.url, found, client, token)

    def _check_worth(self, login: Login | None, is_refused: bool) -> None:
        """Raises OAuthError if the upstream refuses a token that nothing is newer than."""
        if is_refused and login is not None and login.access_token == self._unproven:
            raise OAuthError("even a token that is new is refused")


def _bearer(login: Login) -> dict[str, str]:
    return {"authorization": f"Bearer {login.access_token}"}
