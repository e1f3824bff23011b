"""The fields of an entry, asked for by the kind that they must have."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from manifests.json_value import Json
from portal.client_files.json_text import Number
from portal.client_files.secret_looks import looks_secret
from portal.client_files.variables import NAME, Reference

MAX_TEXT: Final = 32 * 1024
MAX_ITEMS: Final = 1000

_CAPITALS: Final = re.compile(r"[A-Z_][A-Z0-9_]*")


class UnfitError(ValueError):
    """The entry cannot be taken over; the message says why."""


@dataclass(frozen=True)
class Fields:
    """An entry's fields, asked for by the kind that they must have."""

    data: Mapping[str, Json]

    @classmethod
    def of(cls, data: Json) -> "Fields":
        if not isinstance(data, dict):
            raise UnfitError("it is no object")
        return cls(data)

    def text(self, key: str) -> str | None:
        value = self.data.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or isinstance(value, Number):
            raise UnfitError(f"its {key} is no text")
        return _fit(value, key)

    def texts(self, key: str) -> list[str]:
        value = self.data.get(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise UnfitError(f"its {key} is no list of texts")
        if len(value) > MAX_ITEMS:
            raise UnfitError(f"its {key} has more than {MAX_ITEMS} items")
        return [_fit(str(each), key) for each in value]

    def mapping(self, key: str) -> dict[str, str]:
        value = self.data.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(v, str | bool | None) for v in value.values()):
            raise UnfitError(f"its {key} is no object of texts")
        if len(value) > MAX_ITEMS:
            raise UnfitError(f"its {key} has more than {MAX_ITEMS} items")
        # null takes a variable away, which a child of the portal does not have to begin with.
        return {_fit(k, key): _fit(_said(v), key) for k, v in value.items() if v is not None}

    def names(self, key: str) -> list[str]:
        """Codex: names, or objects with a name and where the value is from."""
        value = self.data.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise UnfitError(f"its {key} is no list of names")
        items = [item.get("name") if isinstance(item, dict) else item for item in value[:MAX_ITEMS]]
        return [reference(str(item)).name for item in items]

    def listed(self, keys: Sequence[str]) -> list[str] | None:
        """The texts of all these keys; None if there are none of the keys."""
        found = [key for key in keys if self.data.get(key) is not None]
        return [text for key in found for text in self.texts(key)] if found else None


def _fit(text: str, key: str) -> str:
    if len(text) > MAX_TEXT:
        raise UnfitError(f"its {key} holds a text of more than {MAX_TEXT} characters")
    if "\0" in text:
        raise UnfitError(f"its {key} holds a NUL character")
    return text


def _said(value: Json) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def reference(variable: str) -> Reference:
    """
    Raises:
        UnfitError: There can be no variable of this name, or a token stands in its place.
    """
    if looks_secret(variable) and not _CAPITALS.fullmatch(variable):
        raise UnfitError("a token stands where it wants the name of an environment variable")
    if not NAME.fullmatch(variable):
        # Whoever took the key for that of the token itself must not find it in the manifest or on the terminal.
        raise UnfitError("what stands where it wants the name of an environment variable cannot be one")
    return Reference(variable)
