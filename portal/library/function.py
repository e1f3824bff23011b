"""What one tool is to a script: a typed, keyword-only Python function."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Final

from manifests.json_value import Json
from manifests.names import parameter_names
from manifests.schema_validation import SchemaValidator, SoundNode
from manifests.tool_rules import Hints
from portal.library.plain_text import default_text, literal_text, one_line
from portal.library.results import declared_result
from portal.library.schema import CONDITIONS, SoundSchema, arguments_schema, is_kind
from portal.library.schema_types import SchemaTypes, merged, parts, value_doc
from portal.library.stub_types import ANY, NONE, StubTypes, Type, union
from upstreams.recorded_tool import RecordedTool

MAX_PARAMETERS: Final = 256
"""Keywords of one function; those beyond are taken by their wire name, untyped."""

_MAX_STEPS: Final = 1_000


class NoDefault(Enum):
    """The type of `NO_DEFAULT`."""

    NO_DEFAULT = "no default"


NO_DEFAULT: Final = NoDefault.NO_DEFAULT
"""The schema declares no default; None would be one."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One keyword of a function; `annotation` is its type as a signature shows it, `list[str] | None`.

    An optional parameter that a script leaves out is not sent: the upstream applies its own default, and
    `default` only shows it. The one exception is a property that is both required and has a default; there
    the default is sent (`is_default_sent`), because without it the call would break the tool's own schema.
    None for an optional parameter whose schema does not take null (`is_nullable`) means: not sent.
    """

    name: str
    wire_name: str
    annotation: str
    required: bool
    default: Json | NoDefault
    default_source: str
    """What stands behind `=` in a signature: the default if it is short and simple, `...`, or "" if required."""
    doc: str
    is_nullable: bool = False
    is_default_sent: bool = False


@dataclass(frozen=True, eq=False)
class Function:
    """One tool as scripts see it. `signature`, `stub` and `summary` are safe to show: no text of the
    upstream stands anywhere but in docstrings, comments and string literals, escaped.

    `signature` is one line, `async def tickets.create_issue(*, title: str, ...) -> Issue`; `stub` is the
    function's part of its module: the types it needs, and the definition with its docstring.
    """

    namespace: str
    name: str
    upstream: str
    tool: str
    parameters: tuple[Parameter, ...]
    returns: str
    summary: str
    description: str
    signature: str
    types: tuple[str, ...]
    """The definitions of the types that the signature needs, in an order in which they can stand."""
    definition: str
    """The function as it stands in a stub: parameters, return type, docstring."""
    recorded: RecordedTool = field(repr=False)
    """The tool as the upstream sent it."""
    wraps_result: bool
    takes_others: bool
    """Whether the tool takes arguments that its schema does not name."""
    is_observable: bool
    """Whether the tool says nothing about its result, so that it can only be learnt from real ones."""
    is_observed: bool
    """Whether `returns` is what real results were like. They may differ the next time."""

    @cached_property
    def arguments(self) -> SoundSchema:
        """The input schema as calls are checked against it; made when the first call is, of few of many functions."""
        return arguments_schema(self.recorded.input_schema)

    @cached_property
    def results(self) -> SoundSchema:
        """What the tool declares about the value that scripts get; results that are otherwise are passed on too."""
        return declared_result(self.recorded.output_schema)

    @property
    def input_schema(self) -> Json:
        return self.recorded.input_schema

    @property
    def output_schema(self) -> Json | None:
        return self.recorded.output_schema

    @property
    def digest(self) -> str | None:
        """Of the tool's definition; None if it cannot be digested."""
        return self.recorded.digest

    @cached_property
    def hints(self) -> Hints:
        """What the tool declares of itself."""
        return Hints.of(self.recorded.annotations)

    @cached_property
    def by_keyword(self) -> Mapping[str, Parameter]:
        """Parameters by the keywords that scripts may use: their own names, and wire names beside them."""
        own = {parameter.name: parameter for parameter in self.parameters}
        return {parameter.wire_name: parameter for parameter in self.parameters} | own

    @property
    def qualified(self) -> str:
        """What a script writes: `tickets.create_issue`."""
        return f"{self.namespace}.{self.name}"

    @property
    def stub(self) -> str:
        """The function's part of its module: the types it needs, and its definition."""
        return "\n\n".join([*self.types, self.definition])


