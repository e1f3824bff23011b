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
