"""Random JSON Schemas and values, small enough that a random value often fits."""

from hypothesis import strategies as st

from manifests.json_value import Json

KEYS = st.sampled_from(["a", "b", "from", "a-b", "list", "class"])


def json_values() -> st.SearchStrategy[Json]:
    return st.recursive(_scalars(), _containers, max_leaves=6)


def schemas(*, with_negations: bool = False) -> st.SearchStrategy[Json]:
    """Valid schemas of 2020-12 in which nothing recursive leads back to itself in place."""
    tree = st.recursive(_leaves(), lambda inner: _branches(inner, with_negations), max_leaves=6)
    return st.builds(lambda root, name: {**root, "$defs": {"Name": name}}, tree, _leaves())


def _scalars() -> st.SearchStrategy[Json]:
    texts = st.sampled_from(["", "a", "open", "\u202e", '"""', "long text"])
    return st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, 2.5]) | texts


def _containers(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)


def _leaves() -> st.SearchStrategy[Json]:
    names = st.sampled_from(["null", "boolean", "object", "array", "number", "string", "integer"])
    return st.one_of(
        st.just({}),
        st.builds(lambda name: {"type": name}, names),
        st.builds(lambda several: {"type": several}, st.lists(names, min_size=1, max_size=3, unique=True)),
        st.builds(lambda values: {"enum": values}, st.lists(_scalars(), min_size=1, max_size=3)),
        st.builds(lambda value: {"const": value}, _scalars()),
        st.builds(
            lambda least, most: {"minimum": least, "exclusiveMaximum": most},
            st.integers(-2, 2),
            st.integers(0, 3),
        ),
        st.builds(
            lambda least, most: {"minLength": least, "maxLength": most}, st.integers(0, 2), st.integers(0, 9)
        ),
        st.builds(
            lambda least, most: {"minItems": least, "maxItems": most}, st.integers(0, 1), st.integers(0, 2)
        ),
        st.builds(lambda least: {"minProperties": least, "type": "object"}, st.integers(0, 2)),
        st.just({"uniqueItems": True}),
        st.just({"multipleOf": 2}),
    )


def _branches(inner: st.SearchStrategy[Json], with_negations: bool) -> st.SearchStrategy[Json]:
    properties = st.dictionaries(KEYS, inner, max_size=3)
    required = st.lists(KEYS, max_size=2, unique=True)
    objects = st.builds(
        lambda known, needed, other: {"type": "object", "properties": known, "required": needed, **other},
        properties,
        required,
        st.sampled_from([{}, {"additionalProperties": False}])
        | inner.map(lambda node: {"additionalProperties": node}),
    )
    members = st.lists(inner | st.just({"$ref": "#/$defs/Name"}), min_size=1, max_size=3)
    kinds = [
        objects,
        st.builds(lambda item: {"type": "array", "items": item}, inner),
        st.builds(lambda first, rest: {"prefixItems": first, "items": rest}, members, inner | st.booleans()),
        st.builds(lambda item: {"contains": item}, inner),
        st.builds(lambda several: {"anyOf": several}, members),
        st.builds(lambda several: {"allOf": several}, members),
        st.builds(lambda name: {"propertyNames": name}, inner),
        st.builds(lambda needed: {"dependentRequired": {"a": needed}}, required),
        st.builds(lambda node: {"dependentSchemas": {"a": node}}, inner),
    ]
    if with_negations:
        kinds += [
            st.builds(lambda several: {"oneOf": several}, members),
            st.builds(lambda node: {"not": node}, inner),
            st.builds(lambda one, two, three: {"if": one, "then": two, "else": three}, inner, inner, inner),
            st.builds(lambda node: {"patternProperties": {"^a": node}}, inner),
            st.builds(lambda node: {"patternProperties": {"^a": node}, "additionalProperties": False}, inner),
            st.builds(lambda node: {"contains": node, "maxContains": 1}, inner),
            st.just({"pattern": "^a"}),
        ]
    return st.one_of(kinds)


def exact_schemas() -> st.SearchStrategy[Json]:
    """Schemas that say nothing which a type cannot say: no bounds, no tuples, no alternatives that exclude others."""
    names = st.sampled_from(["null", "boolean", "object", "array", "number", "string", "integer"])
    leaves = st.one_of(
        st.just({}),
        names.map(lambda name: {"type": name}),
        st.lists(names, min_size=1, max_size=3, unique=True).map(lambda several: {"type": several}),
        st.lists(_scalars().filter(_is_exact), min_size=1, max_size=3).map(lambda values: {"enum": values}),
        _scalars().filter(_is_exact).map(lambda value: {"const": value}),
        st.sampled_from(["#/$defs/Name", "#/$defs/Tree"]).map(lambda reference: {"$ref": reference}),
        st.just({"type": "string", "format": "date-time", "title": "When", "description": 'ends """ here'}),
    )
    tree = st.recursive(leaves, _exact_branches, max_leaves=8)
    name = st.recursive(leaves.filter(lambda leaf: "$ref" not in leaf), _exact_branches, max_leaves=3)
    return st.builds(_with_definitions, tree, name)


def _is_exact(value: Json) -> bool:
    return not isinstance(value, float)


def _exact_branches(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    keys = st.sampled_from(
        ["title", "from", "class", "cik-A", "a b", "a_b", "__init__", "list", "Any", "1st"]
    )
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
