"""`${command:...}` and `${keyring:service/user}`: values of a manifest that come from elsewhere than the environment.

Here is only what they mean. Whoever loads a manifest supplies the function that gets them.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

SecretKind: TypeAlias = Literal["command", "keyring"]
SECRET_KINDS: tuple[SecretKind, ...] = get_args(SecretKind)


@dataclass(frozen=True)
class SecretReference:
    """`text` is what stands behind the colon: a command line, or `service/user`."""

    kind: SecretKind
    text: str


class SecretError(Exception):
    """The value cannot be had. The message says why and shows nothing of it; `hint` says what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


FetchSecrets: TypeAlias = Callable[
    [Collection[SecretReference], Path], Mapping[SecretReference, str | SecretError]
]
"""Gets all of these at once; commands run in the folder. It may take as long as its own deadline, and never raises."""


def fetch_nothing(
    references: Collection[SecretReference], folder: Path
) -> Mapping[SecretReference, str | SecretError]:
    """Of whoever loads a manifest only to look at it."""
    return {reference: SecretError(f"no {reference.kind} is asked here") for reference in references}


@dataclass(frozen=True)
class Template:
    """A string with references to secrets in it; everything else in it was filled in already."""

    parts: tuple[str | SecretReference, ...]

    @property
    def references(self) -> tuple[SecretReference, ...]:
        return tuple(part for part in self.parts if isinstance(part, SecretReference))

    def filled(self, secrets: Mapping[SecretReference, str]) -> str:
        return "".join(part if isinstance(part, str) else secrets[part] for part in self.parts)
