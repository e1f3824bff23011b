"""What a tool declares of itself, as rules may ask for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

from manifests.json_value import Json

Annotation: TypeAlias = Literal["readonly", "destructive", "open_world"]


@dataclass(frozen=True, slots=True)
class Hints:
    """A tool's own word, and no more than that. What it does not declare, it does not have: the defaults of the
    specification would make every silent tool destructive.

    One that declares both that it only reads and that it destroys is taken for destructive, and so is one whose
    `destructiveHint` is no boolean.

    Source: MCP 2026-07-28, schema#toolannotations.
    """

    readonly: bool = False
    destructive: bool = False
    open_world: bool = False
    is_silent: bool = True
    """Whether it declares none of them, in either sense."""

    @classmethod
    def of(cls, annotations: Mapping[str, Json]) -> Self:
        """Read a tool's annotations; anything but true is no declaration that it is harmless or reaches others."""
        declared = annotations.get("destructiveHint")
        destructive = declared is not None and declared is not False  # not `in`: 0 equals False
        return cls(
            readonly=annotations.get("readOnlyHint") is True and not destructive,
            destructive=destructive,
            open_world=annotations.get("openWorldHint") is True,
            is_silent=not destructive and not any(isinstance(annotations.get(name), bool) for name in _NAMES),
        )

    def has(self, annotation: Annotation) -> bool:
        return bool(getattr(self, annotation))


_NAMES = ("readOnlyHint", "destructiveHint", "openWorldHint")

NO_HINTS = Hints()
