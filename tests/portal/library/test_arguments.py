"""Arguments of a call: valid ones are sent, repairable ones are repaired, others are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manifests.json_value import UNKNOWN, Json
from manifests.kernels import JAVASCRIPT, PYTHON
from portal.library.arguments import ArgumentError, bind, normalize_arguments, repaired
from portal.library.function import Function
from tests.depth import depth
from tests.portal.library.random_schemas import KEYS, json_values, schemas
from tests.portal.library.sample_tools import an_object, arguments, function

TEXT: Json = {"type": "string"}
ISSUE = arguments(
    ("title",),
    title={"type": "string", "minLength": 1},
    labels={"type": "array", "items": {"type": "object", "properties": {"name": TEXT}, "required": ["name"]}},
    state={"enum": ["open", "closed"]},
    **{"from": TEXT, "cik-A": {"type": "integer"}},
)


def refusal(compiled: Function, kwargs: dict[str, Json]) -> str:
    with pytest.raises(ArgumentError) as caught:
        bind(compiled, kwargs)
    assert caught.value.hint == compiled.brief
    assert caught.value.code == "invalid_arguments"
    return str(caught.value)


def test_arguments_get_their_wire_names_back() -> None:
    bound = bind(function(ISSUE), {"title": "a", "from_": "b", "cik_A": 1})
    assert bound == {"title": "a", "from": "b", "cik-A": 1}


def test_one_argument_by_both_of_its_names_is_refused() -> None:
    assert "twice" in refusal(function(ISSUE), {"title": "a", "from": "b", "from_": "c"})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"title": "a", "lables": []}, "has no argument 'lables'; near: 'labels'"),
        ({"lables": [], "nope": 1}, "has no argument 'lables', 'nope'; near"),
        ({}, "lacks argument 'title'"),
        ({"title": None}, "title is None, not a str"),
        ({"title": "a", "labels": [{"name": "x"}, {"name": 3}]}, "labels[1]['name'] is 3, not a str"),
        ({"title": "a", "state": "opn"}, "state is 'opn', not one of 'open', 'closed'"),
    ],
)
def test_refusal_names_the_argument(given: dict[str, Json], told: str) -> None:
    assert f"tickets.create_issue: {told}" in refusal(function(ISSUE), given)


def test_none_omits_an_optional_argument_and_is_sent_where_the_schema_takes_null() -> None:
    assert bind(function(arguments(a={"type": "integer", "default": 3})), {}) == {}
    assert bind(function(ISSUE), {"title": "a", "state": None}) == {"title": "a"}
    compiled = function(arguments(a={"type": ["string", "null"]}, b={}))
    assert bind(compiled, {"a": None, "b": None}) == {"a": None, "b": None}


def test_others_are_passed_on_by_a_tool_that_takes_them() -> None:
    compiled = function({**an_object(a=TEXT), "additionalProperties": {"type": "integer"}})
    assert bind(compiled, {"a": "x", "more": 3}) == {"a": "x", "more": 3}
    assert "more is 'x', not an int" in refusal(compiled, {"more": "x"})


def test_record_that_its_server_closed_takes_any_key() -> None:
    record = {"type": "object", "propertyNames": TEXT, "additionalProperties": False}
    assert bind(function(arguments(a=record)), {"a": {"b": 1}}) == {"a": {"b": 1}}


def test_broken_part_of_a_schema_refuses_nothing_but_its_neighbours_still_do() -> None:
    compiled = function(arguments(a={"type": "invalid", "minimum": "x"}, b={"type": "integer"}))
    assert bind(compiled, {"a": object, "b": 3})["b"] == 3
    assert "b is 'x', not an int" in refusal(compiled, {"b": "x"})


def test_recursive_schema_checks_deep_values() -> None:
    tree = arguments(child={"$ref": "#/$defs/Tree"})
    compiled = function({**arguments(tree={"$ref": "#/$defs/Tree"}), "$defs": {"Tree": tree}})
    bind(compiled, {"tree": {"child": {"child": {}}}})
    told = refusal(compiled, {"tree": {"child": {"child": {"x": 1}}}})
    assert "tree['child']['child'] has no property 'x'" in told


X: Json = {"properties": {"x": TEXT}, "required": ["x"]}
KIND: Json = {"type": "object", "properties": {"kind": {"enum": ["a", "b"]}}, "required": ["kind"]}
IS_A: Json = {"properties": {"kind": {"const": "a"}}}
CONDITIONS: list[Json] = [
    {"if": IS_A, "then": {"required": ["kind"]}, "else": X},
    {"if": IS_A, "then": X, "else": {"properties": {"x": False}}},
    {"allOf": [{"if": IS_A, "then": X}, {"if": IS_A, "then": {"properties": {"y": TEXT}}}]},
    {"if": IS_A, "then": {"$ref": "#/$defs/X"}, "$defs": {"X": X}},
    {"dependentSchemas": {"kind": X}},
    {"$ref": "#/$defs/D", "$defs": {"D": {"dependentSchemas": {"kind": X}}}},
]


@pytest.mark.parametrize("condition", CONDITIONS, ids=range(len(CONDITIONS)))
def test_what_only_some_calls_take_may_be_given_by_its_name(condition: Json) -> None:
    compiled = function({**KIND, **condition})
    assert bind(compiled, {"kind": "a", "x": "y"}) == {"kind": "a", "x": "y"}
    assert "**others)" in compiled.brief


@pytest.mark.parametrize(
    ("schema", "value", "told"),
    [
        ({"minimum": 3}, 1, "a is 1, but its schema has minimum: 3"),
        ({"anyOf": [TEXT, {"enum": [1]}]}, 2, "a is 2, but must be one of: a str, 1"),
        ({"anyOf": [TEXT, {"properties": {"b": TEXT}}]}, {"b": 1}, "a['b'] is 1, not a str"),
        ({"required": ["b", "c"]}, {"b": 1}, "a lacks 'c'"),
        ({"additionalProperties": False}, {"b": 1}, "a has no property 'b'; it must be empty"),
    ],
)
def test_refusal_says_what_is_wrong_and_what_is_allowed(schema: Json, value: Json, told: str) -> None:
    assert refusal(function(arguments(a=schema)), {"a": value}) == f"tickets.create_issue: {told}"


INTEGERS: Json = {"type": "array", "items": {"type": ["integer", "null"]}}


@pytest.mark.parametrize(
    ("schema", "given", "sent"),
    [
        ({"type": "integer"}, 5.0, 5),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 5.0, 5),
        ({"allOf": [{"title": "N"}, {"type": "integer"}]}, 5.0, 5),
        (INTEGERS, [1.0, None, 2.0], [1, None, 2]),
        ({"type": "object", "properties": {"a": INTEGERS}}, {"a": [1.0], "b": 1.0}, {"a": [1], "b": 1.0}),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1.0}, {"a": 1}),
        ({"anyOf": [{"type": "integer"}, {"type": "number"}]}, 5.0, 5.0),
        ({}, 5.0, 5.0),
        ({"type": "integer"}, 1e300, 1e300),
    ],
)
def test_whole_numbers_are_sent_as_the_integers_that_are_taken(schema: Json, given: Json, sent: Json) -> None:
    wire, repairs = normalize_arguments(function(arguments((), n=schema)), {"n": given}, repairs=False)
    assert (repr(wire["n"]), repairs) == (repr(sent), {})


def test_former_names_and_other_spellings_of_arguments_are_accepted() -> None:
    compiled = function(arguments((), 城市=TEXT, 日期=TEXT, größe=TEXT))
    for names in (
        ("城市", "日期", "größe"),
        ("___ed84", "___70d0", "gr__e"),
        ("城市", "日期", "gro\u0308ße"),
    ):
        assert bind(compiled, dict.fromkeys(names, "x")) == {"城市": "x", "日期": "x", "größe": "x"}


def test_arguments_that_are_nested_too_deeply_to_look_through_are_sent_as_they_are() -> None:
    schema: Json = {"type": "object", "additionalProperties": {"$ref": "#/properties/n"}}
    given: Json = 1.0
    for _ in range(900):
        given = {"a": given}
    wire, _ = normalize_arguments(function(arguments((), n=schema)), {"n": given}, repairs=False)
    assert wire == {"n": given}


NEW_ISSUE: Json = {"type": "object", "properties": {"title": TEXT, "body": TEXT}, "required": ["title"]}
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
CREATE = function(arguments(("issue",), issue=NEW_ISSUE, dry={"type": "boolean"}))
COMMENT: Json = {"type": "object", "properties": {"body": TEXT}}
SEND = function(arguments(("to",), to=TEXT, text=TEXT, comment=COMMENT))
FREE = function(arguments(("data",), data={"type": "object"}))
KINDS: Json = {"a": {"type": "integer", "enum": [1, 2]}, "b": {"type": "string", "enum": ["1", "2"]}}
CHOICES = function(arguments(**KINDS))
ANYTHING = function(arguments(rows={"type": "array", "items": {}}, names={"type": "array", "items": TEXT}))
BODY = function(arguments(body={"type": "array", "items": TEXT}, title=TEXT))
DELETE = function(arguments(("path",), path=TEXT, dry_run={"type": "boolean"}, force={"type": "boolean"}))
READ = function(arguments(("path",), path=TEXT, head={"type": "number"}, tail={"type": "number"}))


def wire(compiled: Function, kwargs: dict[str, Json]) -> Json:
    """The arguments that are sent; None if the call is refused."""
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
    (CHOICES, {"a": "2", "b": 1}, {"a": 2, "b": "1"}),
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
    (DELETE, {"*0": "a", "*1": True}),  # a lock has the same pin for both orders of what is optional
    (READ, {"*0": "a", "*1": 3}),
    (DELETE, {"*0": "a", "*1": True, "*2": False}),
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
    (CHOICES, {"a": "3"}),
    (ANYTHING, {"rows": {"a": 1}}),
    (ANYTHING, {"rows": False}),
    (ANYTHING, {"names": 0}),
    (BODY, {"*0": "x"}),
]  # fmt: skip


@pytest.mark.parametrize(("compiled", "kwargs"), REFUSED, ids=range(len(REFUSED)))
def test_call_is_refused_where_it_would_be_a_guess(compiled: Function, kwargs: dict[str, Json]) -> None:
    assert wire(compiled, kwargs) is None


def test_refusal_of_a_value_by_place_names_the_parameters() -> None:
    with pytest.raises(ArgumentError, match="keyword arguments only") as refused:
        normalize_arguments(READ, {"*0": "a", "*1": 2.5}, repairs=True)
    assert all(name in refused.value.hint for name in ("head", "tail"))


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/B", "$defs": {"B": COMMENT}, "properties": {"a": TEXT, "b": TEXT}},
        {"properties": {"a": TEXT}, "unevaluatedProperties": {"type": "string"}},
    ],
)
def test_argument_that_stands_beside_a_reference_or_is_not_evaluated_may_be_given(schema: Json) -> None:
    assert bind(function({"type": "object", **schema}), {"a": "x", "b": "y"}) == {"a": "x", "b": "y"}


def test_repair_is_told_with_what_it_changed() -> None:
    found = repaired(LIST, {"repo": "a", "limit": "3", "labels": "bug"})
    assert set(found[1].values()) == {
        "tickets.create_issue: limit: '3' was sent as 3",
        "tickets.create_issue: labels: 'bug' was sent as ['bug']",
    }
    for kernel, told in ((PYTHON, "(repo, class_)"), (JAVASCRIPT, "({repo, class})")):
        found = repaired(LIST, {"repo": "a", "Class": "c"}, kernel)
        assert all(each.endswith(f" was sent as create_issue{told}") for each in found[1].values()), kernel


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
