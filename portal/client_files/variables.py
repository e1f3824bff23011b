"""Texts of a configuration with what is filled in when a server is started: the client's variables, and secrets."""

import re
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, TypeAlias

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Reference:
    """A variable of the environment."""

    name: str
    default: str | None = None


@dataclass(frozen=True)
class Input:
    """What VS Code asks somebody for; `id` is what the file's `inputs` call it, and no other file's."""

    id: str


@dataclass(frozen=True)
class Secret:
    """A value that must not stand in the manifest.

    `name` is what its variable would best be called; `is_own` if that is the name the client's file gives it, which
    needs no more to tell it from others'.
    """

    value: str = field(repr=False)
    name: str = field(compare=False)
    is_own: bool = field(compare=False, default=False)


Piece: TypeAlias = str | Reference | Secret | Input

Template: TypeAlias = tuple[Piece, ...]
"""The text that its pieces make one after the other; a `str` stands for itself, whatever it holds."""


def variable_name(text: str) -> str:
    """A name for a variable: `api-key` -> `API_KEY`, `exaApiKey` -> `EXA_API_KEY`."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text)
    name = re.sub(r"[^A-Z0-9]+", "_", text.upper().encode("ascii", "replace").decode()).strip("_")
    if len(name) > 100 or not name:
        name = name[:100].strip("_") or "VALUE"
    return f"_{name}" if name[0].isdigit() else name


def written(template: Template) -> str:
    """The text as a manifest has it. Secrets must have been replaced by references.

    Raises:
        ValueError: A manifest cannot say it.
    """
    text = ""
    for is_literal, group in groupby(template, lambda piece: isinstance(piece, str)):
        pieces = tuple(group)
        if not is_literal and text.endswith("$"):
            raise ValueError("a $ stands right before a variable, which a manifest cannot say")
        # As one text: what two pieces make together may be a reference, too.
        text += _escaped("".join(map(str, pieces))) if is_literal else "".join(map(_written, pieces))
    return text


def _escaped(text: str) -> str:
    return text.replace("${", "$${")


def _written(piece: str | Reference | Secret | Input) -> str:
    assert isinstance(piece, Reference), "a secret would be written down"
    return f"${{{piece.name}}}" if piece.default is None else f"${{{piece.name}:-{piece.default}}}"


def shown(template: Template) -> str:
    """The text for people: secrets as dots."""
    return "".join(piece if isinstance(piece, str) else _shown(piece) for piece in template)


def _shown(piece: Reference | Secret | Input) -> str:
    if isinstance(piece, Input):
        return f"${{input:{piece.id}}}"
    return "***" if isinstance(piece, Secret) else _written(piece)
