"""One tool as a script sees it: a typed, keyword-only Python function, its source, and its return value."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import zip_longest
from typing import Any, Final

from manifests.json_value import Json, SchemaValidator, SoundNode
from manifests.kernels import JAVASCRIPT, PYTHON, KernelName
from manifests.names import former_of, function_names
from portal.base.plain_text import docstring, one_line
from portal.library.notation import (
    ANY,
    NONE,
    NOTATIONS,
    PYTHON_NOTATION,
    TYPESCRIPT,
    Notation,
    Type,
    union,
)
from portal.library.schema import CONDITIONS, MAX_DEPTH, arguments_schema, is_kind, sound_schema
from portal.library.schema_types import (
    MAX_FIELDS,
    SchemaTypes,
    flattened,
    parts,
    respelt,
    value_doc,
)
from portal.library.shape_text import full_text, indented, shape_text
from upstreams.tools import MISSING, Missing, RecordedTool

LONGEST_BRIEF: Final = 160
"""Characters of parameters in `Function.brief`. Further optional ones are shown as `…`."""

LONGEST_REQUIRED: Final = 2_000
"""Characters of required parameters in `Function.brief`."""

LONGEST_PARAMETER_DOC: Final = 500
"""Characters of a parameter's description, with hints and default."""

_LONGEST_LINE: Final = 100
_SHOWN_BY_DEFAULT: Final = ("bool", "float", "int", "str")
_MAX_STEPS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Parameter:
    """One keyword of a function. `annotation` is its type as a signature shows it: `list[str] | None`.

    An omitted optional parameter is not sent, and the upstream applies its default. If a property is required and has a
    default, the default is `sent`, because a call without it would violate the tool's schema. None is not sent for an
    optional parameter whose schema takes no null (`is_nullable`).
    """

    name: str
    wire_name: str
    annotation: str
    required: bool
    default: Json | Missing
    """The default, if it is short and simple."""
    doc: str
    is_nullable: bool
    sent: Json | Missing = MISSING

    def doc_in(self, notation: Notation) -> str:
        """`doc`, without the wire name where scripts use that."""
        known = _wire_doc(self.name, self.wire_name) if notation.has_wire_names else ""
        return self.doc.removeprefix(known).removeprefix("; ") if known else self.doc


@dataclass(frozen=True, slots=True)
class TypeScriptText:
    """What TypeScript's users read about a function, if it does not follow from the tool's schemas."""

    head: str
    documentation: str
    summary: str


@dataclass(frozen=True, eq=False)
class Returns:
    """What a function returns, as its tool declares it, or as its real results showed it."""

    annotation: str
    output_schema: Json | None = field(repr=False)
    """As the upstream sent it."""
    remark: str
    """The comment after the return type, unless that tells `seen_text`."""
    seen_text: Json | None
    """JSON Schema of the JSON that was observed in a text, which scripts still get as text."""
    observed: Json | None
    """JSON Schema of its real results, if they say more than its declaration."""
    is_observable: bool
    """Whether only real results show their shape: the tool declares nothing about them, or a text that may be JSON."""
    data_since: float
    """When the JSON in its declared text became data, in seconds since 1970, for runs that begin later; or infinite."""

    @cached_property
    def validator(self) -> SchemaValidator:
        """Validates the value that scripts get against the tool's declaration. Invalid results are passed on too."""
        return SchemaValidator(self.declared)

    @property
    def declared(self) -> SoundNode:
        """The schema that the tool declares for the value that scripts get."""
        return declared_result(self.output_schema)

    @cached_property
    def declares_text(self) -> bool:
        declared = self.declared
        return isinstance(declared, dict) and declared.get("type") == ["string"]

    def schema(self, reduce: Callable[[Json], SoundNode] = sound_schema) -> SoundNode:
        """The schema of what it returns, as declared or as observed."""
        if self.observed is not None:
            return sound_schema(self.observed)
        return declared_result(self.output_schema, reduce)

    def shape_in(self, kernel: KernelName) -> str:
        """The type in one line, in the kernel's language; "" if nothing is known."""
        shape = shape_text(self.schema(), NOTATIONS[kernel])
        return shape if shape_text(self.schema()) != "Any" else ""

    def remark_in(self, kernel: KernelName) -> str:
        """`remark`, or the shape of what was seen in the text, in the kernel's language."""
        if self.seen_text is None:
            return self.remark
        return f"JSON: {shape_text(sound_schema(self.seen_text), NOTATIONS[kernel])}"


