"""Where a client's file says that one signs in to a server, and what a manifest says of that."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from manifests.constraints import is_safe_for_tokens
from manifests.json_value import Json
from portal.client_files.fields import Fields

KEYS: Final = ("oauth", "auth", "scopes")

_SECTIONS: Final = ("oauth", "auth")
_READ: Final = {"enabled", "scopes"}
_MAX_SCOPE: Final = 2000


def sign_in(fields: Fields, url: str, headers: Collection[str]) -> dict[str, str] | None:
    """What the manifest says of a server that the client's file says one signs in to; None if it does not say so."""
    told = [fields.data[key] for key in _SECTIONS if fields.data.get(key)]
    is_off = any(isinstance(each, dict) and each.get("enabled") is False for each in told)
    is_told = any(each == "oauth" or isinstance(each, dict) for each in told) or "scopes" in fields.data
    has_token = any(name.lower() == "authorization" for name in headers)
    if not is_told or is_off or has_token or not is_safe_for_tokens(url):
        return None
    scope = " ".join(_scopes(fields))
    return {"scope": scope} if scope and "${" not in scope and len(scope) <= _MAX_SCOPE else {}


def left_of(fields: Fields, taken: Mapping[str, str]) -> Iterator[str]:
    """The keys of what it says there that is not in `taken`, which `sign_in` gave."""
    for key, section in _sections(fields):
        yield from (f"{key}.{name}" for name in section if name not in _READ)
    if _scopes(fields) and not taken:
        yield "scopes"


def _scopes(fields: Fields) -> list[str]:
    found = [section.get("scopes") for _, section in _sections(fields)] + [fields.data.get("scopes")]
    listed = next((each for each in found if isinstance(each, list) and each), [])
    return [each for each in listed if isinstance(each, str)]


def _sections(fields: Fields) -> Iterator[tuple[str, Mapping[str, Json]]]:
    for key in _SECTIONS:
        section = fields.data.get(key)
        if isinstance(section, dict):
            yield key, section
