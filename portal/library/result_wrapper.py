"""The `{"result": X}` that FastMCP and its like put around a result that is no object."""

from dataclasses import replace
from typing import Final

from manifests.json_value import Json
from portal.library.schema.sound_schema import SoundSchema, sound_schema

WRAPPED: Final = "result"


def is_wrapper(output_schema: Json) -> bool:
    """Whether a declared result is nothing but a wrapper: marked as one, or one required `result`."""
    if not isinstance(output_schema, dict) or output_schema.get("type", "object") != "object":
        return False
    properties = output_schema.get("properties")
    if not isinstance(properties, dict) or list(properties) != [WRAPPED]:
        return False
    return output_schema.get("x-fastmcp-wrap-result") is True or output_schema.get("required") == [WRAPPED]


def declared_result(output_schema: Json | None) -> SoundSchema:
    """What a tool declares about the value that scripts get."""
    schema = sound_schema(True if output_schema is None else output_schema)
    if not is_wrapper(output_schema) or not isinstance(schema.root, dict):
        return schema
    return replace(schema, root=schema.root["properties"][WRAPPED])


def unwrapped(value: Json) -> Json:
    """A wrapped value without its wrapper; any other value as it is."""
    return value[WRAPPED] if isinstance(value, dict) and list(value) == [WRAPPED] else value
