"""Whatever schema a tool has, its function is valid Python and holds nothing but what it should."""

import ast

from hypothesis import given
from hypothesis import strategies as st

from manifests.json_value import Json
from portal.library.arguments import ArgumentError, bind
from tests.depth import depth
from tests.portal.library.nasty_tools import HOSTILE_TEXT
from tests.portal.library.sample_tools import function, library, tool
from tests.portal.library.schema.random_schemas import KEYS, json_values, schemas

WORDS = st.sampled_from(
    [
        *("type", "properties", "items", "anyOf", "allOf", "oneOf", "enum", "const", "required", "default"),
        *(
            "additionalProperties",
            "patternProperties",
            "prefixItems",
            "$ref",
            "$defs",
            "title",
            "description",
        ),
        *(
            "not",
            "nullable",
            "format",
            "minimum",
            "maxLength",
            "object",
            "string",
            "#",
            "#/properties/a",
            "a",
        ),
    ]
)
ALLOWED = (
    *(
        ast.ImportFrom,
        ast.alias,
        ast.ClassDef,
        ast.AnnAssign,
        ast.Assign,
        ast.AsyncFunctionDef,
        ast.arguments,
    ),
    *(ast.arg, ast.Name, ast.Constant, ast.Subscript, ast.Tuple, ast.BinOp, ast.BitOr, ast.Dict, ast.List),
    *(ast.Call, ast.keyword, ast.Expr, ast.Load, ast.Store, ast.Module, ast.UnaryOp, ast.USub),
)


def garbage() -> st.SearchStrategy[Json]:
    """JSON made of the words that schemas are made of, at any place."""
    scalars = WORDS | st.none() | st.booleans() | st.integers(-2, 2) | st.just(HOSTILE_TEXT)
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
        max_leaves=20,
    )


def assert_only_definitions(source: str) -> None:
    tree = ast.parse(source)
    assert all(isinstance(node, ALLOWED) for node in ast.walk(tree))
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert all(isinstance(call, ast.Name) and call.id.lstrip("_") == "TypedDict" for call in calls)


@given(garbage(), garbage(), st.text(max_size=40))
@depth(3)
def test_garbage_compiles_to_definitions_only(input_schema: Json, output_schema: Json, text: str) -> None:
    compiled = library(tool(text, input_schema, output_schema, text))
    assert_only_definitions(compiled.module("tickets"))
    [one] = compiled.functions.values()
    assert_only_definitions(one.stub)
    assert one.signature.isprintable()


@given(st.dictionaries(KEYS | st.text(max_size=5), schemas(with_negations=True), max_size=4), schemas())
@depth(2)
def test_valid_schemas_compile_without_notes(properties: dict[str, Json], output_schema: Json) -> None:
    compiled = library(tool("f", {"type": "object", "properties": properties}, output_schema))
    assert_only_definitions(compiled.module("tickets"))
    # The roots' own definitions are out of reach of schemas nested as properties, and some contradict themselves; all
    # else must be understood.
    known = ("leads nowhere", "is the type of none of the values", "names properties that are forbidden")
    assert all(any(words in note for words in known) for note in compiled.diagnostics)


@given(garbage(), st.dictionaries(WORDS, json_values(), max_size=3))
@depth(2)
def test_calls_are_carried_over_or_refused_but_never_crash(
    input_schema: Json, kwargs: dict[str, Json]
) -> None:
    try:
        wire = bind(function(input_schema), kwargs).wire
    except ArgumentError as refusal:
        assert str(refusal)
    else:
        assert all(value in wire.values() for value in kwargs.values() if value is not None)


@given(st.dictionaries(st.text(max_size=8), st.integers(), max_size=6))
def test_each_property_can_be_passed_whatever_the_names_are(values: dict[str, int]) -> None:
    compiled = function({"type": "object", "properties": {key: {"type": "integer"} for key in values}})
    by_name = {parameter.name: values[parameter.wire_name] for parameter in compiled.parameters}
    assert bind(compiled, by_name).wire == values
