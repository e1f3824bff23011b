"""What a model may write in a script, and what it is told."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mcp_types import TextContent

from tests.acceptance.model import Model
from tests.acceptance.portal_process import stdio_model, write_manifest

pytestmark = pytest.mark.anyio

WAITING_SERVER = str(Path(__file__).parent / "peers/waiting_server.py")
LIMITS = {"tool_calls": 30, "memory_mib": 64, "cpu_seconds": 2, "argument_bytes": 2000}


@pytest.fixture(scope="module")
async def model(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Model]:
    manifest = write_manifest(
        tmp_path_factory.mktemp("scripts"),
        {"waiting": {"command": sys.executable, "args": [WAITING_SERVER]}},
        capabilities={"limits": LIMITS, "tools": {"deny": ["waiting.fail"]}},
        server={"output_tokens": 1000},
    )
    async with stdio_model(manifest) as model:
        yield model


@pytest.mark.parametrize(
    "code",
    [
        "await waiting.double(number=21)",
        "return await waiting.double(number=21)",
        "import waiting\nawait waiting.double(number=21)",
        "from tools import waiting\nawait waiting.double(number=21)",
        "from waiting import double\nawait double(number=21)",
        "from tools.waiting import double as twice\nx = await twice(number=21)\nx",
    ],
)
async def test_functions_are_found_however_they_are_imported(model: Model, code: str) -> None:
    assert await model.result_of(code) == 42


async def test_twenty_gathered_calls_run_in_parallel(model: Model) -> None:
    answer = await model.run(
        """
import asyncio
await asyncio.gather(*(waiting.meet(table="tea", guests=20) for _ in range(20)))
"""
    )
    assert answer["result"] == [20] * 20
    assert [call["state"] for call in answer["calls"]] == ["done"] * 20


async def test_forgotten_await_is_inserted_and_told(model: Model) -> None:
    answer = await model.run("x = waiting.double(number=4)\nx + 1")
    assert answer["result"] == 9
    assert any("await" in notice for notice in answer["notices"])


async def test_script_that_gathers_calls_itself_is_left_alone(model: Model) -> None:
    answer = await model.run(
        """
import asyncio
calls = [waiting.double(number=n) for n in range(3)]
await asyncio.gather(*calls)
"""
    )
    assert (answer["result"], answer["notices"]) == ([0, 2, 4], [])


async def test_prints_are_kept_apart_from_the_value(model: Model) -> None:
    answer = await model.run("print('brewing')\n{'tea': 'Assam'}")
    assert (answer["result"], answer["stdout"]) == ({"tea": "Assam"}, "brewing\n")


@pytest.mark.parametrize(
    "value", [2**63 + 1, -(2**63), 2**200, "\u2615 t\u00e9", [None, True, 0.1], {"a": {"b": []}}]
)
async def test_json_values_stay_whole(model: Model, value: object) -> None:
    assert await model.result_of(repr(value)) == value


async def test_the_standard_library_is_there(model: Model) -> None:
    code = "import csv, io, statistics\nstatistics.mean(int(row[0]) for row in csv.reader(io.StringIO('1\\n3\\n')))"
    assert await model.result_of(code) == 2


async def test_error_names_the_scripts_own_line(model: Model) -> None:
    answer = await model.run("def pour(cup):\n    return cup['tea']\n\npour({})")
    error = answer["error"]
    assert (error["code"], error["line"]) == ("script_error", 2)
    assert "KeyError" in error["message"]
    assert "pour(" in error["traceback"]
    assert "sandbox_runtime" not in error["traceback"]


async def test_wrong_type_is_refused_with_what_to_write(model: Model) -> None:
    answer = await model.run("await waiting.note(text='first')\nawait waiting.double(number='four')")
    assert (answer["status"], answer["calls"]) == ("refused", [])
    assert "number" in answer["error"]["message"]


async def test_unknown_function_is_refused_with_a_near_name(model: Model) -> None:
    answer = await model.run("await waiting.duble(number=1)")
    assert answer["status"] == "refused"
    assert "double" in answer["error"]["message"] + answer["error"]["hint"]


async def test_function_that_is_not_granted_is_not_called(model: Model) -> None:
    answer = await model.run("await waiting.fail(text='never')")
    assert answer["status"] != "ok"
    assert all(call["state"] == "refused" for call in answer["calls"])


async def test_more_calls_than_granted_are_refused_and_the_limit_is_named(model: Model) -> None:
    answer = await model.run("for n in range(31):\n    await waiting.double(number=n)")
    assert answer["error"]["code"] == "tool_calls_limit"
    assert "30" in answer["error"]["message"]
    assert "portal.yaml" in answer["error"]["message"] + answer["error"]["hint"]
    assert [call["state"] for call in answer["calls"]].count("done") == 30


@pytest.mark.parametrize(
    ("code", "limit"),
    [
        ("while True: pass", "cpu_limit"),
        ("b'x' * 10**9", "memory_limit"),
        ("await waiting.note(text='x' * 3000)", "argument_limit"),
    ],
)
async def test_exceeded_limit_is_named_and_the_next_script_works(model: Model, code: str, limit: str) -> None:
    answer = await model.run(f"await waiting.note(text='before')\n{code}")
    assert answer["error"]["code"] == limit
    assert answer["calls"][0]["state"] == "done"
    assert await model.result_of("1 + 1") == 2


async def test_long_result_is_cut_to_the_budget_and_says_so(model: Model) -> None:
    answer = await model.run("[{'row': n, 'text': 'word ' * 20} for n in range(1000)]")
    assert answer["status"] == "ok"
    assert answer["result"] != []
    assert len(str(answer)) < 20_000
    assert answer["notices"]


async def test_session_keeps_variables(model: Model) -> None:
    first = await model.run("tea = 'Assam'", session="new")
    second = await model.run("tea", session=first["session"])
    assert second["result"] == "Assam"


async def test_unknown_session_is_refused(model: Model) -> None:
    answer = await model.run("1", session="somebody-elses")
    assert (answer["status"], answer["calls"]) == ("refused", [])


async def test_scripts_without_a_session_share_nothing(model: Model) -> None:
    await model.result_of("import builtins; builtins.tea = 'Assam'")
    assert (await model.run("tea"))["status"] != "ok"


async def test_emitted_text_follows_the_answer(model: Model) -> None:
    result = await model.call(
        "execute_code", {"code": "import portal\nportal.emit({'type': 'text', 'text': 'beside'})"}
    )
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    assert texts[1:] == ["beside"]
