"""An answer fits the tokens of its reader, and says the same in both of its forms."""

import json

import pytest
from mcp_types import CallToolResult, TextContent

from manifests.json_value import Json
from portal.budget.tokens import count_tokens
from portal.execution import Answer
from portal.server import tool_result
from sandbox_runtime.result import RunError

OUTPUT_TOKENS = 1_000
ROWS: list[dict[str, Json]] = [
    {
        "seq": seq,
        "function": "store.put",
        "state": "failed",
        "ms": 1.5,
        "error": {"code": "x", "message": "y" * 300},
    }
    for seq in range(1, 101)
]


def read(result: CallToolResult) -> dict[str, Json]:
    """The answer, which is the same in both forms."""
    text = result.content[0]
    assert isinstance(text, TextContent)
    answer = json.loads(text.text)
    assert answer == result.structured_content
    assert isinstance(answer, dict)
    return answer


def cost(result: CallToolResult) -> int:
    """Tokens of all text of the answer."""
    return sum(count_tokens(block.text) for block in result.content if isinstance(block, TextContent))


@pytest.mark.parametrize(
    "answer",
    [
        Answer("ok", "run_1", result="word " * 50_000),
        Answer("ok", "run_1", result=[{"id": number, "name": f"n{number}"} for number in range(20_000)]),
        Answer("ok", "run_1", result={f"key_{number}": "v" * 50 for number in range(5_000)}),
        Answer("ok", "run_1", result=1, stdout="line\n" * 20_000),
        Answer("ok", "run_1", result=1, calls=ROWS),
        Answer("ok", "run_1", result=1, notices=["a notice of some length " * 20] * 100),
        Answer("error", "run_1", error=RunError("script_error", "m" * 20_000, traceback="t\n" * 9_000)),
        Answer("ok", "run_1", result="word " * 5_000, emitted=[{"type": "text", "text": "word " * 450}] * 3),
    ],
    ids=["text", "list", "object", "stdout", "calls", "notices", "error", "emitted"],
)
def test_an_answer_of_any_shape_fits_and_says_what_is_left_out(answer: Answer) -> None:
    result = tool_result(answer, OUTPUT_TOKENS)
    shown = read(result)
    assert cost(result) <= OUTPUT_TOKENS
    assert (shown["status"], shown["run_id"]) == (answer.status, "run_1")
    assert shown["notices"]
    assert shown.keys() == answer.structured().keys()


def test_an_answer_that_fits_is_left_as_it_is() -> None:
    answer = Answer("ok", "run_1", result={"a": [1, None, "ü"]}, stdout="x\n", session="s")
    assert read(tool_result(answer, OUTPUT_TOKENS)) == answer.structured()


@pytest.mark.parametrize("status", ["ok", "error", "refused"])
def test_what_is_not_ok_is_an_error_of_the_protocol(status: str) -> None:
    error = None if status == "ok" else RunError("x", "y")
    result = tool_result(Answer(status, "run_1", error=error), OUTPUT_TOKENS)  # type: ignore[arg-type] # one of the three
    assert result.is_error is (status != "ok")


def test_an_answer_is_text_that_any_client_can_encode() -> None:
    answer = Answer("ok", "run_1", result={"\ud800": ["\udfff"]}, stdout="\ud800")
    tool_result(answer, OUTPUT_TOKENS).model_dump_json()
