import json
import subprocess
import sys
from pathlib import Path

import pytest

from manifests.json_value import Json
from portal.library.value import script_value
from tests.portal.library.sample_tools import function
from tests.upstreams.at_once import at_once, counted
from upstreams.steps import STEP_BYTES, STEP_ITEMS
from upstreams.tool_result import MISSING, Missing, ToolResult

WRAPPER = {"type": "object", "properties": {"result": {}}, "required": ["result"]}
IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}


def text(value: str) -> dict[str, Json]:
    return {"type": "text", "text": value}


def value(
    *content: dict[str, Json], structured: Json | Missing = MISSING, output_schema: Json = None
) -> Json:
    read = script_value(function(output_schema=output_schema), ToolResult(list(content), structured, False))
    return at_once(read)


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


def test_numbers_keep_their_kind() -> None:
    assert isinstance(value(text("1")), int)
    assert isinstance(value(text("1.0")), float)
    assert value(text("true")) is True


def test_several_texts_are_a_list_of_their_values() -> None:
    assert value(text("a"), text('{"b": 1}')) == ["a", {"b": 1}]


@pytest.mark.parametrize(
    "content",
    [
        [text(json.dumps([{"id": number, "note": "\ud83d, \\" * 5} for number in range(20_000)]))],
        [text('{"a":1}')] * 10 * STEP_ITEMS,
    ],
    ids=["long text", "many texts"],
)
def test_long_text_is_parsed_in_many_steps(content: list[dict[str, Json]]) -> None:
    result = ToolResult(content, MISSING, False)
    read, steps = counted(script_value(function(), result))
    plainly = [json.loads(block["text"]) for block in content]
    assert read == (plainly if len(plainly) > 1 else plainly[0])
    assert steps >= 10


def test_long_text_that_is_no_json_stays_text() -> None:
    for source in (
        "[" + "1," * STEP_BYTES + "oops]",
        "[" + "NaN," * STEP_BYTES + "1]",
        "[notes] " * STEP_BYTES,
    ):
        assert value(text(source)) == source


def test_any_other_block_makes_it_a_list_of_blocks() -> None:
    assert value(IMAGE) == [IMAGE]
    assert value(text("1"), IMAGE) == [text("1"), IMAGE]
    assert value({"type": "text"}) == [{"type": "text"}]


def test_no_content_at_all_is_none() -> None:
    assert value() is None


def test_integers_that_no_reader_takes_are_the_text_of_their_digits_inside_json() -> None:
    digits = "9" * 5_000
    assert value(text(f'{{"n": [-{digits}, {digits[:4_300]}]}}')) == {
        "n": ["-" + digits, int(digits[:4_300])]
    }


def test_whatever_an_operator_allows_python_no_stranger_has_very_many_digits_converted() -> None:
    program = (
        "from portal.library.value import parsed_text\n"
        "from tests.upstreams.at_once import at_once\n"
        "from sandbox_runtime.guest_json import GuestJsonError, parse\n"
        "assert isinstance(at_once(parsed_text('9' * 3_000_000)), str)\n"
        "assert isinstance(at_once(parsed_text('[' + '9' * 60_000 + ']'))[0], str)\n"
        "try:\n    parse(b'9' * 3_000_000)\nexcept GuestJsonError:\n    print('refused')"
    )
    ended = subprocess.run(
        [sys.executable, "-X", "int_max_str_digits=0", "-c", program],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        timeout=30,
    )
    assert ended.stdout == b"refused\n"
