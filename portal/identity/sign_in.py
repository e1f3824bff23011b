"""Sign-in over HTTP: verifies access tokens of the identity provider in `server.auth`, and finds who they belong to.

Rule 1: a token that lacks a required claim is refused. It needs the provider's signature or introspection, `iss`, `aud`
and `exp`, all scopes, a subject, and with `tenants` a tenant and a matching profile.
Rule 2: a token is for the portal only. It never goes to an upstream.

Source: MCP 2026-07-28, basic/authorization; RFC 9068 (JWTs as access tokens), RFC 8725 (JWTs, best practice),
RFC 7662 (introspection).
"""

import asyncio
import hashlib
import json
import math
import re
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

import anyio
import httpx2
import jwt
import structlog
from mcp.client.auth.utils import build_oauth_authorization_server_metadata_discovery_urls
from pydantic import BaseModel, TypeAdapter, ValidationError

from manifests.constraints import TenantName, is_safe_for_tokens
from manifests.json_value import Json
from manifests.portal_manifest import AuthSettings, Introspection, Tenants
from portal.base.caller import Bearer, claim, scopes_of, texts_of, values_of
from portal.base.errors import SignInError
from upstreams.errors import UpstreamUnavailableError
from upstreams.http_client import AnswerError, Guard, environment_proxy, exchange, guarded_client
from upstreams.oauth.authorization_server import Client, form_request
from upstreams.people import MAX_CLAIM_CHARACTERS

log = structlog.get_logger()

KEPT_SECONDS: Final = 60.0
"""How long a verified token is cached, never past its expiry. A revoked token can work this long."""

MAX_KEPT: Final = 10_000
MAX_SUBJECT_CHARACTERS: Final = 255
"""Source: OpenID Connect Core 1.0, 2."""

MAX_TOKEN_BYTES: Final = 16_384
REQUEST_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 5.0
"""How long a URL of the provider that failed is not asked again."""

KEYS_SECONDS: Final = 300.0
"""How long the provider's keys are cached."""

COOLDOWN_SECONDS: Final = 30.0
"""A token with an unknown key makes the portal read the keys, at most once in this time."""

