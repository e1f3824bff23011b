"""A client's variables in a text, in the words of a manifest."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from portal.client_files.places import Style
from portal.client_files.secret_values import is_secret
from portal.client_files.variables import NAME, Input, Reference, Secret, Template

MAX_VARIABLES: Final = 100

_INSIDE: Final = r"\$\{(?P<inside>(?:[^}$]|\$(?!\{)){0,300})\}"
_BRACES: Final = re.compile(_INSIDE)
_DOLLAR: Final = re.compile(_INSIDE + r"|\$(?P<bare>[A-Za-z_][A-Za-z0-9_]*)")
_NESTED: Final = re.compile(r"\$\{[A-Za-z_]\w{0,300}:-")
_CAPITALS: Final = re.compile(r"[A-Z][A-Z0-9_]+")
_WITH_DEFAULT: Final = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
_PREFIX: Final = re.compile(r"(?P<prefix>[a-zA-Z]+):(?P<rest>.*)", re.DOTALL)


class UntranslatableError(ValueError):
    """A manifest has no word for it; the message says for what."""


@dataclass(frozen=True)
class Surroundings:
    """What variables of one entry may stand for. `own` are the names of its `env`, which the server has itself."""

    style: Style
    home: Path
    folder: Path
    own: Collection[str]
    environ: Mapping[str, str]

    def translated(self, text: str, *, in_env: bool = False) -> Template:
        """The text with the client's variables as references.

        Raises:
            UntranslatableError: It asks the client for something that a manifest cannot.
        """
        if self.style == "none" or "$" not in text:
            return (text,)
        pattern = _DOLLAR if self.style == "dollar" else _BRACES
        own = () if in_env else self.own
        pieces = tuple(self._pieces(text, pattern, own))
        if self.style != "prefixed" and any(isinstance(p, str) and _NESTED.search(p) for p in pieces):
            raise UntranslatableError("the default of a variable holds another, which a manifest cannot say")
        return pieces

    def _pieces(
        self, text: str, pattern: re.Pattern[str], own: Collection[str]
    ) -> Iterator[str | Reference | Secret | Input]:
        end = 0
        for count, found in enumerate(pattern.finditer(text)):
            if count == MAX_VARIABLES:
                raise UntranslatableError(f"one of its texts holds more than {MAX_VARIABLES} variables")
            yield text[end : found.start()]
            if self.style == "prefixed":
                yield self._named(found)
            else:
                yield self._variable(found, text, own)
            end = found.end()
        yield text[end:]

    def _variable(self, found: re.Match[str], text: str, own: Collection[str]) -> str | Reference | Secret:
        bare = found.groupdict().get("bare")
        inside = _WITH_DEFAULT.fullmatch(bare or found["inside"] or "")
        # mcp-remote and others fill in their own environment, which clients leave alone if theirs has no such variable.
        if inside is None or (inside["name"] in own and inside["name"] not in self.environ):
            return found[0]
        if bare and bare not in self.environ and not _is_meant(found, text):
            return found[0]  # Gemini leaves it as it is, and so a password with a $ in it
        if inside["default"] is not None and re.search(r"[$\0]", inside["default"]):
            raise UntranslatableError(
                f"the default of ${{{inside['name']}}} holds a $, which a manifest cannot say"
            )
        if inside["default"] and is_secret(inside["name"], inside["default"]):
            return self._without_default(inside["name"], inside["default"])
        return Reference(inside["name"], inside["default"])

    def _without_default(self, name: str, default: str) -> Reference | Secret:
        """Beside portal.yaml the default stands in portal.env, which the environment goes before just as well."""
        return Reference(name) if self.environ.get(name) else Secret(default, name, is_own=True)

    def _named(self, found: re.Match[str]) -> str | Reference | Input:
        inside = found["inside"]
        if (known := self._known().get(inside)) is not None:
            return known
        prefix = _PREFIX.fullmatch(inside)
        if prefix is None or prefix["prefix"] not in _PREFIXES:
            return found[0]  # clients leave it as it is
        if prefix["prefix"] == "env" and NAME.fullmatch(prefix["rest"]):
            return Reference(prefix["rest"])
        if prefix["prefix"] == "input":
            return Input(prefix["rest"])
        raise UntranslatableError(f"only the client can tell what {found[0][:60]!a} stands for")

    def _known(self) -> Mapping[str, str]:
        return {
            "workspaceFolder": str(self.folder),
            "workspaceFolderBasename": self.folder.name,
            "workspaceRoot": str(self.folder),
            "userHome": str(self.home),
            "cwd": str(self.folder),
            "pathSeparator": "/",
            "/": "/",
        }


def _is_meant(found: re.Match[str], text: str) -> bool:
    """Whether `$NAME` is a variable though none is set here: all of the text, or in capitals and no word's end."""
    before = text[max(0, found.start() - 1) : found.start()]
    is_apart = not before.isalnum() and before not in ("_", "$")
    return found[0] == text or (is_apart and _CAPITALS.fullmatch(found["bare"]) is not None)


_PREFIXES: Final = {"env", "input", "command", "config", "file", "workspaceFolder"}
