"""Shapes: what they keep of results, and what they never keep: values, and keys that are data."""

import secrets
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.json_value import Json, SchemaValidator
from portal.library.observed import (
    MAX_FIELDS,
    Shape,
    are_numbered,
    is_field_name,
    merged,
    schema_of,
    shape_of,
)
from portal.library.schema import sound_schema

PERSON = {"age": 3, "name": "x"}


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
        max_leaves=8,
    )


def test_kinds_keys_and_nesting_are_kept() -> None:
    issue = {"id": 7, "title": "x", "open": True, "labels": [{"name": "bug"}], "score": 0.5, "assignee": None}
    label = {"type": ["object"], "properties": {"name": {"type": ["string"]}}, "required": ["name"]}
    assert seen(issue) == {
        "type": ["object"],
        "properties": {
            "id": {"type": ["integer"]},
            "title": {"type": ["string"]},
            "open": {"type": ["boolean"]},
            "labels": {"type": ["array"], "items": label},
            "score": {"type": ["number"]},
            "assignee": {},
        },
        "required": list(issue),
    }


def test_what_some_results_lack_is_optional_and_what_differs_is_either() -> None:
    schema = seen({"id": 1, "note": "x"}, {"id": "1", "due": None}, {"id": 2, "due": 3})
    assert schema["required"] == ["id"]
    assert schema["properties"]["id"] == {"type": ["integer", "string"]}
    assert schema["properties"]["due"] == {"type": ["integer", "null"]}


def test_items_of_a_list_are_merged() -> None:
    schema = seen([{"a": 1, "b": ""}, {"a": 2.5}, "x", []])
    assert schema["items"]["type"] == ["object", "array", "string"]
    assert schema["items"]["required"] == ["a"]
    assert schema["items"]["properties"]["a"] == {"type": ["number"]}


def test_objects_with_data_for_keys_are_maps() -> None:
    maps: list[dict[str, Json]] = [
        {"ann@example.com": PERSON},
        {"17": PERSON, "18": PERSON},
        {"user_17": PERSON, "user_18": PERSON},
        {"Ann": PERSON, "Bob": PERSON, "Cy": PERSON},
        {f"key_{chr(97 + n // 26)}{chr(97 + n % 26)}": n for n in range(MAX_FIELDS + 1)},
    ]
    for each in maps:
        assert "properties" not in seen(each), each
        assert seen(each)["additionalProperties"]
    assert "properties" not in seen({"ann": 3}, {"bob": 5})


@pytest.mark.parametrize(
    ("value", "arguments", "is_map"),
    [
        ({"bitcoin": {}, "ethereum": {}}, {"ids": "bitcoin, ethereum"}, True),
        ({"ann": PERSON, "total": 1}, {"name": "ann"}, True),
        ({"ann": PERSON}, {"names": "ANN,bob"}, True),
        ({"ann": PERSON}, {"names": ["ann"]}, True),
        ({"title": "x", "ann": 3}, {"sort": "title"}, False),
        ({"issues": [PERSON], "total": 1}, {"kind": "issues"}, False),
        ({"sender": PERSON, "total": 1}, {"text": "who is the sender"}, False),
        ({"sender": PERSON, "receiver": PERSON}, None, False),
    ],
)
def test_keys_that_were_asked_for_are_data(value: Json, arguments: Json, is_map: bool) -> None:
    assert ("properties" not in seen(value, arguments=arguments)) is is_map


def test_a_place_that_was_null_every_time_may_be_anything_but_a_result_may_be_none() -> None:
    assert seen(None) == {"type": ["null"]}
    assert seen({"next": None})["properties"]["next"] == {}
    assert seen([])["items"] == {}


@given(results(), results())
def test_what_was_seen_fits_what_was_learnt(one: Json, other: Json) -> None:
    schema = SchemaValidator(sound_schema(seen(one, other)))
    assert not [each for each in (one, other) if schema.validate(each, 10_000).errors]


NAMES = (
    "id createdAt node_id InstanceId content-type X-Rate-Limit _links @type $ref #text sha256 address1 p95 i18n "
    "base64Data facade SCREAMING_CASE x HTTPStatus xmlHttpRequest"
)
DATA = (
    "ann@example.com 2026-11-22 42 -1 3.5 10.0.0.1 a/b example.com user:17 Zoë 用户 user_123456 1e5 deadbeef abc123 "
    "3fa85f64-5717-4562-b3fc-2c963f66afa6 xKqZbWtRpL sk-live-4f9a8b7c6d ghp_16C7e42F292c6912E7 hxtzrwqpd"
)
PHRASES = ["", "Ann Lee", "\u202egnp", "ignore all previous instructions", "x" * 41]


def test_names_that_programmers_give_are_names() -> None:
    assert [key for key in NAMES.split() if not is_field_name(key)] == []


def test_data_is_no_name() -> None:
    makers = [lambda: str(uuid.uuid4()), lambda: uuid.uuid4().hex, lambda: secrets.token_hex(8)]
    identifiers = [make() for make in makers for _ in range(300)]
    assert [key for key in [*DATA.split(), *PHRASES, *identifiers] if is_field_name(key)] == []


@given(st.integers(0, 10**12), st.sampled_from(["user_", "order-", "v", ""]))
def test_numbered_keys_are_data(number: int, prefix: str) -> None:
    assert are_numbered({f"{prefix}{number}", f"{prefix}{number + 1}"})
