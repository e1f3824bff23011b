"""What a model reads as base64 in vain is left out of a script's value, with a word on how it is seen."""

import pytest

from manifests.json_value import Json
from portal.runs.answer import Answer, fitted
from portal.runs.content import without_binaries

DATA = "aGVsbG8h" * 1_000
IMAGE: dict[str, Json] = {"type": "image", "data": DATA, "mimeType": "image/png"}


def test_image_in_a_value_is_left_out_and_how_to_show_it_is_told() -> None:
    answer = Answer("ok", run_id="run_1", result=["a cat", IMAGE])
    told = fitted(answer, str, 6_000, 6_000, is_whole=False).text
    assert told["result"] == ["a cat", {**IMAGE, "data": "[8,000 characters of base64]"}]
    (notice,) = told["notices"]
    assert "result[1] (image/png)" in notice and "portal.emit(block)" in notice
    assert DATA not in str(told)


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"type": "audio", "data": DATA, "mimeType": "audio/wav"}, "result (audio/wav)"),
        ({"cats": [IMAGE]}, "result['cats'][0] (image/png)"),
        (
            {"type": "resource", "resource": {"uri": "x:y", "blob": DATA, "mimeType": "application/pdf"}},
            "result['resource'] (application/pdf)",
        ),
    ],
)
def test_base64_is_left_out_wherever_it_stands(value: Json, where: str) -> None:
    shown, (notice,) = without_binaries(value)
    assert DATA not in str(shown) and where in notice


@pytest.mark.parametrize(
    "value",
    [
        {**IMAGE, "data": "aGVsbG8h"},
        {"type": "row", "data": DATA, "mimeType": "image/png"},
        {"type": "image", "data": DATA},
        {"uri": "x:y", "text": DATA, "mimeType": "text/plain"},
        {"blob": DATA, "mimeType": "text/plain"},
        [DATA] * 3,
    ],
)
def test_all_else_stays(value: Json) -> None:
    assert without_binaries(value) == (value, [])
