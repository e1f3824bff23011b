"""Shapes: what they keep of results, what they never keep, and that merging them comes to an end."""

from hypothesis import given
from hypothesis import strategies as st

from manifests.json_value import Json, SchemaValidator
from portal.library.observed import MAX_FIELDS, Shape, merged, schema_of, shape_of
from portal.library.schema import sound_schema
from tests.depth import depth

CANARY = "canary value"


def seen(*values: Json, arguments: Json = None) -> Json:
    """The schema of results that were seen one after the other."""
    shape = Shape()
    for value in values:
        shape = merged(shape, shape_of(value, arguments))
    return schema_of(shape)


def results() -> st.SearchStrategy[Json]:
    keys = st.sampled_from(["id", "title", "labels", "state", "ann@example.com"]) | st.text(max_size=12)
    scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    return st.recursive(
        scalars | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5),
        max_leaves=25,
    )


def test_kinds_keys_and_nesting_are_kept() -> None:
    issue = {"id": 7, "title": "x", "open": True, "labels": [{"name": "bug"}], "score": 0.5, "assignee": None}
    assert seen(issue) == {
        "type": ["object"],
        "properties": {
            "id": {"type": ["integer"]},
            "title": {"type": ["string"]},
            "open": {"type": ["boolean"]},
            "labels": {
                "type": ["array"],
                "items": {
                    "type": ["object"],
                    "properties": {"name": {"type": ["string"]}},
                    "required": ["name"],
                },
            },
            "score": {"type": ["number"]},
            "assignee": {},
        },
        "required": list(issue),
    }


def test_what_some_results_lack_is_optional_and_what_differs_is_either() -> None:
    schema = seen({"id": 1, "note": "x"}, {"id": "1", "due": None}, {"id": 2, "due": 3})
    assert schema["required"] == ["id"]
    assert schema["properties"]["id"] == {"type": ["string", "integer"]}
    assert schema["properties"]["due"] == {"type": ["integer", "null"]}


def test_items_of_a_list_are_merged() -> None:
    schema = seen([{"a": 1, "b": ""}, {"a": 2.5}, "x", []])
    assert schema["items"]["type"] == ["object", "array", "string"]
    assert schema["items"]["required"] == ["a"]
    assert schema["items"]["properties"]["a"] == {"type": ["number"]}


def test_objects_with_data_for_keys_are_maps() -> None:
    person = {"age": 3, "name": "x"}
    maps: list[dict[str, Json]] = [
        {"ann@example.com": person},
        {"17": person, "18": person},
        {"user_17": person, "user_18": person},
        {"Ann": person, "Bob": person, "Cy": person},
        {f"key_{chr(97 + n // 26)}{chr(97 + n % 26)}": n for n in range(MAX_FIELDS + 1)},
    ]
    for each in maps:
        assert "properties" not in seen(each), each
        assert seen(each)["additionalProperties"]
    assert "properties" not in seen({"ann": 3}, {"bob": 5})
    assert "properties" not in seen({"ann": person}, arguments={"names": ["ann"]})
    assert "properties" not in seen({"bitcoin": {}, "ethereum": {}}, arguments={"ids": "bitcoin, ethereum"})
    assert "properties" not in seen({"ann": person, "total": 1}, arguments={"name": "ann"})
    assert "properties" not in seen({"Ann": person}, arguments={"name": "ann"})
    assert "properties" not in seen({"ann": person}, arguments={"names": "ANN,bob"})
    assert "properties" in seen({"title": "x", "ann": 3}, arguments={"sort": "title"})
    assert "properties" in seen({"issues": [person], "total": 1}, arguments={"kind": "issues"})
    assert "properties" in seen({"sender": person, "total": 1}, arguments={"text": "who is the sender"})
    assert "properties" in seen({"sender": person, "receiver": person})


def test_a_place_that_was_null_every_time_may_be_anything_but_a_result_may_be_none() -> None:
    assert seen(None) == {"type": ["null"]}
    assert seen({"next": None})["properties"]["next"] == {}
    assert seen([])["items"] == {}


@given(results(), results())
@depth(2)
def test_what_was_seen_fits_what_was_learnt(one: Json, other: Json) -> None:
    schema = SchemaValidator(sound_schema(seen(one, other)))
    assert not [each for each in (one, other) if schema.validate(each, 10_000).errors]


def test_no_value_of_a_result_is_in_its_shape() -> None:
    value = {
        "text": CANARY,
        "list": [CANARY, {CANARY: CANARY}],
        "map": {"canary@value": 1},
        "deep": deep(CANARY, 30),
    }
    told = repr(shape_of(value)) + repr(schema_of(shape_of(value)))
    assert "canary" not in told
    assert "deep" in told


def deep(value: Json, levels: int) -> Json:
    for _ in range(levels):
        value = {"inner": [value]}
    return value
