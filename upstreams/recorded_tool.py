"""A tool of an upstream, as it was sent."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

from manifests.json_value import Json


@dataclass(frozen=True)
class RecordedTool:
    """One tool as listed by its upstream: raw wire JSON, nothing interpreted.

    `input_schema` is always a dict, but it may be any dict: `{}`, without `type`, or with keywords that
    are no JSON Schema. `output_schema` is a dict or None. `name` is 1 to 200 characters of anything.
    """

    name: str
    description: str
    input_schema: Json
    output_schema: Json | None
    annotations: dict[str, Json]
    title: str | None
    examples: tuple[Json, ...] = ()
    """`inputExamples` of the tool itself: objects of arguments, as far as the upstream kept to that."""

    @cached_property
    def digest(self) -> str | None:
        """A hash of all that a function is made of; None if a schema nests too deep to be written."""
        parts = [
            self.name,
            self.description,
            self.title,
            self.input_schema,
            self.output_schema,
            self.annotations,
            self.examples,
        ]
        try:
            return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        except (RecursionError, TypeError, ValueError):
            return None