def parameters(
    schema: SoundSchema, types: SchemaTypes, spelling: StubTypes
) -> tuple[tuple[Parameter, ...], str | None]:
    """The keywords for a tool's arguments, the required ones first, and the type of keywords beyond them, if there are.

    A schema that names none, and forbids none, takes any; so does one that declares some for some calls only.
    """
    root = _root_object(schema.root)
    required = dict.fromkeys(root.get("required", ()), True)
    properties: dict[str, SoundNode] = {**required, **root.get("properties", {})}
    shown = sorted(properties, key=lambda key: key not in required)[:MAX_PARAMETERS]
    names = parameter_names(list(properties))
    named = []
    for key in shown:
        type_ = types.property_type(key, properties[key])
        named.append(
            _parameter(names[key], key, properties[key], type_, spelling, is_required=key in required)
        )
    named.sort(key=lambda parameter: not parameter.required)
    others = ANY if len(properties) > len(shown) else _others(schema, root, types)
    return tuple(named), None if others is None else spelling.text(others)


def admits(node: SoundNode, value: Json) -> bool:
    """Whether a value fits a schema, as far as a short look tells."""
    if not isinstance(node, dict) or ("type" in node and not is_kind(value, node["type"])):
        return node is True
    return not SchemaValidator(node).look_at(value, _MAX_STEPS, most=1).errors


def _parameter(
    name: str, key: str, node: SoundNode, type_: Type, spelling: StubTypes, *, is_required: bool
) -> Parameter:
    default = node.get("default", NO_DEFAULT) if isinstance(node, dict) else NO_DEFAULT
    source, doc, is_default_sent = "" if is_required else "...", value_doc(_described(node)), False
    if default is not NO_DEFAULT and (not is_required or admits(node, default)):
        is_default_sent, is_required = is_required, False
        type_ = union([type_, NONE]) if default is None else type_
        source = (default_text(default) if _takes_default(type_, spelling, default) else None) or "..."
        if source == "...":
            doc = f"{doc} Default: {one_line(json.dumps(default, ensure_ascii=False), 60)}".strip()
    annotation, is_nullable = spelling.text(type_), admits(node, None)
    return Parameter(name, key, annotation, is_required, default, source, doc, is_nullable, is_default_sent)


def _takes_default(type_: Type, spelling: StubTypes, default: Json) -> bool:
    """Whether a type checker takes the default, a scalar or an empty container, as one of the type."""
    word = "None" if default is None else spelling.word(type(default).__name__)
    if isinstance(default, list | dict):
        return type_ == ANY or any(each.startswith(f"{word}[") for each in type_)
    exact = "" if isinstance(default, float) else f"={literal_text(default)}"
    fitting = {"Any", word, exact, *([spelling.word("float")] if type(default) is int else [])}
    return not fitting.isdisjoint(type_)


def _described(node: SoundNode) -> SoundNode:
    """The schema with what its only real alternative, or the definition it refers to, says about it."""
    if not isinstance(node, dict):
        return node
    inner: SoundNode = True
    if "$ref" in node:
        inner = node["$ref"].schema
    elif "anyOf" in node:
        members = [each for each in node["anyOf"] if isinstance(each, dict) and each.get("type") != ["null"]]
        inner = members[0] if len(members) == 1 else True
    return {**inner, **node} if isinstance(inner, dict) else node


def _root_object(root: SoundNode) -> dict[str, Any]:
    """The arguments' schema as one object: references followed, and with what any alternative may have."""
    if not isinstance(root, dict):
        return {}
    if "$ref" in root or "allOf" in root:
        root = merged({"allOf": [root]})
    members = [each for each in root.get("anyOf", ()) if each is not False]
    alternatives = [merged({"allOf": [each]} if isinstance(each, dict) else {}) for each in members]
    if not any("properties" in each for each in alternatives):
        return root
    said: dict[str, list[SoundNode]] = {}
    for alternative in alternatives:
        for key, node in alternative.get("properties", {}).items():
            said.setdefault(key, []).extend([] if node in said.get(key, ()) else [node])
    properties = {key: nodes[0] if len(nodes) == 1 else {"anyOf": nodes} for key, nodes in said.items()}
    shared = [
        key
        for key in alternatives[0].get("required", ())
        if all(key in each.get("required", ()) for each in alternatives)
    ]
    return {
        **root,
        "properties": {**properties, **root.get("properties", {})},
        "required": [*root.get("required", ()), *shared],
    }


def _others(schema: SoundSchema, root: dict[str, Any], types: SchemaTypes) -> Type | None:
    other: SoundNode | None = root.get("additionalProperties", root.get("patternValues"))
    if other is None:
        # What `then`, `else` and the like declare is for some arguments only, and may be given by its name.
        is_open = "properties" not in root or any(
            not each.keys().isdisjoint(CONDITIONS) for each in parts([schema.root])
        )
        return ANY if is_open else None
    return None if other is False else types.property_type("value", other)
