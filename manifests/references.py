"""References in a manifest's strings: `${NAME}`, `${NAME:-default}`, `${command:...}`, `${keyring:...}`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from manifests.secret_references import SECRET_KINDS, SecretKind, SecretReference

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<inside>[^}]*)(?P<end>\}?)")
_INSIDE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<has_default>:-(?P<default>[^$]*))?")
_SECRET = re.compile(rf"(?P<kind>{'|'.join(SECRET_KINDS)}):(?!-)(?P<text>.*)", re.DOTALL)


@dataclass(frozen=True)
class VariableReference:
    """To a variable of the environment, or of portal.env; without a default it has to be there."""

    name: str
    default: str | None = None

    def value(self, given: str | None) -> str:
        """What it becomes, where the variable holds `given`; None is that it is not set."""
        return given or self.default or ""


@dataclass(frozen=True)
class FaultyReference:
    """What looks like one, and is none."""

    written: str


Piece: TypeAlias = str | VariableReference | SecretReference | FaultyReference


def pieces(text: str) -> Iterator[Piece]:
    """A string in its order: the references, and what stands between them, with `$${` as the `${` that it means."""
    end = 0
    for match in _REFERENCE.finditer(text):
        yield text[end : match.start()]
        yield _piece(match)
        end = match.end()
    yield text[end:]


def _piece(match: re.Match[str]) -> Piece:
    if match[0] == "$${":
        return "${"
    if not match["end"]:
        return FaultyReference(match[0])
    if secret := _SECRET.fullmatch(match["inside"]):
        kind: SecretKind = "command" if secret["kind"] == "command" else "keyring"
        return SecretReference(kind, secret["text"].strip())
    inside = _INSIDE.fullmatch(match["inside"])
    return VariableReference(inside["name"], inside["default"]) if inside else FaultyReference(match[0])
