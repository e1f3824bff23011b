"""The login of one upstream, and where it is kept for this portal and all others of the same user."""

import fcntl
import hashlib
import json
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, Literal

import anyio
import anyio.to_thread
from mcp.shared.auth import OAuthToken
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from manifests.own_files import write_whole
from manifests.references import SecretError
from manifests.upstream_sections import OAuthSettings
from upstreams.oauth.discovery import Client, Discovered
from upstreams.oauth.http import OAuthError, OAuthUnreachableError
from upstreams.system_keyring import drop_from_keyring, keep_in_keyring, keyring_password

LEEWAY_SECONDS: Final = 30.0
"""A token is renewed so long before it expires, or in the last tenth of its life if that is shorter."""

MAX_LOGIN_BYTES: Final = 1024 * 1024
LOCK_SECONDS: Final = 15.0
_LOCK_PAUSE_SECONDS: Final = 0.05
_SERVICE: Final = "mcp-code-portal"
_MOST_SECONDS: Final = 10 * 365 * 86_400


class Login(BaseModel):
    """Tokens for one upstream, and how to get new ones. Times are seconds since 1970."""

    model_config = ConfigDict(frozen=True)

    format: Literal[1] = 1
    url: str = Field(repr=False)
    """The upstream that the tokens are for, and the only one that they are sent to."""
    issuer: str
    token_endpoint: str
    revocation_endpoint: str | None = None
    resource: str
    scope: str | None = None
    client: Client
    access_token: str = Field(repr=False, pattern=r"^[\x21-\x7e]{1,65536}$")
    refresh_token: str | None = Field(default=None, repr=False, max_length=65_536)
    obtained_at: float
    expires_at: float | None = None

    @classmethod
    def first(cls, url: str, found: Discovered, client: Client, token: OAuthToken) -> "Login":
        """The login that begins with a token. Raises OAuthUnreachableError: HTTP cannot carry it."""
        server = found.server.model_dump(mode="json")
        kept = {key: server[key] for key in ("issuer", "token_endpoint", "revocation_endpoint")}
        return cls.of(
            token, {**kept, "url": url, "resource": found.resource, "scope": found.scope, "client": client}
        )

    @classmethod
    def of(cls, token: OAuthToken, kept: Mapping[str, object]) -> "Login":
        """The login that a token makes of what was `kept` before. Raises OAuthUnreachableError: as `first`."""
        now = time.time()
        life = None if token.expires_in is None else min(max(token.expires_in, 0), _MOST_SECONDS)
        new = {
            "access_token": token.access_token,
            "refresh_token": token.refresh_token or kept.get("refresh_token"),
            "scope": token.scope or kept["scope"],
            "obtained_at": now,
            "expires_at": None if life is None else now + life,
        }
        try:
            return cls.model_validate({**kept, **new})
        except ValidationError:
            raise OAuthUnreachableError("the authorization server gave a token that cannot be sent") from None

    def as_configured(self, settings: OAuthSettings) -> "Login | None":
        """The same with the client secret of today; None if the manifest names another authorization server by now."""
        if settings.issuer is not None and settings.issuer.rstrip("/") != self.issuer.rstrip("/"):
            return None
        secret, client = settings.client_secret, self.client
        if secret is None or settings.client_id != client.client_id:
            return self
        method = "client_secret_basic" if client.auth_method == "none" else client.auth_method
        renewed = client.model_copy(update={"client_secret": secret, "auth_method": method})
        return self.model_copy(update={"client": renewed})

    def has_expired(self) -> bool:
        return self.expires_at is not None and time.time() >= self.expires_at

    def wants_renewal(self) -> bool:
        """Whether it is about to expire, or has, if nothing could be done about it before."""
        if self.expires_at is None:
            return False
        leeway = min(LEEWAY_SECONDS, (self.expires_at - self.obtained_at) / 10)
        return time.time() >= self.expires_at - (leeway if self.refresh_token else 0.0)

    @property
    def secrets(self) -> tuple[str, ...]:
        told = (self.access_token, self.refresh_token, self.client.client_secret)
        return tuple(secret for secret in told if secret)


class LoginStore:
    """One login: a file that only its owner can read (mode 0600), or an entry of the system keyring.

    It belongs to an upstream's name and URL together: under another URL there is none.
    """

    def __init__(self, folder: Path, name: str, url: str, keep_in: Literal["file", "keyring"]) -> None:
        self._folder = folder
        self._url = url
        self._key = hashlib.sha256(json.dumps([name, url]).encode("utf-8", "surrogatepass")).hexdigest()
        self._file = folder / f"{self._key}.json"
        self._is_file = keep_in == "file"

    async def load(self) -> Login | None:
        """The login; None if there is none that is of use. Raises OAuthError: others can read it, or we cannot."""
        # A keyring that is locked waits for its owner: nobody else has to.
        content = await anyio.to_thread.run_sync(self._content, abandon_on_cancel=True)
        try:
            login = Login.model_validate_json(content)
        except ValidationError:
            return None
        return login if login.url == self._url else None

    async def save(self, login: Login) -> None:
        """Keep it in place of the one before: whole, or not at all. Raises OAuthError: it cannot be kept."""
        await anyio.to_thread.run_sync(self._save, login.model_dump_json())

    async def delete(self) -> None:
        """Keep none any more. Raises OAuthError: it is still there."""
        await anyio.to_thread.run_sync(self._delete, abandon_on_cancel=True)

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Alone among the user's portals: no two use one refresh token. Raises OAuthUnreachableError: another does."""
        with _explained():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(
                self._file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
        try:
            deadline = anyio.current_time() + LOCK_SECONDS
            while not _has_locked(descriptor):
                if anyio.current_time() >= deadline:
                    raise OAuthUnreachableError("another portal is renewing its tokens and does not end")
                await anyio.sleep(_LOCK_PAUSE_SECONDS)
            yield
        finally:
            os.close(descriptor)

    def _content(self) -> str | bytes:
        with _explained():
            if not self._is_file:
                return keyring_password(_SERVICE, self._key) or ""
            try:
                descriptor = os.open(self._file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
            except FileNotFoundError:
                return ""
            with os.fdopen(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                if status.st_uid != os.geteuid() or status.st_mode & 0o077:
                    raise OAuthError("the file of its tokens is not its owner's alone; log out, and in again")
                return file.read(MAX_LOGIN_BYTES)

    def _save(self, text: str) -> None:
        with _explained():
            if self._is_file:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_whole(self._file, text.encode())
            else:
                keep_in_keyring(_SERVICE, self._key, text)

    def _delete(self) -> None:
        with _explained():
            if not self._is_file:
                drop_from_keyring(_SERVICE, self._key)
            self._file.unlink(missing_ok=True)


def _has_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except SecretError as error:
        raise OAuthError(f"{error}. {error.hint}".rstrip()) from None
    except OSError as error:
        raise OAuthError(f"its tokens cannot be kept or read: {error.strerror or 'unknown reason'}") from None
