import ast
import gc
import json

import pytest

from manifests.json_value import Json
from portal.library.results import MAX_COMPARED_CHARACTERS, MAX_ODD_CHARACTERS, content_of, script_value
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


def test_wrapper_is_taken_off_where_it_is_declared_and_there() -> None:
    assert value(structured={"result": [1]}, output_schema=WRAPPER) == [1]
    assert value(structured={"result": [1]}) == {"result": [1]}
    assert value(structured={"result": 1, "more": 2}, output_schema=WRAPPER) == {"result": 1, "more": 2}
    assert value(structured=[1], output_schema=WRAPPER) == [1]


@pytest.mark.parametrize("source", ['{"a": 1}', " [1, 2]\n", "[1e999, 12345678901234567890]"])
def test_text_of_a_json_object_or_array_is_parsed(source: str) -> None:
    assert value(text(source)) == json.loads(source)


def test_json_that_a_server_encoded_twice_is_data_and_its_text_is_kept_as_sent() -> None:
    sent = json.dumps(json.dumps([{"id": "ü"}]))
    assert value(text(sent)) == [{"id": "ü"}]
    assert content_of(ToolResult([text(sent)], MISSING, False), [{"id": "ü"}]) == ([text(sent)], [])
    for other in ('"[note] done"', '"{name}"', '"[1]', '"[1]" and more', '"plain"'):
        assert value(text(other)) == other


def test_nan_in_text_is_a_number_as_in_structured_content() -> None:
    assert str(value(text('{"a": NaN, "b": -Infinity}'))) == "{'a': nan, 'b': -inf}"


def test_texts_of_a_result_are_all_data_or_none_is() -> None:
    row = "{'a': '" + "x" * 600 + "'}"
    heading, json_row = "Found rows:", f'{{"a": "{"y" * 200_000}"}}'
    few = value(*map(text, [heading, json_row, *[row] * 150]))
    assert [type(each) for each in few] == [str, *[dict] * 151]
    many = value(*map(text, [heading, json_row, *[row] * 900]))
    assert [type(each) for each in many] == [str, dict, *[str] * 900]


@pytest.mark.parametrize(
    ("source", "literal"),
    [
        ("[(1, 'a'), (2, None)]", [[1, "a"], [2, None]]),
        (" {'a': True, 2: [1.5, {}]}\n", {"a": True, "2": [1.5, {}]}),
        ("['\\d', \"it's\"]", ["\\d", "it's"]),
        ("[(1), ('a'), (2,), ((3, 4),), (), '\\/']", [1, "a", [2], [[3, 4]], [], "\\/"]),
        ("[1_000, +1, {None: (2)}, '\\U0001f600']", [1000, 1, {"null": 2}, "😀"]),
    ],
)
def test_text_of_a_python_list_or_dict_is_parsed(source: str, literal: Json) -> None:
    assert value(text(source)) == literal


ODD: list[Json] = ["it's", 'say "no"', "both ' and \"", "\\x41\n\t\x00\x1b\x85é\ud800", "", "None, (True)"]


def test_long_text_of_a_python_list_is_parsed() -> None:
    rows: list[Json] = [{"id": at, "name": each, "left": None} for at, each in enumerate(ODD * 450)]
    assert len(repr(rows)) > MAX_ODD_CHARACTERS and value(text(repr(rows))) == rows
    tuples = [(row["id"], row["name"], (True,), ()) for row in rows]
    assert value(text(repr(tuples))) == [[number, name, [True], []] for number, name, *_ in tuples]


STAYING = """
| |hi|007|1.50| 12|True|None|NaN|{not json}|-|"open|12|1.0|true|null|"a"|{1, 2}|['a', b'b']|[nan]|[1,10)|[INFO] started
""".strip("\n").split("|")
LONG = [
    "9" * 5_000,
    "[" * 200_000,
    '{"a":' * 100_000,
    "[" + "1+" * 49_000 + "1]",
    "{" + "-" * 90_000,
    "[" + "'\\" * 400_000,
    '["' + "\\'" * 400_000,
]


@pytest.mark.parametrize("source", [*STAYING, *LONG], ids=lambda source: source[:9])
def test_other_text_stays_text(source: str) -> None:
    assert value(text(source)) == source