MAX_WAITING: Final = 100
"""At most this many tokens queue for the provider. Further ones get 503, unless they are cached."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
"""Source: RFC 6750, 2.1."""

_ACCESS_TOKEN_TYPES: Final = ("", "jwt", "at+jwt", "application/at+jwt")
_LATEST: Final = 1e12
"""The latest time in a token that is accepted, in seconds since 1970."""

_AT_ONCE: Final = 4
"""Concurrent introspection requests."""

_NO_CLAIMS: Final = (TypeError, ValueError, ArithmeticError, RecursionError)
"""Raised by PyJWT besides its own errors: for a key of the wrong type, or an infinite time."""

_REASONS: Final[dict[type[Exception], str]] = {
    jwt.ExpiredSignatureError: "has expired",
    jwt.ImmatureSignatureError: "is not valid yet",
    jwt.InvalidAudienceError: "is for another audience",
    jwt.InvalidIssuerError: "is of another issuer",
    jwt.InvalidSignatureError: "is not signed with the key that it names, or was changed",
    jwt.MissingRequiredClaimError: "lacks one of the claims exp, iss and aud",
}
_TENANT: Final = TypeAdapter(TenantName)


def _invalid(why: str) -> SignInError:
    return SignInError(401, "invalid_token", why)


def _refused(error: Exception, why: str = "") -> SignInError:
    reason = _REASONS.get(type(error), "is damaged, or has a value that is not valid")
    return _invalid(f"the token {reason}{why}")


def _unavailable(
    why: str = "the identity provider cannot be asked now (the portal's log says why)", reason: str = ""
) -> SignInError:
    text = f"{why}, so the token cannot be checked. Try again later"
    return SignInError(503, "temporarily_unavailable", text, reason)


class _Metadata(BaseModel):
    issuer: str
    jwks_uri: str | None = None
    introspection_endpoint: str | None = None


class SignIn:
    """Verifies tokens. Each portal has one."""

    def __init__(self, settings: AuthSettings, tenants: Tenants | None, named: Collection[str] = ()) -> None:
        """`named` are the claims that the manifest's headers for upstreams refer to."""
        self._named = sorted(named)
        self._settings = settings
        self._tenants = tenants or Tenants()
        self._provider = Provider(settings)
        self._kept: OrderedDict[bytes, tuple[Bearer, float]] = OrderedDict()
        """The bearers of verified tokens, and until when each is cached."""
        self._asked: dict[bytes, asyncio.Task[Bearer]] = {}
        """The introspections under way, so that requests with the same token share one."""
        self._turns = anyio.CapacityLimiter(_AT_ONCE)

    async def bearer(self, token: str) -> Bearer:
        """Return who the token belongs to. Raises SignInError if it is refused or cannot be verified now."""
        key = hashlib.sha256(token.encode()).digest()
        bearer, until = self._kept.get(key, (None, 0.0))
        if bearer is not None and time.time() < until:
            return bearer
        try:
            return await self._check(token, key)
        except SignInError as error:
            log.info("token_refused", code=error.code, reason=str(error))
            raise

    async def _check(self, token: str, key: bytes) -> Bearer:
        if len(token) > MAX_TOKEN_BYTES or not _TOKEN.fullmatch(token):
            raise _invalid("the token is too long, or has characters that no token has")
        if token.count(".") == 2:
            return self._cache(key, await self._provider.claims_of_jwt(token))
        how = self._settings.introspection
        if how is None:
            raise _invalid(
                "the token is none of server.tokens, no JWT, and there is no server.auth.introspection"
            )
        if key not in self._asked:
            if key not in self._kept and len(self._asked) >= MAX_WAITING:
                raise _unavailable("too many tokens wait for the identity provider")
            # A task of its own, because the request that began it may be cancelled.
            self._asked[key] = asyncio.create_task(self._introspected(token, key, how))
        return await asyncio.shield(self._asked[key])

    async def _introspected(self, token: str, key: bytes, how: Introspection) -> Bearer:
        try:
            async with self._turns:
                return self._cache(key, await self._provider.introspected(token, how))
        finally:
            del self._asked[key]

    def _cache(self, key: bytes, claims: Mapping[str, Json]) -> Bearer:
        """Turn verified claims into a Bearer and cache it. Raises SignInError."""
        given, audience = scopes_of(claims), self._settings.audience
        # Entra ID announces a scope as `api://audience/name`, and writes `name` into tokens for this audience.
        names = {
            scope: {scope, scope.removeprefix(f"{audience}/"), scope.removeprefix(f"api://{audience}/")}
            for scope in self._settings.scopes
        }
        missing = [scope for scope, forms in names.items() if not forms & given]
        if missing:
            raise SignInError(403, "insufficient_scope", f"the token lacks the scope {' '.join(missing)}")
        bearer = self._bearer_of(claims)
        self._kept[key] = bearer, min(time.time() + KEPT_SECONDS, bearer.ends)
        self._kept.move_to_end(key)
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return bearer

    def _bearer_of(self, claims: Mapping[str, Json]) -> Bearer:
        # Only the subject identifies a person. A client's id, for example, is the same for all of its users.
        subject = claims.get("sub")
        if not (
            isinstance(subject, str) and 0 < len(subject) <= MAX_SUBJECT_CHARACTERS and subject.isprintable()
        ):
            raise _invalid(f"the token names no subject (`sub`) of 1 to {MAX_SUBJECT_CHARACTERS} characters")
        tenant, named = None, self._tenants.claim
        if named is not None:
            value = claim(claims, named)
            try:
                tenant = _TENANT.validate_python(value, strict=True)
            except ValidationError:
                why = f"the claim {named!r} of the token is {value!r:.100}, which is not a valid tenant name"
                raise SignInError(403, "access_denied", why) from None
        profile = self._profile(claims)
        # Sessions are keyed by this name, so a person has separate ones in each tenant and profile.
        name = " ".join(
            ("person", subject, *(["of", tenant] if tenant else ()), *(["as", profile] if profile else ()))
        )
        ends = _seconds(claims["exp"]) + self._settings.leeway_seconds
        bearer = Bearer.of(name, identity(self._settings.issuer, subject), profile, tenant, ends)
        values = {each: tenant if each == "tenant" else claim(claims, each) for each in self._named}
        most = MAX_CLAIM_CHARACTERS + 1
        told = tuple((each, text[:most]) for each, text in values.items() if isinstance(text, str))
        return replace(bearer, claims=told, token_claims=claims)

    def _profile(self, claims: Mapping[str, Json]) -> str | None:
        entries = [*self._tenants.entries.values()]
        fitting = [each.profile for each in entries if each.value in values_of(claims, each.claim)]
        fitting += [each.profile for each in entries if each.claim == "*"]
        if entries and not fitting:
            told = {each.claim: claim(claims, each.claim) for each in entries}
            why = f"no profile in tenants.profiles fits the token, which has {told!r:.300}"
            raise SignInError(403, "access_denied", why)
        return fitting[0] if fitting else None


