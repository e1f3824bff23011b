"""The JSON Schema of portal.yaml, for editors. `python -m manifests.json_schema` writes portal.schema.json anew.

It says of the file what the models say of it once `${NAME}` is filled in, so patterns let every reference pass.
Names that clash and variables that are missing are beyond it.

Source: JSON Schema draft-07, the one that editors' YAML plugins speak.
"""

import json
from importlib.resources import files
from pathlib import Path

from manifests.json_value import Json
from manifests.portal_manifest import PortalManifest

FILE = "portal.schema.json"


NULL = {"type": "null"}
REFERENCE = {"type": "string", "pattern": r"\$\{"}


def schema_text() -> str:
    """The schema as it ships."""
    return files("manifests").joinpath(FILE).read_text(encoding="utf-8")


def generated_schema() -> str:
    """The schema as the models have it now."""
    schema = PortalManifest.model_json_schema(ref_template="#/definitions/{model}")
    definitions = schema.pop("$defs")
    whole = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **_section(schema),
        "title": "portal.yaml",
        "definitions": {name: _section(definition) for name, definition in sorted(definitions.items())},
    }
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _section(schema: Json) -> Json:
    """One model's schema, in the words of draft-07 and of the loader."""
    properties = {key: _property(value) for key, value in schema["properties"].items()}
    return {**_plain(schema), "properties": properties}


def _property(schema: Json) -> Json:
    schema = _plain(schema)
    if "enum" in schema:
        # A reference may stand for one of the words.
        return {**_described(schema), "anyOf": [{"enum": schema["enum"]}, REFERENCE]}
    if "patternProperties" in schema:
        [(pattern, value)] = schema["patternProperties"].items()
        names = {**schema.get("propertyNames", {}), "pattern": pattern}
        mapping = {"type": "object", "propertyNames": names, "additionalProperties": value}
        return {**_described(schema), "anyOf": [mapping, NULL]}
    if "$ref" in schema:
        # Wrapped, because draft-07 sees nothing beside a $ref. Null: an empty section keeps its defaults.
        return {**_described(schema, "description"), "anyOf": [{"$ref": schema["$ref"]}, NULL]}
    return schema


def _plain(schema: Json) -> Json:
    return {key: value for key, value in schema.items() if key != "title"}


def _described(schema: Json, *keys: str) -> Json:
    return {key: schema[key] for key in keys or ("description", "default") if key in schema}


if __name__ == "__main__":
    Path(__file__).with_name(FILE).write_text(generated_schema(), encoding="utf-8")
