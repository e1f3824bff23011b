"""Sign-in over HTTP: checks access tokens of the identity provider in `server.auth`, and says whose they are.

Rule 1: what says nothing is refused. A token needs the provider's signature (or its word), its `iss`, `aud` and `exp`,
all scopes, a subject, and with `tenants` a tenant and a profile that fits.
Rule 2: a token is for the portal alone. It never goes to an upstream.

Source: MCP 2026-07-28, basic/authorization; RFC 9068 (JWTs as access tokens), RFC 8725 (JWTs, best practice),
RFC 7662 (introspection).
"""

import hashlib
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio
import anyio.to_thread
import httpx2
import jwt
import structlog
from jwt.exceptions import PyJWKClientConnectionError
from mcp.client.auth.utils import build_oauth_authorization_server_metadata_discovery_urls
from pydantic import BaseModel, TypeAdapter, ValidationError

from manifests.constraints import TenantName, is_safe_for_tokens
from manifests.json_value import Json
from manifests.portal_manifest import AuthSettings, Introspection, Tenants
from portal.sessions import Bearer
from upstreams.people import MAX_CLAIM_CHARACTERS

log = structlog.get_logger()

KEPT_SECONDS: Final = 60.0
"""A token that was checked is not checked again for so long, nor after its end. So long may a revoked one work."""

MAX_KEPT: Final = 10_000
MAX_SUBJECT_CHARACTERS: Final = 255
"""Source: OpenID Connect Core 1.0, 2."""

MAX_TOKEN_BYTES: Final = 16_384
REQUEST_SECONDS: Final = 5.0
MAX_ANSWER_BYTES: Final = 1 << 20
PAUSE_SECONDS: Final = 5.0
"""If the provider does not answer, it is not asked again for so long."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
"""Source: RFC 6750, 2.1."""

_ACCESS_TOKEN_TYPES: Final = ("", "jwt", "at+jwt", "application/at+jwt")
_LATEST: Final = 1e12
"""No time of a token is later, in seconds since 1970."""

_AT_ONCE: Final = 4
"""Tokens that are checked at the same time. Others wait, so a slow provider does not take all threads."""

_NO_CLAIMS: Final = (TypeError, ValueError, ArithmeticError, RecursionError)
"""What PyJWT raises besides its own errors: for a key of another kind, or a time that is infinite."""

_TENANT: Final = TypeAdapter(TenantName)


class SignInError(Exception):
    """A token is refused. `code` is that of RFC 6750, or `temporarily_unavailable`; the message has no secret."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def _invalid(why: str) -> SignInError:
    return SignInError(401, "invalid_token", why)


class _Metadata(BaseModel):
    issuer: str
    jwks_uri: str | None = None
    introspection_endpoint: str | None = None


@dataclass(frozen=True, slots=True)
class _Checked:
    bearer: Bearer
    until: float


