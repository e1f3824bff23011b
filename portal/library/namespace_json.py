"""A compiled namespace as JSON, and back. What the upstream sent is not in it: that is there again the next time."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from manifests.json_value import Json
from portal.library.function import NO_DEFAULT, Function, Parameter
from portal.library.namespace import LibrarySource, Namespace, names_of_tools
from portal.library.plain_text import one_line
from portal.library.type_expressions import DictOf, ListOf, Literal, Named, Type, Union, Word
from upstreams.recorded_tool import RecordedTool

_TEXTS: Final = ("name", "tool", "returns", "summary", "description", "signature", "definition")
_CLAIMS: Final = ("wraps_result", "takes_others", "is_observable", "is_observed")
_CONTAINERS: Final[Mapping[str, type[ListOf] | type[DictOf]]] = {"list": ListOf, "dict": DictOf}


class NotANamespaceError(ValueError):
    """A JSON value is no namespace of that source."""


def namespace_json(namespace: Namespace) -> Json:
    """All of a namespace that took work to make."""
    return {
        "functions": [_function_json(function) for function in namespace.functions.values()],
        "module": namespace.module,
        "diagnostics": list(namespace.diagnostics),
        "observed_types": sorted(namespace.observed_types),
    }


def read_namespace(value: Json, source: LibrarySource, digest: str) -> Namespace:
    """The namespace that `namespace_json` made of the same source.

    Raises:
        NotANamespaceError: The value was made of another one, or is something else.
    """
    names = names_of_tools(source)
    tools = {names[tool.name]: tool for tool in source.tools}
    try:
        functions = {each["name"]: _function(each, source, tools) for each in value["functions"]}
        if functions.keys() != tools.keys() or not isinstance(value["module"], str):
            raise NotANamespaceError("other functions")
        return Namespace(
            name=source.namespace,
            upstream=source.upstream,
            summary=one_line(source.summary, 200),
            functions=MappingProxyType(functions),
            module=value["module"],
            diagnostics=tuple(map(_text, value["diagnostics"])),
            digest=digest,
            observed_types=frozenset(map(_text, value["observed_types"])),
        )
    except (KeyError, TypeError, RecursionError) as error:
        raise NotANamespaceError(f"not as it was written: {error}") from error


def _function_json(function: Function) -> Json:
    return {
        **{name: getattr(function, name) for name in (*_TEXTS, *_CLAIMS)},
        "parameters": [_parameter_json(each) for each in function.parameters],
        "types": list(function.types),
    }


def _function(value: dict[str, Json], source: LibrarySource, tools: Mapping[str, RecordedTool]) -> Function:
    tool = tools[value["name"]]
    if value["tool"] != tool.name:
        raise NotANamespaceError("another tool")
    return Function(
        namespace=source.namespace,
        upstream=source.upstream,
        parameters=tuple(_parameter(each) for each in value["parameters"]),
        types=tuple(map(_text, value["types"])),
        recorded=tool,
        **_checked(value, _TEXTS, str),
        **_checked(value, _CLAIMS, bool),
    )


def _parameter_json(parameter: Parameter) -> Json:
    default = [] if parameter.default is NO_DEFAULT else [parameter.default]
    return [
        *(parameter.name, parameter.wire_name, parameter.default_source, parameter.doc),
        *(parameter.required, parameter.is_nullable, parameter.is_default_sent),
        *(_type_json(parameter.type), default),
    ]


def _parameter(value: list[Json]) -> Parameter:
    name, wire_name, source, doc, required, is_nullable, is_default_sent, type_, default = value
    if not all(isinstance(each, str) for each in value[:4]) or not isinstance(default, list):
        raise NotANamespaceError("no parameter")
    return Parameter(
        name=name,
        wire_name=wire_name,
        type=_type(type_),
        required=required is True,
        default=default[0] if default else NO_DEFAULT,
        default_source=source,
        doc=doc,
        is_nullable=is_nullable is True,
        is_default_sent=is_default_sent is True,
    )


def _type_json(type_: Type) -> Json:
    match type_:
        case Word(word):
            return word
        case Named(name):
            return ["named", name]
        case Literal(sources):
            return ["literal", *sources]
        case ListOf(inner):
            return ["list", _type_json(inner)]
        case DictOf(inner):
            return ["dict", _type_json(inner)]
        case Union(members):
            return ["union", *map(_type_json, members)]


def _type(value: Json) -> Type:
    if isinstance(value, str):
        return Word(value)
    kind, *parts = value
    if kind in _CONTAINERS:
        return _CONTAINERS[kind](_type(parts[0]))
    if kind == "union":
        return Union(tuple(map(_type, parts)))
    if kind == "literal":
        return Literal(tuple(map(_text, parts)))
    if kind == "named":
        return Named(_text(parts[0]))
    raise NotANamespaceError("no type")


def _checked(value: dict[str, Json], names: tuple[str, ...], kind: type[Any]) -> dict[str, Any]:
    return dict(_parts(value, names, kind))


def _parts(value: dict[str, Json], names: tuple[str, ...], kind: type[Any]) -> Iterator[tuple[str, Any]]:
    for name in names:
        if not isinstance(value[name], kind):
            raise NotANamespaceError(f"{name} is something else")
        yield name, value[name]


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise NotANamespaceError("no text")
    return value