@dataclass(frozen=True, eq=False)
class Function:
    """One tool as scripts see it. Text of the upstream appears only in docstrings, comments and literals, escaped."""

    namespace: str
    name: str
    upstream: str
    recorded: RecordedTool = field(repr=False)
    """The tool as the upstream sent it."""
    parameters: tuple[Parameter, ...]
    others: str
    """`**others: Any` if the tool takes arguments that its schema does not name, else ""."""
    returns: Returns
    summary: str
    is_deprecated: bool
    description: str
    mark: str
    """For the docstring: that a person has to approve its calls, or why it is not granted. Usually ""."""
    typescript: "TypeScriptText | None" = None
    """For a function of `portal`, whose arguments are no object in TypeScript."""

    @cached_property
    def arguments(self) -> SchemaValidator:
        """Validates arguments. Built on the first call, as most functions are never called."""
        return SchemaValidator(arguments_schema(self.recorded.input_schema))

    @property
    def tool(self) -> str:
        return self.recorded.name

    @cached_property
    def by_keyword(self) -> Mapping[str, Parameter]:
        """Parameters by every keyword that scripts may use: Python names, wire names and former names."""
        former = {former_of(parameter.name): parameter for parameter in self.parameters}
        own = {parameter.name: parameter for parameter in self.parameters}
        return former | {parameter.wire_name: parameter for parameter in self.parameters} | own

    @property
    def qualified(self) -> str:
        """The name as a script writes it: `tickets.create_issue`."""
        return f"{self.namespace}.{self.name}"

    @cached_property
    def brief(self) -> str:
        """One line, with types in place: `git.git_log(repo_path: str, max_count=10, start?: str) -> list[str]`."""
        return self._brief(PYTHON_NOTATION)

    @cached_property
    def _typescript_brief(self) -> str:
        return self.typescript.head if self.typescript else self._brief(TYPESCRIPT)

    def brief_in(self, kernel: KernelName) -> str:
        """One line in a kernel's language: `git.git_log({repo_path: string, max_count = 10}): Promise<string[]>`."""
        return self.brief if kernel == PYTHON else self._typescript_brief

    def summary_in(self, kernel: KernelName) -> str:
        return self.typescript.summary if kernel == JAVASCRIPT and self.typescript else self.summary

    def _brief(self, notation: Notation) -> str:
        whole = root_object(arguments_schema(self.recorded.input_schema))
        nodes, shown, left = whole.get("properties", {}), [], LONGEST_BRIEF
        for each in self.parameters:
            shape = shape_text(nodes.get(each.wire_name, True), notation)
            shown.append(lean_parameter(each, shape, notation))
            left -= len(shown[-1]) + 2
            if left < (LONGEST_BRIEF - LONGEST_REQUIRED if each.required else 0):
                shown[-1] = "…"
                break
        if self.others:
            shown.append(notation.others(self.others.partition(":")[0], notation.text(ANY)))
        result = shape_text(self.returns.schema(), notation)
        return notation.head(self.qualified, ", ".join(shown), result)

    def full(self, told: set[str], depth: int = MAX_DEPTH, kernel: KernelName = PYTHON) -> str:
        """All of the brief, with comments and documentation. For `told` and the `depth` of the result see `full_text`.

        Below 0, the result is `Any`.
        """
        notation = NOTATIONS[kernel]
        if kernel == JAVASCRIPT and self.typescript:
            return notation.documented(self.typescript.head, self.typescript.documentation)
        whole = root_object(arguments_schema(self.recorded.input_schema))
        nodes = whole.get("properties", {})
        shapes = (
            full_text(nodes.get(each.wire_name, True), told, notation=notation) for each in self.parameters
        )
        shown = [*map(partial(lean_parameter, notation=notation), self.parameters, shapes)]
        docs = [notation.comment(each.doc_in(notation), LONGEST_PARAMETER_DOC) for each in self.parameters]
        if self.others:
            shape = shape_text(whole.get("additionalProperties", True), notation)
            shown.append(notation.others(self.others.partition(":")[0], shape))
        arguments = ", ".join(shown)
        if any(docs) or "\n" in arguments:
            rows = (f"{text},{doc}" for text, doc in zip_longest(shown, docs, fillvalue=""))
            arguments = "".join(["\n", *map(indented, rows)])
        returns = (
            full_text(self.returns.schema(), told, depth, notation) if depth >= 0 else notation.text(ANY)
        )
        head = notation.head(self.qualified, arguments, returns) + self._comments(kernel)
        return notation.documented(head, self.documentation)

    def module_definition(self, hidden: Mapping[str, str]) -> str:
        """The source in its stub module, on one line or with one line per parameter. `hidden` words are `respelt`.

        Here the types include None for an optional argument that is not sent. A checker must know that calls accept it.
        Elsewhere it is omitted, which saves a model tokens.
        """
        texts = [_parameter_text(each, hidden) for each in self.parameters]
        others, returns = respelt(self.others, hidden), respelt(self.returns.annotation, hidden)
        arguments = [*filter(None, ["*" if texts else "", *texts, others])]
        head = f"async def {self.name}({', '.join(arguments)}) -> {returns}:"
        if len(head) > _LONGEST_LINE and arguments:
            inner = "".join(f"    {each},\n" for each in arguments)
            head = f"async def {self.name}(\n{inner}) -> {returns}:"
        docs = [f"    {each.name}: {each.doc}" for each in self.parameters if each.doc]
        body = self.documentation + ("\n".join(["", "", "Args:", *docs]) if docs else "")
        if not body:
            return f"{head} ...{self._comments(PYTHON)}"
        return f"{head}{self._comments(PYTHON)}\n{docstring(body.strip(), indent='    ')}"

    @property
    def documentation(self) -> str:
        return f"{self.mark}\n\n{self.description}".strip()

    def _comments(self, kernel: KernelName) -> str:
        notation = NOTATIONS[kernel]
        return notation.comment(_wire_doc(self.name, self.tool)) + notation.comment(
            self.returns.remark_in(kernel)
        )


