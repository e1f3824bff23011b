"""A tool of an upstream, as it was sent."""

from dataclasses import dataclass

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
