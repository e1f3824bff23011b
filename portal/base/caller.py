"""The sender of a request."""

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from manifests.json_value import Json

_SCOPES: Final = ("scope", "scp")


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request. `queue_key` identifies it in fair queues; `owner` owns sessions, "" if unknown.

    An address identifies a client well enough for queues, which clients behind one address share. It proves no
    ownership of a session.
    """

    queue_key: str
    owner: str
    profile: str | None = None
    """The profile that its token sets."""
    tenant: str | None = None
    """The tenant that its token sets."""
    is_one_client: bool = True
    """Whether all of its requests come from one client. If not, they must not see each other's data."""
    run_owner: str = "local"
    """Owns runs and kept results. A bearer in a tenant and profile is one owner; callers without a bearer share one."""
    claims: tuple[tuple[str, str], ...] | None = None
    """The claims of a signed-in person that headers of upstreams name. None for other callers."""
    client: str = field(default="", compare=False)
    """The program that sent it, as that names itself, for people. It proves nothing."""

    @property
    def label(self) -> str:
        """Its name for people. Anyone who knows the id of an MCP session can join it, so that is a hash here."""
        kind, _, identifier = self.queue_key.partition(" ")
        if kind != "session":
            return self.queue_key
        return f"session {hashlib.sha256(identifier.encode()).hexdigest()[:16]}"


BEARER = "mcp_code_portal.bearer"
"""The key in the ASGI scope under which HttpAccessMiddleware stores the Bearer of the token, None for `server.token`.
The key is missing if the portal requires no token."""


@dataclass(frozen=True, slots=True)
class Bearer:
    """The owner of one of `server.tokens`, or a person who signed in; `name` identifies it."""

    name: str
    profile: str | None
    tenant: str | None = None
    run_owner: str = "local"
    ends: float = math.inf
    """When the token expires, in seconds since 1970."""
    claims: tuple[tuple[str, str], ...] | None = None
    token_claims: Mapping[str, Json] = field(default_factory=dict, compare=False, repr=False)
    """All claims of its token."""
    entry: str = ""
    """`token:NAME`, if the token has a name."""

    @classmethod
    def of(
        cls, name: str, identity: bytes, profile: str | None, tenant: str | None, ends: float = math.inf
    ) -> Self:
        """The bearer with this unique `identity`, which owns its runs in this tenant and profile."""
        owner = (tenant or "", profile or "", hashlib.sha256(identity).hexdigest())
        return cls(name, profile, tenant, "/".join(owner), ends)


def tenant_of(run_owner: str) -> str:
    """The tenant of an owner of runs; "" without one."""
    return run_owner.rpartition("/")[0].partition("/")[0]


def identity_of(run_owner: str) -> str:
    """The part of an owner of runs that is the same for one person in all tenants and profiles."""
    return run_owner.rpartition("/")[2]


LOCAL = Caller("local", "local")
"""The one client of a process: over stdio, or the command line."""

WITHOUT_TOKEN: Final = "http"
"""Owns the runs of all HTTP callers of a portal that requires no token. The ids of these runs and of what they keep are
secrets, so only a whole id finds one. The client over stdio owns its own runs."""


def claim(claims: Mapping[str, Json], name: str) -> Json:
    """The claim of this name, or at this path into the claims; None if it is missing."""
    if name in claims:
        return claims[name]
    value: Json = dict(claims)
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def values_of(claims: Mapping[str, Json], name: str) -> Collection[str]:
    """The texts of a claim: a single text, a list of texts, or scopes."""
    return scopes_of(claims) if name in _SCOPES else texts_of(claim(claims, name))


def scopes_of(claims: Mapping[str, Json]) -> set[str]:
    """The scopes of a token. Providers write them as `scope` or `scp`, a text or a list."""
    given: set[str] = set()
    for name in _SCOPES:
        value = claims.get(name)
        given.update(value.split() if isinstance(value, str) else texts_of(value))
    return given


def texts_of(value: Json) -> list[str]:
    """A claim that is a text, or the texts of one that is a list."""
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)]
