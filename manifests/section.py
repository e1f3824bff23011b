"""What the sections of portal.yaml have in common."""

from pydantic import BaseModel, BeforeValidator, ConfigDict

from manifests.json_value import Json


def _empty_is_default(value: Json) -> Json:
    return {} if value is None else value


EMPTY_IS_DEFAULT = BeforeValidator(_empty_is_default)
"""A section with nothing in it (`upstreams:` and only comments below) keeps its defaults."""


class Section(BaseModel):
    """Strict, because `tool_calls: "20"` is more often a slip than a wish."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)