def parameters(root: SoundNode, types: SchemaTypes) -> tuple[tuple[Parameter, ...], str]:
    """The keywords for a tool's arguments, required ones first, and the source for further keywords.

    Further keywords are allowed if the schema names and forbids none, declares some for some calls only, or declares
    too many.
    """
    whole = root_object(root)
    required = dict.fromkeys(whole.get("required", ()), True)
    properties: dict[str, SoundNode] = {**required, **whole.get("properties", {})}
    shown = sorted(properties, key=lambda key: key not in required)[:MAX_FIELDS]
    names = function_names(list(properties))
    named = [_parameter(names[key], key, properties[key], types, key in required) for key in shown]
    named.sort(key=lambda parameter: not parameter.required)
    others = ANY if len(properties) > len(shown) else _others(root, whole, types)
    if others is None:
        return tuple(named), ""
    taken = {each.name: each for each in named}
    name = "others".ljust(len(max(taken, key=len)) + 1, "_") if "others" in taken else "others"
    return tuple(named), f"**{name}: {types.notation.text(others)}"


def admits(node: SoundNode, value: Json) -> bool:
    """Whether a value fits a schema, as far as _MAX_STEPS steps show."""
    if not isinstance(node, dict) or ("type" in node and not is_kind(value, node["type"])):
        return node is True
    return not SchemaValidator(node).validate(value, _MAX_STEPS, most=1).errors


def _parameter(name: str, key: str, node: SoundNode, types: SchemaTypes, is_required: bool) -> Parameter:
    type_ = types.property_type(key, node)
    default = node.get("default", MISSING) if isinstance(node, dict) else MISSING
    doc = "; ".join(filter(None, (_wire_doc(name, key), value_doc(_described(node)))))
    fits, shown, sent = default is not MISSING and admits(node, default), MISSING, MISSING
    if default is not MISSING and (fits or not is_required):
        sent, is_required = default if is_required else MISSING, False
        type_ = union([type_, NONE]) if default is None else type_
        if (fits or default is None) and types.notation.default(default):
            shown = default
        else:
            doc = f"{doc} Default: {one_line(json.dumps(default, ensure_ascii=False), 60)}".strip()
    annotation = types.notation.text(type_)
    return Parameter(name, key, annotation, is_required, shown, doc, admits(node, None), sent)


