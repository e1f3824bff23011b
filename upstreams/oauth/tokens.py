"""The login of one upstream: stored for all portals of a user, and renewed once for all waiting calls."""

import asyncio
import hashlib
import json
import os
import shlex
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from copy import copy
from pathlib import Path
from typing import Final, Literal, Protocol

import anyio
import anyio.to_thread
import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from manifests.own_files import has_locked, write_whole
from manifests.portal_manifest import HttpUpstream, OAuthSettings
from manifests.references import SecretError
from upstreams.errors import (
    UpstreamDownError,
    UpstreamError,
    UpstreamNeedsLoginError,
    UpstreamUnavailableError,
)
from upstreams.oauth import authorization_server as oauth
from upstreams.oauth.documents import Secret, Token
from upstreams.redaction import Redaction
from upstreams.secret_sources import delete_from_keyring, keyring_password, store_in_keyring
from upstreams.transports.http_credentials import HttpCredentials

log = structlog.get_logger()

LEEWAY_SECONDS: Final = 30.0
"""A token is renewed this long before it expires, or in the last tenth of its lifetime if that is shorter."""

MAX_LOGIN_BYTES: Final = 1024 * 1024
LOCK_SECONDS: Final = 15.0
_LOCK_PAUSE_SECONDS: Final = 0.05
_SERVICE: Final = "mcp-code-portal"

RENEWAL_SECONDS: Final = 25.0
"""Time limit of a renewal: waiting for another portal, discovery, and the request; or `connect_seconds`, if longer."""

REFRESH_SECONDS: Final = 12.0
"""Time limit of the refresh request. A stopping portal waits for it, because the old refresh token may be invalid."""

REFUSAL_SECONDS: Final = 600.0
"""A tool that refused a renewed token causes no further renewal for this long; other tools still do."""

ANOTHER_SECONDS: Final = 60.0
"""A token of the portal itself that was refused at once is replaced after this time: it may lack a right."""

_REJECTED_CODES: Final = frozenset({"invalid_grant", "bad_refresh_token", "invalid_refresh_token"})
"""The codes of OAuth, GitHub and Slack for a refresh token that is permanently invalid."""


class LoginEndedError(oauth.OAuthError):
    """The tokens of a login no longer work, or the login was deleted."""


class Login(BaseModel):
    """Tokens for one upstream, and what a refresh needs. Times are seconds since 1970."""

    model_config = ConfigDict(frozen=True)

    format: Literal[1] = 1
    url: str = Field(repr=False)
    """The upstream's URL. Its tokens are sent nowhere else."""
    issuer: str
    token_endpoint: str
    revocation_endpoint: str | None = None
    resource: str | None = None
    scope: str | None = None
    client: oauth.Client
    access_token: str = Field(repr=False, pattern=r"^[\x21-\x7e]+$", max_length=16_384)
    refresh_token: Secret | None = Field(default=None, repr=False)
    obtained_at: float
    expires_at: float | None = None

    @classmethod
    def first(cls, url: str, found: oauth.Discovered, client: oauth.Client, token: Token) -> "Login":
        """A login from its first token. Raises OAuthUnreachableError: a token is too long or invalid."""
        server = found.server.model_dump(mode="json")
        kept = {key: server[key] for key in ("issuer", "token_endpoint", "revocation_endpoint")}
        return cls.of(
            token, {**kept, "url": url, "resource": found.resource, "scope": found.scope, "client": client}
        )

    @classmethod
    def of(cls, token: Token, kept: Mapping[str, object]) -> "Login":
        """A login from a token and `kept` fields of the former login. Raises OAuthUnreachableError: as `first`."""
        now = time.time()
        new = {
            "access_token": token.access_token,
            "refresh_token": token.refresh_token or kept.get("refresh_token"),
            "scope": " ".join(token.scope) or kept["scope"],
            "obtained_at": now,
            "expires_at": None if token.expires_in is None else now + token.expires_in,
        }
        try:
            return cls.model_validate({**kept, **new})
        except ValidationError:
            raise oauth.OAuthUnreachableError(
                "the authorization server's tokens are longer than 16,384 characters or have forbidden ones"
            ) from None

    def as_configured(self, settings: OAuthSettings) -> "Login | None":
        """The login with the current client secret; None if the manifest now names another authorization server."""
        if settings.issuer is not None and settings.issuer.rstrip("/") != self.issuer.rstrip("/"):
            return None
        if settings.token_url not in (None, self.token_endpoint):
            return None
        secret, client = settings.client_secret, self.client
        if secret is None or settings.client_id != client.client_id:
            return self
        known = "client_secret_basic" if client.auth_method == "none" else client.auth_method
        method = settings.token_endpoint_auth_method or known
        renewed = client.model_copy(update={"client_secret": secret, "auth_method": method})
        return self.model_copy(update={"client": renewed})

    def wants_renewal(self) -> bool:
        """Whether it is about to expire; without a refresh token, whether it has expired."""
        if self.expires_at is None:
            return False
        leeway = min(LEEWAY_SECONDS, (self.expires_at - self.obtained_at) / 10)
        return time.time() >= self.expires_at - (leeway if self.refresh_token else 0.0)

    @property
    def secrets(self) -> tuple[str, ...]:
        values = (self.access_token, self.refresh_token, self.client.client_secret)
        return tuple(secret for secret in values if secret)


