"""What one tool of an upstream, or the upstream's instructions, were when the operator accepted them."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from manifests.json_value import Json


@dataclass(frozen=True)
class Pin:
    """`tool` is the tool's own name, None for the upstream's instructions, whose text is the `description` then.

    `definition` is the rest of what a tool says of itself, as it was sent: title, inputSchema, outputSchema,
    annotations and inputExamples.
    """

    upstream: str
    tool: str | None
    description: str
    definition: Mapping[str, Json] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """`files.read_file`, or `files` for the instructions."""
        return self.upstream if self.tool is None else f"{self.upstream}.{self.tool}"

    @cached_property
    def digest(self) -> str | None:
        """The hash of everything in it; None if it cannot be written, because it nests too deep."""
        whole = {
            "upstream": self.upstream,
            "tool": self.tool,
            "description": self.description,
            "definition": self.definition,
        }
        try:
            return hashlib.sha256(_canonical(whole).encode()).hexdigest()
        except (RecursionError, TypeError, ValueError):
            return None

    @property
    def line(self) -> str | None:
        """How it stands in the lockfile; None if it cannot be written.

        ASCII, so that nothing in it is hidden from whoever reads a difference, and always the same for the same pin.
        """
        if self.digest is None:
            return None
        head = {"upstream": self.upstream, "tool": self.tool, "sha256": self.digest}
        head |= {"description": self.description}
        return f'{json.dumps(head)[:-1]}, "definition": {_canonical(self.definition)}}}'

    def is_same(self, other: "Pin") -> bool:
        return self.digest is not None and self.digest == other.digest


def _canonical(value: Json) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