def _wire_doc(name: str, wire_name: str) -> str:
    return "" if name == wire_name else f'wire name "{one_line(wire_name, 60)}"'


def _described(node: SoundNode) -> SoundNode:
    """The schema, merged with its only non-null alternative or with the definition that it refers to."""
    if not isinstance(node, dict):
        return node
    members = [
        each for each in node.get("anyOf", ()) if isinstance(each, dict) and each.get("type") != ["null"]
    ]
    inner = node["$ref"].schema if "$ref" in node else members[0] if len(members) == 1 else True
    return {**inner, **node} if isinstance(inner, dict) else node


def root_object(root: SoundNode) -> dict[str, Any]:
    """A tool's schema as one object, with references followed and without the contents of alternatives."""
    if not isinstance(root, dict):
        return {}
    return flattened([root]) if "$ref" in root or "allOf" in root else root


def _others(root: SoundNode, whole: dict[str, Any], types: SchemaTypes) -> Type | None:
    other: SoundNode | None = whole.get("additionalProperties")
    if other is not None:
        return None if other is False else types.property_type("value", other)
    # Alternatives, `then` and the like declare properties for some calls only. Those may be given by name.
    conditions = {*CONDITIONS, "anyOf"}
    is_open = "properties" not in whole or any(conditions & each.keys() for each in parts([root]))
    return ANY if is_open else None


def lean_parameter(parameter: Parameter, shape: str, notation: Notation) -> str:
    """`title: str`, `limit=10`, `kind: 'a'|'b' = 'a'`; `state?: str` if no default is known but None."""
    name = notation.key(parameter.wire_name) if notation.has_wire_names else parameter.name
    if parameter.required:
        return f"{name}: {shape}"
    default = None if parameter.default is MISSING else notation.default(parameter.default)
    if parameter.default is None:
        return f"{name}?: {shape.removesuffix(f' | {notation.text(NONE)}')}"
    if default is None:
        return f"{name}?: {shape}"
    is_shown = shape in {notation.words.get(each, each) for each in _SHOWN_BY_DEFAULT}
    return f"{name}{notation.equals}{default}" if is_shown else f"{name}: {shape} = {default}"


def _parameter_text(parameter: Parameter, hidden: Mapping[str, str]) -> str:
    """`title: str` or `labels: list[str] | None = ...`."""
    annotation, shown = parameter.annotation, f"{parameter.name}: {respelt(parameter.annotation, hidden)}"
    if parameter.required:
        return shown
    takes_none = annotation in ("Any", "None") or annotation.endswith("| None")
    default = "..." if parameter.default is MISSING else PYTHON_NOTATION.default(parameter.default)
    return f"{shown}{'' if takes_none else ' | None'} = {default}"


RESULT: Final = "result"


def is_wrapper(output_schema: Json) -> bool:
    """Whether a declared result is `{"result": X}`, as FastMCP and others wrap results that are not objects."""
    if not isinstance(output_schema, dict) or output_schema.get("type", "object") != "object":
        return False
    properties = output_schema.get("properties")
    if not isinstance(properties, dict) or list(properties) != [RESULT]:
        return False
    return output_schema.get("x-fastmcp-wrap-result") is True or output_schema.get("required") == [RESULT]


def declared_result(
    output_schema: Json | None, reduce: Callable[[Json], SoundNode] = sound_schema
) -> SoundNode:
    """The schema that a tool declares for the value that scripts get."""
    root = reduce(True if output_schema is None else output_schema)
    if not is_wrapper(output_schema) or not isinstance(root, dict):
        return root
    # The reduction may have moved it or left it out: beside `$ref` or `nullable`, or in a contradiction.
    wrapped: SoundNode = root.get("properties", {}).get(RESULT, True)
    return wrapped


def data_in(text: str) -> Json:
    """The JSON value of a text; None if it is not valid JSON (or has NaN, too large numbers or too deep nesting)."""
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError):
        return None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("the number exceeds a double")
    return number
