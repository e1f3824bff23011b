"""The claims of a token."""

from collections.abc import Collection, Mapping
from typing import Final

from manifests.json_value import Json

_SCOPES: Final = ("scope", "scp")


def claim(claims: Mapping[str, Json], name: str) -> Json:
    """The claim of this name, or at this path into the claims; None if there is none."""
    if name in claims:
        return claims[name]
    value: Json = dict(claims)
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def values_of(claims: Mapping[str, Json], name: str) -> Collection[str]:
    """The texts of a claim: one, those of a list, or the scopes."""
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
