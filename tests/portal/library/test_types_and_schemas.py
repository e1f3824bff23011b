"""What a stub admits its schema admits, what the schema admits the stub admits, and calls carry it over unchanged."""

import json

from hypothesis import assume, given
from hypothesis import strategies as st

from manifests.json_value import Json
from portal.library.arguments import bind
from portal.library.function_draft import FunctionDraft, draft_function
from portal.library.value import script_value
from tests.depth import depth
from tests.portal.library.sample_tools import function, tool
from tests.portal.library.schema.drafts import VALIDATORS, is_valid, written_in
from tests.portal.library.schema.random_schemas import KEYS, json_values, schemas
from tests.portal.library.type_values import contains, definitions_of, values
from tests.upstreams.at_once import at_once
from upstreams.tool_result import ToolResult

DRAFTS = st.sampled_from(list(VALIDATORS))
NAMES = [
    "title",
    "from",
    "class",
    "cik-A",
    "a b",
    "a_b",
    "a-b",
    "__init__",
    "self",
    "list",
    "Any",
    "1st",
    "naïve",
]


def result_draft(schema: Json) -> FunctionDraft:
    """A tool that returns values of a schema, not compiled beyond its own types."""
    return draft_function("get", tool("get", None, schema))


def exact_schemas() -> st.SearchStrategy[Json]:
    """Schemas that say nothing which a type cannot say: no bounds, no tuples, no alternatives that exclude others."""
    names = st.sampled_from(["null", "boolean", "object", "array", "number", "string", "integer"])
    scalars = st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", '"""', "\u202e"]) | st.none()
    leaves = st.one_of(
        st.just({}),
        names.map(lambda name: {"type": name}),
        st.lists(names, min_size=1, max_size=3, unique=True).map(lambda several: {"type": several}),
        st.lists(scalars, min_size=1, max_size=3).map(lambda values: {"enum": values}),
        scalars.map(lambda value: {"const": value}),
        st.sampled_from(["#/$defs/Name", "#/$defs/Tree"]).map(lambda reference: {"$ref": reference}),
        st.just({"type": "string", "format": "date-time", "title": "When", "description": 'ends """ here'}),
    )
    tree = st.recursive(leaves, _exact_branches, max_leaves=8)
    name = st.recursive(leaves.filter(lambda leaf: "$ref" not in leaf), _exact_branches, max_leaves=3)
    return st.builds(_with_definitions, tree, name)


def _exact_branches(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    keys = st.sampled_from(NAMES)
    return st.one_of(
        st.builds(
            lambda properties, required, other: {
                "type": "object",
                "properties": properties,
                "required": [key for key in required if key in properties],
                **other,
            },
            st.dictionaries(keys, inner, max_size=3),
            st.lists(keys, max_size=2, unique=True),
            st.sampled_from([{}, {"additionalProperties": False}, {"title": "Issue"}, {"title": "dict"}]),
        ),
        inner.map(lambda value: {"type": "object", "additionalProperties": value}),
        inner.map(lambda item: {"type": "array", "items": item}),
        st.lists(inner, min_size=1, max_size=3).map(lambda members: {"anyOf": members}),
        inner.map(lambda only: {"allOf": [only]}),
    )


def _with_definitions(root: dict[str, Json], name: Json) -> Json:
    tree = {
        "type": "object",
        "properties": {
            "name": {"$ref": "#/$defs/Name"},
            "inner": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
        },
        "required": ["name"],
    }
    return {**root, "$defs": {"Name": name, "Tree": tree}}


def as_meant(node: Json) -> Json:
    """Arrays and objects said to be such: a stub takes `items` without `type` for an array, as its author did."""
    if isinstance(node, list):
        return [as_meant(each) for each in node]
    if not isinstance(node, dict):
        return node
    meant = {key: child if key in ("enum", "const") else as_meant(child) for key, child in node.items()}
    kinds = {
        "items": "array",
        "prefixItems": "array",
        "properties": "object",
        "additionalProperties": "object",
    }
    kind = next((kind for word, kind in kinds.items() if word in node), None)
    return {**meant, "type": kind} if kind and "type" not in node else meant


EXACT = exact_schemas()
ALL = schemas().map(as_meant) | EXACT
VALUES = json_values()


@given(st.data(), DRAFTS)
@depth(4)
def test_what_the_stub_admits_the_schema_admits(data: st.DataObject, draft: str) -> None:
    schema = written_in(draft, data.draw(EXACT))
    compiled = result_draft(schema)
    value = data.draw(values(compiled.returns, definitions_of(compiled)))
    assert is_valid(draft, schema, value)


@given(ALL, VALUES, DRAFTS)
@depth(4)
def test_what_the_schema_admits_the_stub_admits(plain: Json, value: Json, draft: str) -> None:
    schema = written_in(draft, plain)
    assume(is_valid(draft, schema, value))
    compiled = result_draft(schema)
    assert contains(compiled.returns, value, definitions_of(compiled))


@given(
    st.data(),
    st.dictionaries(st.sampled_from(NAMES) | KEYS | st.text(max_size=6), exact_schemas(), max_size=5),
)
@depth(3)
def test_a_call_carries_what_the_stub_admits_over_unchanged(
    data: st.DataObject, properties: dict[str, Json]
) -> None:
    definitions = {"Name": {"type": "string"}, "Tree": {"type": "object"}}
    inner = {
        key: {word: value for word, value in each.items() if word != "$defs"}
        for key, each in properties.items()
    }
    schema = {"type": "object", "properties": inner, "required": sorted(inner)[:2], "$defs": definitions}
    compiled = draft_function("put", tool("put", schema))
    called = function(schema, name="put")
    sent = {
        parameter.wire_name: data.draw(values(parameter.type, definitions_of(compiled)), label=parameter.name)
        for parameter in compiled.parameters
        if parameter.required or data.draw(st.booleans())
    }
    by_name = {parameter.wire_name: parameter.name for parameter in compiled.parameters}
    wire = bind(called, {by_name[key]: value for key, value in sent.items()}).wire
    left_out = {key for key in sent.keys() - wire.keys() if sent[key] is None}
    assert json.dumps(wire) == json.dumps({key: value for key, value in sent.items() if key not in left_out})
    assert is_valid("https://json-schema.org/draft/2020-12/schema", schema, wire)


@given(schemas(with_negations=True), VALUES, st.booleans())
@depth(2)
def test_a_result_is_never_rejected_and_never_changed(schema: Json, value: Json, is_structured: bool) -> None:
    text = [{"type": "text", "text": json.dumps(value)}]
    compiled = function(None, schema)
    answer = ToolResult(text, value, False) if is_structured else ToolResult(text, None, False)
    assert at_once(script_value(compiled, answer)) == (value if is_structured else None)