def test_any_other_block_makes_it_a_list_of_blocks() -> None:
    assert value(IMAGE) == [IMAGE]
    assert value(text("1"), IMAGE) == [text("1"), IMAGE]
    assert value({"type": "text"}) == [{"type": "text"}]
    assert value() is None


def content(*blocks: dict[str, Json], structured: Json | Missing = MISSING) -> tuple[Json, list[int]]:
    result = ToolResult(list(blocks), structured, False)
    return content_of(result, script_value(result, WRAPPER))


@pytest.mark.parametrize(
    "blocks", [[text("a")], [text("a"), text("b")], [text("1"), IMAGE], [{"type": "text"}]]
)
def test_value_that_has_all_blocks_needs_no_second_copy(blocks: list[dict[str, Json]]) -> None:
    assert content(*blocks) == (None, [])


def test_texts_of_items_repeat_them() -> None:
    blocks = [text("a"), text('{"b": 1}')]
    assert content(*blocks, structured={"result": ["a", {"b": 1}]}) == (blocks, [])


def test_texts_of_many_long_fields_repeat_them() -> None:
    fields: dict[str, Json] = {f"k{n}": {"v": "x" * 1_000 + str(n)} for n in range(300)}
    assert content(*(text(json.dumps(each)) for each in fields.values()), structured=fields)[1] == []


def test_text_of_a_field_repeats_it_and_another_one_is_beside_it() -> None:
    blocks = [text("# Notes\n"), text("more")]
    assert content(*blocks, structured={"content": "# Notes\n", "size": 8}) == (blocks, [1])


def test_long_json_is_taken_for_the_data_and_not_sent_twice() -> None:
    long = "x" * MAX_COMPARED_CHARACTERS
    data: Json = {"a": long}
    noted = {**text(json.dumps(data)), "annotations": {}}
    for written, structured in (
        (text(json.dumps(data)), data),
        (text("[" + long), {"b": 1}),
        (noted, MISSING),
    ):
        [block], beside = content(written, structured=structured)
        assert (block, beside) == ({**written, "text": None}, [])
    assert content(text(long), structured={"b": 1}) == ([text(long)], [0])


@pytest.mark.parametrize(
    ("source", "structured"),
    [
        ('{"b":1,   "a":2}', {"a": 2, "b": 1}),
        ('{"b": "ü"}', {"result": {"b": "ü"}}),
        ('{"b": "ü"}', MISSING),
        ("True", {"result": True}),
        ("4.0", {"result": 4.0}),
        (" \n", {"a": 1}),
        ('{"mean": 2.5, "skew": NaN, "most": [-Infinity]}', {"mean": 2.5, "skew": None, "most": [None]}),
        ('{"skew": NaN}', {"skew": float("nan")}),
    ],
)
def test_text_that_says_the_same_in_another_way_stays_as_it_was_sent(source: str, structured: Json) -> None:
    assert content(text(source), structured=structured) == ([text(source)], [])


def test_what_the_data_lacks_is_beside_it() -> None:
    blocks = [text("42 rows"), IMAGE, text('{"a": 1}'), {"type": "video"}]
    assert content(*blocks, structured={"a": 1})[1] == [0, 1, 3]


def test_text_with_more_than_its_value_is_kept() -> None:
    assert content(text('{"a": 1, "a": 2}')) == ([text('{"a": 1, "a": 2}')], [])
    noted = {**text("a"), "annotations": {"audience": ["user"]}}
    assert content(noted) == ([noted], [])


def test_text_is_an_answer_also_if_python_fails_to_parse_it() -> None:
    """Python 3.11 fails if it collects garbage meanwhile, and a traceback is written, which parses, too."""
    source = f"{{'a': {[(each, 'x') for each in range(300)]}}}"

    def parse(phase: str, about: object) -> None:
        ast.parse("[1, (2, {3: 4})]")

    before = gc.get_threshold()
    gc.callbacks.append(parse)
    gc.set_threshold(5)
    try:
        found = value(text(source))
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(parse)
    assert found == source or isinstance(found, dict)
