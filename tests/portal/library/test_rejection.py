"""What an upstream's validation says, in the words of many validators, becomes one difference without any value."""

import json

import pydantic
import pytest

from manifests.json_value import Json
from portal.library.rejected_places import is_rejection, names_no_tool
from portal.library.rejection import LONGEST_DIFFERENCE, difference
from tests.portal.library.sample_tools import arguments, function

TEXT: Json = {"type": "string"}
WHEN: Json = {"type": "string", "format": "date-time", "description": "When it is due."}
ISSUE = function(
    arguments(
        ("title",),
        title={"type": "string", "pattern": "^[A-Z]"},
        due=WHEN,
        labels={"type": "array", "items": TEXT},
        owner={"type": "object", "properties": {"login": TEXT, "team": {"enum": ["a", "b"]}}},
        **{"from": TEXT},
    )
)
SENT: dict[str, Json] = {
    "title": "hunter2",
    "due": "soon",
    "labels": ["hunter2", "x"],
    "owner": {"team": "a"},
}

ZOD_3 = """MCP error -32602: Invalid arguments for tool create_issue: [
  {"code": "invalid_string", "validation": "datetime", "message": "Invalid datetime", "path": ["due"]},
  {"code": "invalid_type", "expected": "string", "received": "number", "path": [
      "labels",
      0
    ], "message": "Expected string, received number"}
]"""
ZOD_KEYS = '[{"code": "unrecognized_keys", "keys": ["priority"], "path": [], "message": "Unrecognized key"}]'
PYDANTIC = """Error executing tool create_issue: 2 validation errors for create_issueArguments
due
  Input should be a valid datetime [type=datetime_parsing, input_value='soon', input_type=str]
    For further information visit https://errors.pydantic.dev/2.12/v/datetime_parsing
labels.0
  Input should be a valid integer [type=int_parsing, input_value='hunter2', input_type=str]
    For further information visit https://errors.pydantic.dev/2.12/v/int_parsing"""

SAID = [
    (ZOD_3, ["due", "labels[0]"]),
    (ZOD_KEYS, ["priority"]),
    (PYDANTIC, ["due", "labels[0]"]),
    ("Input validation error: 'due' is a required property", ["due"]),
    ("Invalid params: data/owner/login must be string", ["owner['login']"]),
    ("Invalid arguments: /owner/team must be equal to one of the allowed values", ["owner['team']"]),
    ('validating "arguments": validating root: required: missing properties: ["due"]', ["due"]),
    ("invalid params: failed to deserialize parameters: missing field `due`", ["due"]),
    ("Validation failed: due: must be in the future; arguments.owner.team is not known", ["due", "owner['team']"]),
    ("create_issue() got an unexpected keyword argument 'from'", ["from_"]),
    ("Invalid request: title must match ^[A-Z]", ["title"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "places"), SAID, ids=range(len(SAID)))
def test_places_that_the_upstream_names_are_told(text: str, places: list[str]) -> None:
    assert is_rejection(text)
    told = difference(ISSUE, SENT, text)
    assert [part.partition(": ")[0] for part in told.split("; ")] == places


def test_each_place_says_what_was_sent_and_what_is_wanted() -> None:
    told = difference(ISSUE, SENT, ZOD_3)
    assert told == (
        "due: sent a str of 4 characters, wanted is str (When it is due. (date-time)); "
        "labels[0]: sent a str of 7 characters, wanted is a str"
    )
    assert "owner['login']: not sent, wanted is a str" in difference(
        ISSUE, SENT, "must be: data/owner/login is"
    )


def test_pattern_that_is_left_to_the_upstream_is_told() -> None:
    assert "pattern ^[A-Z]" in difference(ISSUE, SENT, "Invalid request: title must match")


def test_argument_that_the_schema_does_not_name_is_told() -> None:
    told = difference(ISSUE, SENT, "1 validation error for X\nrepository\n  Field required [type=missing, x]")
    assert told == "repository: not sent, and the tool's schema does not name it"


def test_text_that_names_nothing_gives_what_was_sent_and_what_was_not() -> None:
    told = difference(ISSUE, SENT, "Invalid params")
    assert told.startswith("sent: title (a str of 7 characters), due (")
    assert told.endswith("; not sent: from_")


def test_real_pydantic_errors_are_understood() -> None:
    class Owner(pydantic.BaseModel):
        login: str
        team: int | bool

    class Arguments(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")
        title: str = pydantic.Field(pattern="^[A-Z]")
        labels: list[int]
        owner: Owner

    with pytest.raises(pydantic.ValidationError) as caught:
        Arguments.model_validate(SENT)
    told = difference(ISSUE, SENT, str(caught.value))
    for place in ("title", "labels[0]", "labels[1]", "owner['login']", "owner['team']"):
        assert f"{place}: " in told


NO_VALIDATION = [
    "there is no such issue",
    "rate limit exceeded",
    "HTTP 404",
    "",
    "permission denied: 'title'",
]


@pytest.mark.parametrize("text", NO_VALIDATION)
def test_other_errors_are_not_taken_for_it(text: str) -> None:
    assert not is_rejection(text)


@pytest.mark.parametrize("text", ["MCP error -32602: Unknown tool: create_issue", "-32602: Tool x not found"])
def test_tool_that_is_gone_is_no_rejection(text: str) -> None:
    assert names_no_tool(text)
    assert not is_rejection(text)


HOSTILE = [
    PYDANTIC.replace("due\n", "x" * 5000 + "\n"),
    '"path": [' * 5000,
    '"path": ["' + "\u202e" * 200 + '"]',
    '"path": [1e999, {"a": 1}, null, "labels", "' + "9" * 250 + '"]',
    "'" * 8000,
    "/a" * 8000,
    "title" + "." * 8000 + ": must be",
    "\n".join(f"title.{n}\n  Bad [type=bad, input_value=1]" for n in range(1000)),
    json.dumps([{"path": ["labels", n], "code": "invalid_type"} for n in range(1000)]),
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize(
    "sent", [SENT, {}, {"labels": {"0": 1}}, {"title": "x" * 10**6, "from": ["y"] * 10**5}]
)
def test_nothing_an_upstream_says_makes_it_long_or_fail(text: str, sent: dict[str, Json]) -> None:
    told = difference(ISSUE, sent, text)
    assert 0 < len(told) <= LONGEST_DIFFERENCE
    assert told.isprintable()


@pytest.mark.parametrize("text", [*(text for text, _ in SAID if "hunter2" not in text), "Invalid params"])
def test_values_are_not_repeated(text: str) -> None:
    told = difference(ISSUE, SENT, text)
    assert "hunter2" not in told
    assert "hunter2" not in difference(ISSUE, SENT, PYDANTIC)