class SignIn:
    """Checks tokens. One for each portal."""

    def __init__(self, settings: AuthSettings, tenants: Tenants | None, named: Collection[str] = ()) -> None:
        """`named` are the claims that headers of upstreams name."""
        self._named = sorted(named)
        self._settings = settings
        self._tenants = tenants or Tenants()
        self._provider = Provider(settings)
        self._kept: OrderedDict[bytes, _Checked] = OrderedDict()
        self._turns: anyio.CapacityLimiter | None = None

    async def bearer(self, token: str) -> Bearer:
        """Whose token it is. Raises SignInError: it is refused, or cannot be checked now."""
        key = hashlib.sha256(token.encode()).digest()
        known = self._kept.get(key)
        if known is not None and time.time() < known.until:
            return known.bearer
        # In a thread: the provider may have to be asked.
        self._turns = self._turns or anyio.CapacityLimiter(_AT_ONCE)
        try:
            checked = await anyio.to_thread.run_sync(self._check, token, limiter=self._turns)
        except SignInError as error:
            log.info("token_refused", code=error.code, reason=str(error))
            raise
        self._kept[key] = checked
        self._kept.move_to_end(key)
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return checked.bearer

    def _check(self, token: str) -> _Checked:
        if len(token) > MAX_TOKEN_BYTES or not _TOKEN.fullmatch(token):
            raise _invalid("the token is too long, or has characters that no token has")
        if token.count(".") == 2:
            claims = self._provider.claims_of_jwt(token)
        elif self._settings.introspection is not None:
            claims = self._provider.introspected(token, self._settings.introspection)
        else:
            raise _invalid("the token is no JWT")
        self._check_scopes(claims)
        until = min(time.time() + KEPT_SECONDS, _seconds(claims["exp"]) + self._settings.leeway_seconds)
        return _Checked(self._bearer_of(claims), until)

    def _check_scopes(self, claims: Mapping[str, Json]) -> None:
        """Raises SignInError: a scope is missing. Providers write them as `scope` or `scp`, a text or a list."""
        given: set[str] = set()
        for name in ("scope", "scp"):
            value = claims.get(name)
            given.update(value.split() if isinstance(value, str) else _texts(value))
        missing = [scope for scope in self._settings.scopes if scope not in given]
        if missing:
            raise SignInError(403, "insufficient_scope", f"the token lacks the scope {' '.join(missing)}")

    def _bearer_of(self, claims: Mapping[str, Json]) -> Bearer:
        # Nothing else stands for it: a client's id, for example, is that of all its users.
        subject = claims.get("sub")
        if not (
            isinstance(subject, str) and 0 < len(subject) <= MAX_SUBJECT_CHARACTERS and subject.isprintable()
        ):
            raise _invalid(f"the token names no subject (`sub`) of 1 to {MAX_SUBJECT_CHARACTERS} characters")
        tenant, profile = self._tenant(claims), self._profile(claims)
        # Sessions go by this name: a person has others in each tenant and with each profile.
        name = " ".join(
            ("person", subject, *(["of", tenant] if tenant else ()), *(["as", profile] if profile else ()))
        )
        bearer = Bearer.of(name, identity(self._settings.issuer, subject), profile, tenant)
        return replace(bearer, claims=tuple(self._told(claims, tenant)))

    def _told(self, claims: Mapping[str, Json], tenant: str | None) -> Iterator[tuple[str, str]]:
        for name in self._named:
            value = tenant if name == "tenant" else claim(claims, name)
            if isinstance(value, str):
                yield name, value[: MAX_CLAIM_CHARACTERS + 1]

    def _tenant(self, claims: Mapping[str, Json]) -> str | None:
        name = self._tenants.claim
        if name is None:
            return None
        value = claim(claims, name)
        try:
            return _TENANT.validate_python(value, strict=True)
        except ValidationError:
            raise SignInError(
                403, "access_denied", f"the claim {name!r} of the token is no name of a tenant"
            ) from None

    def _profile(self, claims: Mapping[str, Json]) -> str | None:
        profiles = self._tenants.profiles
        for fitting, profile in profiles.items():
            if any(value in _texts(claim(claims, name)) for name, value in _pairs(fitting)):
                return profile
        if profiles and "*" not in profiles:
            raise SignInError(403, "access_denied", "no profile in tenants.profiles fits the token")
        return profiles.get("*")


