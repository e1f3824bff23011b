"""A tool's input schema to the keywords of its function."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from manifests.json_value import Json
from manifests.names import parameter_names
from portal.library.function import NO_DEFAULT, NoDefault, Parameter
from portal.library.literals import default_text
from portal.library.plain_text import one_line
from portal.library.schema.hints import value_doc
from portal.library.schema.merging import merged
from portal.library.schema.sound_schema import SoundNode, SoundSchema
from portal.library.schema.violations import admits
from portal.library.schema_types import SchemaTypes
from portal.library.type_expressions import ANY, NONE, Type, takes_default, union

MAX_PARAMETERS: Final = 256
"""Keywords of one function; those beyond are taken by their wire name, untyped."""

_MOST_PARTS: Final = 1_000
_LONGEST_DEFAULT_DOC: Final = 60
_OMITTED: Final = "..."


@dataclass(frozen=True, slots=True)
class Parameters:
    """A function's keywords, the required ones first; `others` is the type of keywords beyond them."""

    named: tuple[Parameter, ...]
    others: Type | None


def parameters(schema: SoundSchema, types: SchemaTypes) -> Parameters:
    """The keywords for a tool's arguments; a schema that names none, and forbids none, takes any."""
    root = _root_object(schema)
    required = dict.fromkeys(root.get("required", ()), True)
    properties: dict[str, SoundNode] = {**required, **root.get("properties", {})}
    shown = sorted(properties, key=lambda key: key not in required)[:MAX_PARAMETERS]
    names = parameter_names(list(properties))
    named = [
        _parameter(
            schema,
            names[key],
            key,
            properties[key],
            types.property_type(key, properties[key]),
            key in required,
        )
        for key in shown
    ]
    named.sort(key=lambda parameter: not parameter.required)
    return Parameters(tuple(named), ANY if len(properties) > len(shown) else _others(root, types))


def _parameter(
    schema: SoundSchema, name: str, key: str, node: SoundNode, type_: Type, is_required: bool
) -> Parameter:
    default: Json | NoDefault = node.get("default", NO_DEFAULT) if isinstance(node, dict) else NO_DEFAULT
    parameter = Parameter(
        name=name,
        wire_name=key,
        type=type_,
        required=is_required,
        default=default,
        default_source="" if is_required else _OMITTED,
        doc=value_doc(_described(schema, node)),
        is_nullable=node is True or admits(schema, node, None),
    )
    return parameter if default is NO_DEFAULT else _with_default(parameter, schema, node)


def _with_default(parameter: Parameter, schema: SoundSchema, node: SoundNode) -> Parameter:
    """Show the declared default; a required property gets it sent, if its own schema takes it."""
    default = parameter.default
    if parameter.required:
        if not admits(schema, node, default):
            return parameter
        parameter = replace(parameter, required=False, is_default_sent=True)
    type_ = union([parameter.type, NONE]) if default is None else parameter.type
    source = default_text(default)
    if source is not None and takes_default(type_, default):
        return replace(parameter, type=type_, default_source=source)
    doc = f"{parameter.doc} Default: {_default_doc(default)}".strip()
    return replace(parameter, default_source=_OMITTED, doc=doc)


def _default_doc(default: Json) -> str:
    return one_line(json.dumps(default, ensure_ascii=False), _LONGEST_DEFAULT_DOC)


def _described(schema: SoundSchema, node: SoundNode) -> SoundNode:
    """The schema with what its only real alternative, or the definition it refers to, says about it."""
    if not isinstance(node, dict):
        return node
    inner: SoundNode = True
    if "$ref" in node:
        inner = schema.definitions[node["$ref"]]
    elif "anyOf" in node:
        members = [
            member for member in node["anyOf"] if isinstance(member, dict) and member.get("type") != ["null"]
        ]
        inner = members[0] if len(members) == 1 else True
    return {**inner, **node} if isinstance(inner, dict) else node


def _root_object(schema: SoundSchema) -> dict[str, Any]:
    """The arguments' schema as one object: references followed, and with what any alternative, or case, may have."""
    root = schema.root
    if not isinstance(root, dict):
        return {}
    if "$ref" in root or "allOf" in root:
        root = merged(schema, {"allOf": [root]})
    alternatives = [
        merged(schema, {"allOf": [member]} if isinstance(member, dict) else {})
        for member in root.get("anyOf", ())
        if member is not False
    ]
    properties = {**_said_by(alternatives), **root.get("properties", {})}
    if not properties:
        return root
    if root.get("additionalProperties") is not False:
        said = _said_by(_cases(schema, schema.root))
        properties |= {key: node for key, node in said.items() if node is not False and key not in properties}
    return {**root, "properties": properties, "required": [*root.get("required", ()), *_in_all(alternatives)]}


def _said_by(schemas: Iterable[dict[str, Any]]) -> dict[str, SoundNode]:
    """The properties of all of these; what several have is what any of them says."""
    said: dict[str, list[SoundNode]] = {}
    for schema in schemas:
        for key, node in schema.get("properties", {}).items():
            nodes = said.setdefault(key, [])
            if node not in nodes:
                nodes.append(node)
    return {key: nodes[0] if len(nodes) == 1 else {"anyOf": nodes} for key, nodes in said.items()}


def _cases(schema: SoundSchema, root: SoundNode) -> Iterator[dict[str, Any]]:
    """What holds of some arguments only, wherever that is said: as `then`, as `else`, or where another one is given."""
    todo = [(root, False)]
    for _ in range(_MOST_PARTS):
        node, is_case = todo.pop() if todo else (True, False)
        if isinstance(node, dict):
            if is_case:
                yield node
            references = [schema.definitions[node["$ref"]]] if "$ref" in node else []
            parts = [*references, *node.get("allOf", ()), *node.get("anyOf", ())]
            cases = [*node.get("cases", ()), *node.get("dependentSchemas", {}).values()]
            todo += [*((part, is_case) for part in parts), *((case, True) for case in cases)]


def _in_all(alternatives: list[dict[str, Any]]) -> list[str]:
    """What each alternative requires, in the order of the first one."""
    first = alternatives[0].get("required", ()) if alternatives else ()
    return [key for key in first if all(key in each.get("required", ()) for each in alternatives)]


def _others(root: dict[str, Any], types: SchemaTypes) -> Type | None:
    other: SoundNode | None = root.get("additionalProperties", root.get("patternValues"))
    if other is None:
        return None if "properties" in root else ANY
    return None if other is False else types.property_type("value", other)
