"""What is kept of having signed in to an upstream."""

import time
from typing import Literal, TypeAlias

from mcp.shared.auth import OAuthToken
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from manifests.upstream_sections import OAuthSettings
from upstreams.oauth.discovery import Discovered
from upstreams.oauth.errors import OAuthUnreachableError

LEEWAY_SECONDS = 30.0
"""A token is renewed so long before it expires, or in the last tenth of its life if that is shorter."""

_MOST_SECONDS = 10 * 365 * 86_400

AuthMethod: TypeAlias = Literal["none", "client_secret_basic", "client_secret_post"]


class Client(BaseModel):
    """As whom the portal asks an authorization server."""

    model_config = ConfigDict(frozen=True)

    client_id: str = Field(repr=False)
    client_secret: str | None = Field(default=None, repr=False)
    auth_method: AuthMethod = "none"


def expiry(token: OAuthToken, now: float) -> float | None:
    """When a token that came now will have expired; None if that was not said."""
    if token.expires_in is None:
        return None
    return now + min(max(token.expires_in, 0), _MOST_SECONDS)


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

    def with_tokens(self, token: OAuthToken) -> "Login":
        """What comes of a refresh: what the server does not say stays as it was.

        Raises:
            OAuthUnreachableError: It is no token that HTTP can carry.
        """
        now = time.time()
        new = {
            "access_token": token.access_token,
            "refresh_token": token.refresh_token or self.refresh_token,
            "scope": token.scope or self.scope,
            "obtained_at": now,
            "expires_at": expiry(token, now),
        }
        try:
            return Login.model_validate({**self.model_dump(), **new})
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


def new_login(url: str, found: Discovered, client: Client, token: OAuthToken) -> Login:
    """What comes of the first token.

    Raises:
        OAuthUnreachableError: It is none that HTTP can carry.
    """
    now = time.time()
    revocation = found.server.revocation_endpoint
    try:
        return Login(
            url=url,
            issuer=str(found.server.issuer),
            token_endpoint=str(found.server.token_endpoint),
            revocation_endpoint=None if revocation is None else str(revocation),
            resource=found.resource,
            scope=token.scope or found.scope,
            client=client,
            access_token=token.access_token,
            refresh_token=token.refresh_token,
            obtained_at=now,
            expires_at=expiry(token, now),
        )
    except ValidationError:
        raise OAuthUnreachableError("the authorization server gave a token that cannot be sent") from None
