"""Calls that are repaired before they are sent, and those that are not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.json_value import UNKNOWN, Json
from portal.library.arguments import ArgumentError, bind, normalize_arguments, repaired
from portal.library.function import Function
from tests.depth import depth
from tests.portal.library.random_schemas import KEYS, json_values, schemas
from tests.portal.library.sample_tools import arguments, function

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
COMMENT: Json = {"type": "object", "properties": {"body": TEXT}}
SEND = function(arguments(("to",), to=TEXT, text=TEXT, comment=COMMENT))
FREE = function(arguments(("data",), data={"type": "object"}))


def wire(compiled: Function, kwargs: dict[str, Json]) -> Json:
    """What is sent; None if the call is refused."""
    with pytest.raises(ArgumentError):
        normalize_arguments(compiled, kwargs, repairs=False)
    found = repaired(compiled, kwargs)
    return None if found is None else found[0]


REPAIRED = [
    (LIST, {"repo": "a", "limit": "3"}, {"repo": "a", "limit": 3}),
    (LIST, {"repo": 5}, {"repo": "5"}),
    (LIST, {"repo": "a", "labels": "bug"}, {"repo": "a", "labels": ["bug"]}),
    (LIST, {"repo": "a", "filter": '{"by": "age"}'}, {"repo": "a", "filter": {"by": "age"}}),
    (LIST, {"arguments": {"repo": "a", "limit": 3}}, {"repo": "a", "limit": 3}),
    (LIST, {"params": {"repo": "a", "class_": "c"}}, {"repo": "a", "class": "c"}),
    (LIST, {"create_issue": {"repo": "a"}}, {"repo": "a"}),
    (LIST, {"input": '{"repo": "a", "limit": "3"}'}, {"repo": "a", "limit": 3}),
    (LIST, {"*0": "a", "*1": 3}, {"repo": "a", "limit": 3}),
    (LIST, {"*0": {"repo": "a", "class_": "c"}}, {"repo": "a", "class": "c"}),
    (LIST, {"*0": '{"repo": "a"}', "limit": 1}, {"repo": '{"repo": "a"}', "limit": 1}),
    (CREATE, {"*0": {"title": "a"}}, {"issue": {"title": "a"}}),
    (LIST, {"Repo": "a", "LIMIT": 3}, {"repo": "a", "limit": 3}),
    (SEND, {"*0": "a", "TEXT": "b"}, {"to": "a", "text": "b"}),
]  # fmt: skip


@pytest.mark.parametrize(("compiled", "kwargs", "sent"), REPAIRED, ids=range(len(REPAIRED)))
def test_call_is_repaired_where_its_meaning_is_certain(
    compiled: Function, kwargs: dict[str, Json], sent: Json
) -> None:
    assert wire(compiled, kwargs) == sent


REFUSED = [
    (LIST, {"*0": "a", "repo": "b", "*1": "x"}),
    (LIST, {"*0": "a", "*1": "3"}),
    (LIST, {"*0": "a", "*1": 3, "*2": [], "*3": {}, "*4": "c", "*5": 1}),
    (FREE, {"*0": {"data": {}}}),
    (LIST, {"Repo": "a", "repo_": "b"}),
    (LIST, {"repo": {"repo": "a"}}),
    (LIST, {"repo": "a", "limit": "three"}),
    (LIST, {"repo": "a", "labels": "bug, ui"}),
    (LIST, {"filter": {"repo": "a"}}),
    (LIST, {"arguments": {"repo": "a", "limits": 3}}),
    (LIST, {"arguments": {"limit": 3}}),
    (LIST, {"repository": {"repo": "a"}}),
    (LIST, {"arguments": {"repo": "a"}, "limit": 3}),
    (LIST, {"repo": "a", "by": "age", "top": 3}),
    (CREATE, {"body": "b"}),
    (CREATE, {"title": "a", "colour": "red"}),
]  # fmt: skip


@pytest.mark.parametrize(("compiled", "kwargs"), REFUSED, ids=range(len(REFUSED)))
def test_call_is_refused_where_it_would_be_a_guess(compiled: Function, kwargs: dict[str, Json]) -> None:
    assert wire(compiled, kwargs) is None


def test_repair_is_told_with_what_it_changed() -> None:
    found = repaired(LIST, {"repo": "a", "limit": "3", "labels": "bug"})
    assert set(found[1].values()) == {
        "tickets.create_issue: limit: '3' was sent as 3",
        "tickets.create_issue: labels: 'bug' was sent as ['bug']",
    }


@pytest.mark.parametrize(
    ("kwargs", "is_right"),
    [
        ({"repo": UNKNOWN}, True),
        ({"repo": UNKNOWN, "labels": ["a", UNKNOWN], "filter": {"by": UNKNOWN}}, True),
        ({"*0": UNKNOWN}, True),
        ({"params": UNKNOWN}, True),
        ({"limit": UNKNOWN}, False),
        ({"repo": UNKNOWN, "filter": {"by": []}}, False),
        ({"repo": UNKNOWN, "top": UNKNOWN}, False),
    ],
)
def test_what_is_not_known_yet_fits_and_the_rest_is_checked(kwargs: dict[str, Json], is_right: bool) -> None:
    if is_right:
        normalize_arguments(LIST, kwargs, repairs=True)
    else:
        with pytest.raises(ArgumentError):
            normalize_arguments(LIST, kwargs, repairs=True)


@given(st.dictionaries(KEYS, schemas(), max_size=4), st.lists(KEYS, max_size=2), st.data())
@depth(1)
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
            assert found[1]
            assert bind(compiled, found[0]) == found[0]


def test_alternative_that_allows_nothing_is_an_error_as_any_other() -> None:
    with pytest.raises(ArgumentError):
        bind(function({"anyOf": [False]}), {})