class Logins(Protocol):
    """Stores one login for all portals that use it."""

    async def load(self) -> Login | None:
        """The login; None if there is no usable one. Raises OAuthError: it cannot be read."""

    async def replace(self, before: Login, after: Login) -> Login:
        """Store a renewed login, unless another was stored since `before`. Returns the one that is stored.

        Raises OAuthError: it cannot be stored. Raises LoginEndedError: it was deleted since `before`.
        """

    async def ended(self, login: Login) -> None:
        """Record that the tokens of this login no longer work."""

    def locked(self) -> AbstractAsyncContextManager[None]:
        """A lock, so that no two portals use one refresh token. Raises OAuthUnreachableError: it is held too long."""


class LoginStore:
    """Stores one login by the upstream's name and URL: in a file of mode 0600, or in the system keyring."""

    def __init__(self, folder: Path, name: str, url: str, keep_in: Literal["file", "keyring"]) -> None:
        self._folder = folder
        self._url = url
        self._key = hashlib.sha256(json.dumps([name, url]).encode("utf-8", "surrogatepass")).hexdigest()
        self._file = folder / f"{self._key}.json"
        self._is_file = keep_in == "file"

    async def load(self) -> Login | None:
        """The login; None if there is no usable one. Raises OAuthError: unreadable, or readable by other users."""
        # A locked keyring may block for long: abandon the thread on cancellation.
        content = await anyio.to_thread.run_sync(self._content, abandon_on_cancel=True)
        try:
            login = Login.model_validate_json(content)
        except ValidationError:
            return None
        return login if login.url == self._url else None

    async def save(self, login: Login) -> None:
        """Replace the login atomically. Raises OAuthError: it cannot be stored."""
        await anyio.to_thread.run_sync(self._save, login.model_dump_json())

    async def replace(self, before: Login, after: Login) -> Login:
        await self.save(after)
        return after

    async def ended(self, login: Login) -> None:
        """Do nothing: `logout` may still revoke the login."""

    async def delete(self) -> None:
        """Delete the login. Raises OAuthError: it cannot be deleted."""
        await anyio.to_thread.run_sync(self._delete, abandon_on_cancel=True)

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """A lock among the user's portals, so that no two use one refresh token. Raises OAuthUnreachableError."""
        with _storage_errors():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(
                self._file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
        try:
            deadline = anyio.current_time() + LOCK_SECONDS
            while not has_locked(descriptor):
                if anyio.current_time() >= deadline:
                    raise oauth.OAuthUnreachableError(
                        "another portal has been renewing the tokens for too long"
                    )
                await anyio.sleep(_LOCK_PAUSE_SECONDS)
            yield
        finally:
            os.close(descriptor)

    def _content(self) -> str | bytes:
        with _storage_errors():
            if not self._is_file:
                return keyring_password(_SERVICE, self._key) or ""
            try:
                descriptor = os.open(self._file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
            except FileNotFoundError:
                return ""
            with os.fdopen(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                if status.st_uid != os.geteuid() or status.st_mode & 0o077:
                    raise oauth.OAuthError(
                        "other users can access the token file", "log out and log in again"
                    )
                return file.read(MAX_LOGIN_BYTES)

    def _save(self, text: str) -> None:
        with _storage_errors():
            if self._is_file:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_whole(self._file, text.encode())
            else:
                store_in_keyring(_SERVICE, self._key, text)

    def _delete(self) -> None:
        with _storage_errors():
            if not self._is_file:
                delete_from_keyring(_SERVICE, self._key)
            self._file.unlink(missing_ok=True)


@contextmanager
def _storage_errors() -> Iterator[None]:
    try:
        yield
    except SecretError as error:
        raise oauth.OAuthError(str(error), error.hint) from None
    except OSError as error:
        raise oauth.OAuthError(
            f"the tokens cannot be read or stored: {error.strerror or 'unknown reason'}"
        ) from None


class OAuthTokens(HttpCredentials):
    """The bearer tokens of one upstream. They are masked before they are sent.

    A login that cannot be stored is used until it expires. `start` is the `start_soon` of a task group that lives as
    long as the upstream.
    """

    def __init__(
        self,
        name: str,
        spec: HttpUpstream,
        credentials: Collection[str],
        store: Logins,
        redaction: Redaction,
        start: Callable[..., object],
        how_to_sign_in: str = "",
    ) -> None:
        super().__init__(name, spec, credentials, redaction)
        self._how_to_sign_in = how_to_sign_in or f"run: mcp-code-portal login {shlex.quote(name)}"
        self._start = start
        self._spec = spec
        self._settings = spec.oauth or OAuthSettings()
        self._is_own = self._settings.grant == "client_credentials"
        self._store = store
        self._login: Login | None = None
        self._renewal: asyncio.Future[Login | UpstreamError] | None = None
        self._unaccepted = ""
        """A renewed token that the upstream has not accepted yet."""
        self._refusing: dict[str, float] = {}  # by subject: the end of its time without renewals
        self._rejected_refresh_token = ""
        """A refresh token that was refused. It is not used again."""

    async def headers(self) -> Mapping[str, str]:
        login = self._login
        if login is None or login.wants_renewal():
            login = await self._fresh(login, is_refused=False)
        return _bearer(login)

    async def renewed(self, refused: Mapping[str, str], subject: str = "") -> bool:
        login = self._login
        if login is None or _bearer(login) != refused:
            return True
        # Only requests of the connection itself prove that a person has to sign in.
        is_new = bool(subject) and login.access_token == self._unaccepted
        if is_new or anyio.current_time() < self._refusing.get(subject, 0.0):
            return False
        self._refusing.pop(subject, None)
        await self._fresh(login, is_refused=True)
        return True

    def accepted(self, sent: Mapping[str, str], subject: str = "") -> None:
        self._refusing.pop(subject, None)
        if self._login is not None and _bearer(self._login) == sent:
            self._unaccepted = ""

    def refused(self, subject: str) -> bool:
        if subject in self._refusing:
            return not self._unaccepted
        if subject:
            self._refusing[subject] = anyio.current_time() + REFUSAL_SECONDS
        return False

    async def _fresh(self, stale: Login | None, *, is_refused: bool) -> Login:
        """A login other than `stale`. Concurrent callers share one renewal."""
        if self._login is not None and self._login is not stale:
            return self._login
        if self._renewal is None:
            self._renewal = asyncio.get_running_loop().create_future()
            # In its own task: a cancelled caller must not cancel a refresh that others wait for.
            self._start(self._run, self._renewal, stale, is_refused)
        outcome = await asyncio.shield(self._renewal)
        if isinstance(outcome, Login):
            return outcome
        raise copy(outcome)  # a copy for each caller, because each adds to it

    async def _run(
        self, renewal: "asyncio.Future[Login | UpstreamError]", stale: Login | None, is_refused: bool
    ) -> None:
        outcome: Login | UpstreamError = UpstreamUnavailableError("got no token")
        renew = self._signed_in if self._is_own else self._stored_or_refreshed
        try:
            with anyio.fail_after(max(RENEWAL_SECONDS, self._spec.connect_seconds)):
                outcome = await renew(stale, is_refused)
            self._mask_new(outcome.secrets)
            self._login = outcome
        except TimeoutError:
            outcome = UpstreamUnavailableError("got no token in time")
        except oauth.OAuthUnreachableError as error:
            outcome = UpstreamUnavailableError(f"got no token: {error}")
        except oauth.OAuthError as error:
            if self._is_own:
                remedy = error.remedy or "check `oauth` in the manifest"
                outcome = UpstreamDownError(f"got no token: {error}", remedy=remedy)
            else:
                # The person behind the model has to sign in: nothing else helps, and no one else can.
                outcome = UpstreamNeedsLoginError(f"{error}; {self._how_to_sign_in}", remedy=error.remedy)
        # Untrusted answers may raise anything. That fails this upstream, and must not end the others.
        except Exception as error:
            log.exception("token_not_renewed", upstream=self._name, error=type(error).__name__)
        finally:
            self._renewal = None
            renewal.set_result(outcome)

    async def _stored_or_refreshed(self, stale: Login | None, is_refused: bool) -> Login:
        """The stored login if it is newer; else refresh it. Raises OAuthError."""
        async with self._store.locked():
            found = await self._store.load()
            if found is None:
                raise oauth.OAuthError("not signed in" if stale is None else "the login was deleted")
            kept = found.as_configured(self._settings)
            if kept is None:
                raise oauth.OAuthError(
                    "the login is from a different authorization server than the manifest's"
                )
            self._redact.add(self._name, kept.secrets)
            is_new = stale is None or kept.access_token != stale.access_token
            if is_new and not kept.wants_renewal():
                return kept
            self._check_not_refused(kept, is_refused)
            try:
                # Shielded: the server may have replaced the refresh token already, so the answer has to be stored.
                with anyio.fail_after(REFRESH_SECONDS, shield=True):
                    return await self._kept(found, await self._refreshed(kept))
            except LoginEndedError:
                await self._store.ended(found)
                raise

    async def _kept(self, found: Login, login: Login) -> Login:
        try:
            return await self._store.replace(found, login)
        except LoginEndedError:
            raise
        except oauth.OAuthError as error:
            log.warning("login_not_kept", upstream=self._name, reason=str(error), remedy=error.remedy)
            return login

    async def _refreshed(self, login: Login) -> Login:
        if login.refresh_token is None:
            raise LoginEndedError("the token has expired or was refused, and there is no refresh token")
        if login.refresh_token == self._rejected_refresh_token:
            raise LoginEndedError("the refresh token is no longer valid")
        form = {
            "grant_type": "refresh_token",
            "refresh_token": login.refresh_token,
            "resource": login.resource if self._settings.send_resource else None,
        }
        async with oauth.open_guarded_http(self._spec.url, self._settings.issuer) as http:
            try:
                token = await oauth.request_token(http, login.token_endpoint, login.client, form)
            except oauth.OAuthRefusedError as error:
                message = f"the token cannot be refreshed: {error}"
                if error.code in _REJECTED_CODES:
                    self._rejected_refresh_token = login.refresh_token
                    raise LoginEndedError(message) from None
                raise oauth.OAuthError(message, error.remedy) from None
        self._unaccepted = token.access_token
        return Login.of(token, login.model_dump())

    async def _signed_in(self, stale: Login | None, is_refused: bool) -> Login:
        """Sign in with client credentials. The tokens are not stored: new ones are free. Raises OAuthError."""
        if stale is not None and time.time() < stale.obtained_at + ANOTHER_SECONDS:
            self._check_not_refused(stale, is_refused)
        async with oauth.open_guarded_http(self._spec.url, self._settings.issuer) as http:
            found = await oauth.discover(self._spec, http)
            client = oauth.configured_client(self._settings, found.server)
            resource = found.resource if self._settings.send_resource else None
            form = {"grant_type": "client_credentials", "scope": found.scope, "resource": resource}
            token = await oauth.request_token(http, found.server.token_endpoint, client, form)
        self._unaccepted = token.access_token
        return Login.first(self._spec.url, found, client, token)

    def _check_not_refused(self, login: Login | None, is_refused: bool) -> None:
        """Raises OAuthError if the upstream refused a token that was just renewed."""
        if is_refused and login is not None and login.access_token == self._unaccepted:
            raise oauth.OAuthError("the upstream refuses even a new token")


def _bearer(login: Login) -> dict[str, str]:
    return {"authorization": f"Bearer {login.access_token}"}
