"""Calls that are repaired before they are sent, and those that are not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.json_value import Json
from portal.library.arguments import ArgumentError, bind
from portal.library.function import Function
from portal.library.repairs import repaired
from tests.depth import depth
from tests.portal.library.sample_tools import arguments, function
from tests.portal.library.schema.random_schemas import KEYS, json_values, schemas

TEXT: Json = {"type": "string"}
ISSUE: Json = {"type": "object", "properties": {"title": TEXT, "body": TEXT}, "required": ["title"]}
LIST = function(
    arguments(
        ("repo",),
        repo=TEXT,
        limit={"type": "integer"},
        labels={"type": "array", "items": TEXT},
        filter={"type": "object", "properties": {"by": TEXT}},
        **{"class": TEXT},
    )
)
CREATE = function(arguments(("issue",), issue=ISSUE, dry={"type": "boolean"}))
NULLABLE = function(arguments((), issue={"anyOf": [ISSUE, {"type": "null"}]}))
COMMENT: Json = {"type": "object", "properties": {"body": TEXT}}
SEND = function(arguments(("to",), to=TEXT, text=TEXT, comment=COMMENT))
TWO_HOMES = function(arguments((), issue=ISSUE, draft=ISSUE))
OPEN = function({"type": "object", "properties": {"repo": TEXT}, "required": ["repo"]})


def wire(compiled: Function, kwargs: dict[str, Json]) -> Json:
    """What is sent; None if the call is refused."""
    with pytest.raises(ArgumentError):
        bind(compiled, kwargs)
    found = repaired(compiled, kwargs)
    return None if found is None else found.bound.wire


REPAIRED = [
    (LIST, {"repo": "a", "limit": "3"}, {"repo": "a", "limit": 3}),
    (LIST, {"repo": 5}, {"repo": "5"}),
    (LIST, {"repo": "a", "labels": "bug"}, {"repo": "a", "labels": ["bug"]}),
    (LIST, {"repo": "a", "filter": '{"by": "age"}'}, {"repo": "a", "filter": {"by": "age"}}),
    (LIST, {"repo": "a", "class_": 3, "limit": "4"}, {"repo": "a", "class": "3", "limit": 4}),
    (LIST, {"arguments": {"repo": "a", "limit": 3}}, {"repo": "a", "limit": 3}),
    (LIST, {"params": {"repo": "a", "class_": "c"}}, {"repo": "a", "class": "c"}),
    (LIST, {"params": {"repo": "a", "class": "c"}}, {"repo": "a", "class": "c"}),
    (LIST, {"create_issue": {"repo": "a"}}, {"repo": "a"}),
    (LIST, {"input": '{"repo": "a", "limit": "3"}'}, {"repo": "a", "limit": 3}),
    (LIST, {"repo": {"repo": "a"}}, {"repo": "a"}),
    (OPEN, {"arguments": {"repo": "a"}}, {"repo": "a"}),
    (CREATE, {"title": "a", "body": "b"}, {"issue": {"title": "a", "body": "b"}}),
    (CREATE, {"title": "a", "dry": True}, {"issue": {"title": "a"}, "dry": True}),
    (CREATE, {"title": 5}, {"issue": {"title": "5"}}),
    (NULLABLE, {"title": "a"}, {"issue": {"title": "a"}}),
    (SEND, {"to": "a", "text": "b", "body": "c"}, {"to": "a", "text": "b", "comment": {"body": "c"}}),
]  # fmt: skip


@pytest.mark.parametrize(("compiled", "kwargs", "sent"), REPAIRED, ids=range(len(REPAIRED)))
def test_call_is_repaired_where_it_is_certain_what_was_meant(
    compiled: Function, kwargs: dict[str, Json], sent: Json
) -> None:
    assert wire(compiled, kwargs) == sent


REFUSED = [
    (LIST, {}),
    (LIST, {"repo": "a", "limits": 3}),
    (LIST, {"repo": "a", "limit": "three"}),
    (LIST, {"repo": "a", "labels": "bug, ui"}),
    (LIST, {"filter": {"repo": "a"}}),
    (LIST, {"arguments": {"repo": "a", "limits": 3}}),
    (LIST, {"arguments": {"limit": 3}}),
    (LIST, {"arguments": {}}),
    (LIST, {"arguments": ["a"]}),
    (LIST, {"repository": {"repo": "a"}}),
    (LIST, {"arguments": {"repo": "a"}, "limit": 3}),
    (LIST, {"repo": {"name": "a"}}),
    (LIST, {"repo": "a", "by": "age", "top": 3}),
    (CREATE, {"body": "b"}),
    (CREATE, {"title": "a", "colour": "red"}),
    (CREATE, {"issue": {"title": "a"}, "body": "b"}),
    (TWO_HOMES, {"title": "a"}),
    (SEND, {"to": "a", "body": "c"}),
    (LIST, {"repo": "a", "labels": "needs review"}),
]  # fmt: skip


@pytest.mark.parametrize(("compiled", "kwargs"), REFUSED, ids=range(len(REFUSED)))
def test_call_is_refused_where_it_would_be_a_guess(compiled: Function, kwargs: dict[str, Json]) -> None:
    assert wire(compiled, kwargs) is None


def test_repair_is_told_with_what_it_changed() -> None:
    found = repaired(LIST, {"repo": "a", "limit": "3", "labels": "bug"})
    assert found is not None
    assert {repair.message for repair in found.repairs} == {
        "tickets.create_issue: limit: '3' was sent as 3",
        "tickets.create_issue: labels: 'bug' was sent as ['bug']",
    }


def test_moved_arguments_are_told() -> None:
    found = repaired(CREATE, {"title": "a", "dry": True})
    assert found is not None
    (repair,) = found.repairs
    assert (
        repair.message
        == "tickets.create_issue: create_issue(title, dry) was sent as create_issue(issue, dry)"
    )


def test_repairs_of_one_kind_have_one_key() -> None:
    keys = set()
    for limit in ("3", "4"):
        found = repaired(LIST, {"repo": "a", "limit": limit})
        assert found is not None
        keys.update(repair.key for repair in found.repairs)
    assert len(keys) == 1


@given(st.dictionaries(KEYS, schemas(), max_size=4), st.lists(KEYS, max_size=2), st.data())
@depth(3)
def test_repaired_call_satisfies_the_schema(
    properties: dict[str, Json], required: list[str], data: st.DataObject
) -> None:
    compiled = function(arguments(tuple(required), **properties))
    keywords = KEYS | st.sampled_from(["arguments", "input", *(each.name for each in compiled.parameters)])
    kwargs = data.draw(st.dictionaries(keywords, json_values(), max_size=3))
    try:
        bind(compiled, kwargs)
    except ArgumentError:
        found = repaired(compiled, kwargs)
        if found is not None:
            assert found.repairs
            assert bind(compiled, found.bound.wire).wire == found.bound.wire