class Provider:
    """The identity provider: its keys, and what it says about tokens. Blocks; for several threads."""

    def __init__(self, settings: AuthSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._metadata: _Metadata | None = None
        self._keys: jwt.PyJWKClient | None = None
        self._silent_until = 0.0

    def claims_of_jwt(self, token: str) -> Mapping[str, Any]:
        """The claims of a JWT whose signature, issuer, audience and times are right. Raises SignInError."""
        settings = self._settings
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in settings.algorithms:
                raise _invalid("the algorithm of the token is not one of server.auth.algorithms")
            if str(header.get("typ", "")).lower() not in _ACCESS_TOKEN_TYPES:
                raise _invalid("the token is no access token")
            key_id = header.get("kid")
            if not isinstance(key_id, str):
                raise _invalid("the token names no key")
            claims: Mapping[str, Any] = jwt.decode(
                token,
                self._key(key_id).key,
                algorithms=list(settings.algorithms),
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=settings.leeway_seconds,
                options={"require": ["exp", "iss", "aud"]},
            )
        except (PyJWKClientConnectionError, OSError):
            raise self._silent() from None
        except (jwt.PyJWTError, *_NO_CLAIMS) as error:
            raise _invalid(f"the token is refused: {type(error).__name__.removesuffix('Error')}") from None
        # Tokens of other kinds, and those that are bound to a key, which is not checked here.
        if (
            claims.get("typ") in ("ID", "Refresh", "Logout")
            or {"at_hash", "c_hash", "events", "cnf"} & claims.keys()
        ):
            raise _invalid("the token is no access token")
        return claims

    def introspected(self, token: str, how: Introspection) -> Mapping[str, Any]:
        """What the provider says about a token. Raises SignInError: it is not active, or for somebody else."""
        url = how.url or self.metadata().introspection_endpoint
        if url is None or not is_safe_for_tokens(url):
            raise self._silent("the provider has no introspection endpoint at https://")
        form = {"token": token, "token_type_hint": "access_token"}
        self._check_is_asked()
        try:
            told = self._ask("POST", url, data=form, auth=(how.client_id, how.client_secret))
        except _NothingThereError:
            raise _invalid("the provider does not introspect the token") from None
        except _SilentError as error:
            raise self._silent(str(error)) from None
        now, leeway = time.time(), self._settings.leeway_seconds
        expires, begins = _seconds(told.get("exp")), _seconds(told.get("nbf") or 0)
        if told.get("active") is not True:
            raise _invalid("the provider says that the token is not active")
        if told.get("iss", self._settings.issuer) != self._settings.issuer:
            raise _invalid("the token is of another issuer")
        if self._settings.audience not in _texts(told.get("aud")):
            raise _invalid("the token is for another audience")
        if expires + leeway < now:
            raise _invalid("the token has expired")
        if begins - leeway > now:
            raise _invalid("the token is not valid yet")
        return told

    def metadata(self) -> _Metadata:
        """The provider's metadata, read once. Raises SignInError: there is none, or of another issuer."""
        with self._lock:
            if self._metadata is None:
                self._metadata = self._discovered()
            return self._metadata

    def _discovered(self) -> _Metadata:
        self._check_is_asked()
        issuer = self._settings.issuer
        for url in build_oauth_authorization_server_metadata_discovery_urls(issuer, issuer):
            try:
                found = _Metadata.model_validate(self._ask("GET", url))
            except (ValidationError, _NothingThereError, _SilentError):
                continue
            # Otherwise one issuer could speak for another one (mix-up attack).
            if found.issuer == issuer:
                return found
            log.error("issuer_differs", expected=issuer, found=found.issuer[:200])
        raise self._silent("the issuer has no metadata in which it is the issuer")

    def _key(self, key_id: str) -> jwt.PyJWK:
        url = self.metadata().jwks_uri
        with self._lock:
            if self._keys is None:
                if url is None or not is_safe_for_tokens(url):
                    raise self._silent("the issuer's metadata has no jwks_uri at https://")
                # It asks for new keys when it meets an unknown one, at most every 30 seconds.
                self._keys = jwt.PyJWKClient(url, timeout=REQUEST_SECONDS)
            keys = self._keys
        # Known keys need no lock: the client holds its own while the provider is asked for unknown ones.
        kept = keys.jwk_set_cache.get() if keys.jwk_set_cache else None
        for key in kept.keys if kept else ():
            if key.key_id == key_id and key.public_key_use != "enc":
                return key
        self._check_is_asked()
        return keys.get_signing_key(key_id)

    def _ask(self, method: str, url: str, **request: Any) -> dict[str, Any]:
        """The JSON object that the provider answers. Raises _NothingThereError, _SilentError."""
        try:
            with (
                httpx2.Client(timeout=REQUEST_SECONDS, follow_redirects=False) as http,
                http.stream(method, url, **request) as answer,
            ):
                body = b""
                for chunk in answer.iter_bytes():
                    body += chunk
                    if len(body) > MAX_ANSWER_BYTES:
                        raise _SilentError("the provider answers too much")
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
            raise _SilentError(type(error).__name__) from None
        if answer.is_server_error:
            raise _SilentError(f"the provider answers {answer.status_code}")
        try:
            told = httpx2.Response(200, content=body).json()
        except (ValueError, RecursionError):
            told = None
        if not answer.is_success or not isinstance(told, dict):
            raise _NothingThereError
        return told

    def _check_is_asked(self) -> None:
        if time.monotonic() < self._silent_until:
            raise self._unavailable()

    def _silent(self, reason: str = "the provider's keys cannot be read") -> SignInError:
        log.error("identity_provider_unavailable", issuer=self._settings.issuer, reason=reason)
        self._silent_until = time.monotonic() + PAUSE_SECONDS
        return self._unavailable()

    def _unavailable(self) -> SignInError:
        message = "the identity provider does not answer, so the token cannot be checked. Try again later"
        return SignInError(503, "temporarily_unavailable", message)


def _seconds(value: Json) -> float:
    """A time of a token, in seconds since 1970. Raises SignInError: it is none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not abs(value) < _LATEST:  # so is not a number
        raise _invalid("a time of the token is no number of seconds")
    return float(value)


class _NothingThereError(Exception):
    """The provider answered, but not with what was asked for."""


class _SilentError(Exception):
    """The provider does not answer now. The message says why."""


def identity(issuer: str, subject: str) -> bytes:
    """What tells a person from everybody else."""
    return f"{issuer}\n{subject}".encode()


def claim(claims: Mapping[str, Json], name: str) -> Json:
    """The claim of this name, or at this path into the claims; None if there is none."""
    if name in claims:
        return claims[name]
    value: Json = dict(claims)
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _texts(value: Json) -> list[str]:
    """A claim that is a text, or the texts of one that is a list."""
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)]


def _pairs(fitting: str) -> Iterator[tuple[str, str]]:
    """Name and value of `claim:value`. Both may have colons, so each one may be that between them."""
    parts = fitting.split(":")
    for index in range(1, len(parts)):
        yield ":".join(parts[:index]), ":".join(parts[index:])