class Provider:
    """The identity provider: its metadata, its keys, and its introspection of tokens."""

    def __init__(self, settings: AuthSettings) -> None:
        self._settings = settings
        self._metadata: _Metadata | None = None
        self._keys: dict[str, jwt.PyJWK] = {}
        self._keys_read = -math.inf
        self._reading = anyio.Lock()
        self._silent_until: dict[str, float] = {}
        """By URL."""

    async def fault(self) -> str:
        """Return why no token can be verified; "" if the provider works."""
        how = self._settings.introspection
        try:
            await (self._read_keys() if how is None else self.introspected("none", how))
        except SignInError as error:
            return error.reason
        return ""

    async def claims_of_jwt(self, token: str) -> Mapping[str, Any]:
        """Verify a JWT's signature, issuer, audience and times, and return its claims. Raises SignInError."""
        settings = self._settings
        key = await self._key(self._key_id(token))
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=list(settings.algorithms),
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=settings.leeway_seconds,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.InvalidAudienceError as error:
            audience = jwt.decode(token, options={"verify_signature": False}).get("aud")
            why = f", {audience!r:.200}, and server.auth.audience is {settings.audience!r}"
            raise _refused(error, why) from None
        except (jwt.PyJWTError, *_NO_CLAIMS) as error:
            raise _refused(error) from None
        _check_kind(claims)
        return claims

    def _key_id(self, token: str) -> str:
        """The id of the key that a JWT names. Raises SignInError: its header is not that of an access token."""
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, *_NO_CLAIMS) as error:
            raise _refused(error) from None
        if header.get("alg") not in self._settings.algorithms:
            raise _invalid("the algorithm of the token is not one of server.auth.algorithms")
        if str(header.get("typ", "")).lower() not in _ACCESS_TOKEN_TYPES:
            raise _invalid("the token is not an access token")
        key_id = header.get("kid")
        if not isinstance(key_id, str):
            raise _invalid("the token names no key")
        return key_id

    async def _key(self, key_id: str) -> jwt.PyJWK:
        """The key with this id. Asks the provider if it is unknown. Raises SignInError: the provider lacks it."""
        if self._is_due(key_id):
            async with self._reading:
                # While this one waited for the lock, another request may have read them.
                if self._is_due(key_id):
                    await self._read_keys()
        if key_id not in self._keys:
            raise _invalid("the token is signed with no key of the issuer")
        return self._keys[key_id]

    def _is_due(self, key_id: str) -> bool:
        seconds = KEYS_SECONDS if key_id in self._keys else COOLDOWN_SECONDS
        return time.monotonic() - self._keys_read > seconds

    async def _read_keys(self) -> None:
        url = (await self.metadata()).jwks_uri
        if url is None or not is_safe_for_tokens(url):
            raise self._silent(self._settings.issuer, "the issuer's metadata has no jwks_uri at https://")
        _, body = await self._ask(url)
        try:
            found = jwt.PyJWKSet.from_dict(body).keys
        except (jwt.PyJWTError, *_NO_CLAIMS):
            found = []
        keys = {key.key_id: key for key in found if key.key_id and key.public_key_use in ("sig", None)}
        if not keys:
            raise self._silent(url, "the issuer's jwks_uri has no keys")
        self._keys, self._keys_read = keys, time.monotonic()

    async def introspected(self, token: str, how: Introspection) -> Mapping[str, Any]:
        """The claims that the provider returns for a token. Raises SignInError: it is not active, or not for us."""
        url = how.url or (await self.metadata()).introspection_endpoint
        if url is None or not is_safe_for_tokens(url):
            raise self._silent(
                self._settings.issuer, "the provider has no introspection endpoint at https://"
            )
        form = {"token": token, "token_type_hint": "access_token"}
        client = Client(
            client_id=how.client_id, client_secret=how.client_secret, auth_method="client_secret_basic"
        )
        status, body = await self._ask(url, client, form)
        if "active" not in body:
            # The URL is not paused: a stranger's token may have caused this.
            log.error("introspection_failed", issuer=self._settings.issuer, status=status)
            raise _unavailable(
                reason=f"{url} says nothing about a token (status {status}); are client_id and client_secret right?"
            )
        now, leeway = time.time(), self._settings.leeway_seconds
        if body["active"] is not True:
            raise _invalid("the provider says that the token is not active")
        expires, begins = _seconds(body.get("exp")), _seconds(body.get("nbf") or 0)
        if body.get("iss", self._settings.issuer) != self._settings.issuer:
            raise _invalid("the token is of another issuer")
        if self._settings.audience not in texts_of(body.get("aud")):
            raise _invalid("the token is for another audience")
        if expires + leeway < now:
            raise _invalid("the token has expired")
        if begins - leeway > now:
            raise _invalid("the token is not valid yet")
        _check_kind(body)
        return body

    async def metadata(self) -> _Metadata:
        """The provider's metadata, read once. Raises SignInError: it is missing, or of another issuer."""
        if self._metadata is not None:
            return self._metadata
        issuer = self._settings.issuer
        self._check_is_asked(issuer)
        reason = "it has no metadata of an issuer"
        for url in build_oauth_authorization_server_metadata_discovery_urls(issuer, issuer):
            _, body = await self._ask(url)
            try:
                found = _Metadata.model_validate(body)
            except ValidationError:
                continue
            # Otherwise one issuer could impersonate another (mix-up attack).
            if found.issuer == issuer:
                self._metadata = found
                return found
            reason = f"it calls itself {found.issuer[:200]!r}; if it is the one, write the issuer so"
        raise self._silent(issuer, reason)

    async def _ask(
        self, url: str, client: Client | None = None, form: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Return the status of the provider's answer and its JSON object, {} if it has none or the status is not 200.

        Raises SignInError: no answer within REQUEST_SECONDS, or one that `exchange` rejects.
        """
        self._check_is_asked(url)
        try:
            request = httpx2.Request("GET", url) if client is None else form_request(url, client, form or {})
            async with guarded_client(Guard(proxy=environment_proxy)) as http:
                answer = await exchange(http, request, REQUEST_SECONDS)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            raise self._silent(url, f"{type(error).__name__} {error.__cause__ or error}"[:300]) from None
        except (AnswerError, UpstreamUnavailableError) as error:
            raise self._silent(url, str(error)) from None
        try:
            body = json.loads(answer.content) if answer.status_code == 200 else None
        except (ValueError, RecursionError):
            body = None
        return answer.status_code, body if isinstance(body, dict) else {}

    def _check_is_asked(self, url: str) -> None:
        if time.monotonic() < self._silent_until.get(url, 0):
            raise _unavailable()

    def _silent(self, url: str, reason: str) -> SignInError:
        log.error("identity_provider_unavailable", issuer=self._settings.issuer, url=url, reason=reason)
        self._silent_until[url] = time.monotonic() + PAUSE_SECONDS
        return _unavailable(reason=f"{url}: {reason}")


def _check_kind(claims: Mapping[str, Json]) -> None:
    """Raises SignInError: the token is not an access token, or is bound to a key, which is not verified here."""
    if (
        claims.get("typ") in ("ID", "Refresh", "Logout")
        or {"at_hash", "c_hash", "events", "cnf"} & claims.keys()
    ):
        raise _invalid("the token is not an access token")


def _seconds(value: Json) -> float:
    """A time claim of a token, in seconds since 1970. Raises SignInError: it is not a number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not abs(value) < _LATEST:  # rejects NaN too
        raise _invalid("a time claim of the token is not a number")
    return float(value)


def identity(issuer: str, subject: str) -> bytes:
    """A key that is unique to one person: issuer and subject."""
    return f"{issuer}\n{subject}".encode()
