import json

import pytest

from manifests.json_value import Json
from portal.library.function import script_value
from upstreams.tools import MISSING, Missing, ToolResult

WRAPPER = {"type": "object", "properties": {"result": {}}, "required": ["result"]}
IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}


def text(value: str) -> dict[str, Json]:
    return {"type": "text", "text": value}


def value(
    *content: dict[str, Json], structured: Json | Missing = MISSING, output_schema: Json = None
) -> Json:
    return script_value(ToolResult(list(content), structured, False), output_schema)


def test_structured_content_is_the_value_whatever_the_text_says() -> None:
    assert value(text("other"), structured={"a": [1]}) == {"a": [1]}
    assert value(text("other"), structured=None) is None


def test_wrapper_is_taken_off_where_it_is_declared() -> None:
    assert value(structured={"result": [1]}, output_schema=WRAPPER) == [1]
    assert value(structured={"result": [1]}) == {"result": [1]}


def test_value_that_is_not_wrapped_after_all_is_kept_whole() -> None:
    assert value(structured={"result": 1, "more": 2}, output_schema=WRAPPER) == {"result": 1, "more": 2}
    assert value(structured=[1], output_schema=WRAPPER) == [1]


@pytest.mark.parametrize(
    "source",
    [
        '{"a": 1}',
        " [1, 2]\n",
        "[]",
        "12",
        "-3",
        "1.0",
        "2.5",
        "true",
        "null",
        '"a"',
        '"ü"',
        "12345678901234567890",
    ],
)
def test_json_text_is_parsed(source: str) -> None:
    assert value(text(source)) == json.loads(source)


@pytest.mark.parametrize(
    "source",
    [
        *("", " ", "hello", "007", "1.50", "1e3", " 12", "True", "None", "NaN", "-Infinity", "{not json}"),
        *('{"a": NaN}', "[1e999]", "9" * 5_000, "[" * 200_000, '{"a":' * 100_000, "-", '"open', "t", "+1"),
    ],
)
def test_other_text_stays_text(source: str) -> None:
    assert value(text(source)) == source


def test_any_other_block_makes_it_a_list_of_blocks() -> None:
    assert value(IMAGE) == [IMAGE]
    assert value(text("1"), IMAGE) == [text("1"), IMAGE]
    assert value({"type": "text"}) == [{"type": "text"}]


def test_no_content_at_all_is_none() -> None:
    assert value() is None
