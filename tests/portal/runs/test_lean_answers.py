"""A model reads little of each answer, and each answer alone leads to the right next step; a program gets its shape."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp_types import CallToolResult, ToolAnnotations

from manifests.json_value import Json
from portal.base.tokens import compact, count_tokens, is_within
from portal.records.ledger import Ledger
from portal.records.store.records import short_id
from portal.runs.answer import Answer, fitted
from portal.runs.past import new_run_id
from sandbox_runtime.call_port import CallError
from sandbox_runtime.result import RunError
from tests.portal.peers import DEADLINE_SECONDS, Opened, Peer, opened, schema, text, text_of, tool

ROWS = "[{'id': n, 'weekday': 'Monday', 'item': 'tea', 'price': 2.5} for n in range(2800)]"
TEXT = "'\\n'.join(f'{n} of many lines' for n in range(9000))"


async def fail(arguments: dict[str, Json]) -> CallToolResult:
    return text(f"ENOENT: no such file or directory, open '/tmp/{arguments.get('path')}'", is_error=True)


@pytest.fixture(scope="module")
async def portal(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    reads = ToolAnnotations(read_only_hint=True)
    path = schema("path", path={"type": "string"})
    read, listed = tool("read_text_file", path, annotations=reads), tool("list_directory", annotations=reads)
    lost, write = tool("read_lost", annotations=reads), tool("write_file")
    files = Peer(read, listed, lost, write, read_lost=fail, write_file=fail)
    git = Peer(tool("git_log", schema("repo_path", repo_path={"type": "string"}), annotations=reads))
    async with opened(
        tmp_path_factory.mktemp("lean"), {"filesystem": files, "git": git}, runs={"park_after_seconds": 0}
    ) as portal:
        yield portal


async def read(portal: Opened, code: str, **arguments: Json) -> tuple[int, dict[str, Any]]:
    """The tokens of an answer, and what it says."""
    told = text_of(await portal.call("execute_code", code=code, **arguments))
    answer = json.loads(told)
    assert told == compact(answer), "one compact JSON object"
    ids = re.findall(r'"(?:run|kept|session)":"([^"]+)"', told)
    assert [each for each in ids if told.count(each) != 1] == []
    assert [key for key, value in answer.items() if not value and key != "result"] == []
    return count_tokens(told), answer


async def background(portal: Opened, code: str, *, to_its_end: bool = True) -> str:
    """The id of a run that has ended, or waits."""
    run = ((await portal.call("execute_code", code=code, background=True)).structured_content or {})["run_id"]
    with anyio.fail_after(DEADLINE_SECONDS):
        if to_its_end:
            async for _ in portal.portal.runs.answers(run):
                pass
        else:
            await portal.portal.runs.final_answer(run)
    return run


async def test_what_is_absent_is_empty(portal: Opened) -> None:
    assert await read(portal, "1 + 1") == (5, {"result": 2})
    assert await read(portal, "None") == (5, {"result": None})
    assert (await read(portal, "print(2)"))[1] == {"stdout": "2\n"}
    for empty in ([], "", 0, False):
        assert (await read(portal, repr(empty)))[1] == {"result": empty}


async def test_calls_that_went_well_are_counted_by_function(portal: Opened) -> None:
    code = (
        "await filesystem.read_text_file(path='a')\nawait filesystem.read_text_file(path='b')\n"
        "await filesystem.list_directory()\nawait git.git_log(repo_path='.')\n{'commits': 3, 'lines': 4}"
    )
    _, answer = await read(portal, code)
    calls = "filesystem.list_directory, .read_text_file 2, git.git_log"
    assert answer == {"result": {"commits": 3, "lines": 4}, "calls": calls}
    assert count_tokens(compact(answer)) <= 50


async def test_an_error_is_told_once_with_its_line(portal: Opened) -> None:
    tokens, answer = await read(portal, "path = 'nope'\nawait filesystem.read_lost(path=path)")
    assert answer["at"] == "line 2: await filesystem.read_lost(path=path)" and tokens <= 90
    assert str(answer).count("ENOENT") == 1 and "hint" not in answer and len(answer["run"]) == 8
    caught = "try:\n    await filesystem.read_lost(path='x')\nexcept ToolError as error:\n    print(error)"
    tokens, answer = await read(portal, caught)
    assert str(answer).count("ENOENT") == 1 and "run" not in answer and tokens <= 50
    code = "def total(text):\n    return int(text)\nrows = await filesystem.list_directory()\ntotal('amount')"
    tokens, answer = await read(portal, code)
    assert answer["at"] == "line 2: return int(text) (from line 4)" and tokens <= 75
    code = (
        "def f():\n    try:\n        {}['a']\n    except KeyError as e:\n        raise ValueError from e\nf()"
    )
    assert (await read(portal, code))[1]["at"] == "line 5: raise ValueError from e (from line 6)"


async def test_the_line_of_an_error_is_known_wherever_its_script_ran(portal: Opened) -> None:
    at = "line 2: await filesystem.read_lost(path='x')"
    code = f"await portal.sleep(0.1)\n{at.partition(': ')[2]}"
    run = await background(portal, code)
    assert (await read(portal, "", run=run))[1]["at"] == at
    begun = await portal.run("def f():\n    return 1 / 0\nf", session="new")
    assert (await read(portal, "x = 2\nf()", session=begun["session"]))[1]["at"] == "line 2"


async def test_a_failed_write_says_which_call_it_was(portal: Opened) -> None:
    call = "try:\n    await filesystem.write_file(path={!r}, rows=[1], size=3)\nexcept ToolError:\n    pass\n"
    one, other = (await read(portal, call.format("a") + call.format("b")))[1]["not_done"]
    assert one.startswith("filesystem.write_file failed #1 (path='a', rows=…, size=3):")
    assert other.startswith("filesystem.write_file failed #2 (path='b', rows=…, size=3):")


@pytest.mark.parametrize(
    ("code", "findings"),
    [
        ("await git.git_log(repo='x')", 1),
        ("await git.git_log(repo='x')\nawait filesystem.read_text_file(name='x')", 2),
        ("x = (", 1),
    ],
)
async def test_a_refusal_is_told_in_few_tokens(portal: Opened, code: str, findings: int) -> None:
    tokens, answer = await read(portal, code)
    assert "refused" in answer and "run" not in answer
    assert tokens <= 45 * findings


async def test_a_long_value_is_shown_as_shape_size_and_beginning(portal: Opened) -> None:
    tokens, answer = await read(portal, ROWS)
    rows = answer["result"]
    assert rows["list"] == "2,800 of {id: int, weekday: str, item: str, price: float}"
    assert [row["id"] for row in (*rows["first"], rows["last"])] == [*range(8), 2799] and tokens <= 600
    tokens, answer = await read(portal, TEXT)
    told = answer["result"]
    assert told["text"] == "169,889 characters, 9,000 lines" and tokens <= 600
    assert told["head"].startswith("0 of many lines\n1 of") and told["tail"] == "8999 of many lines"
    tokens, answer = await read(portal, f"print({TEXT})\n{{'rows': {ROWS}, 'total': 2800}}")
    assert answer["result"]["dict"].startswith("{rows: list[{id: int") and tokens <= 1_200
    assert {*map(len, (answer["result"]["kept"], answer["stdout"]["kept"]))} == {8}


async def test_a_model_that_wants_to_read_more_says_so(portal: Opened) -> None:
    rows = ROWS.replace("2800", "200")
    assert "kept" in (await read(portal, rows))[1]["result"]
    assert len((await read(portal, rows, max_tokens=5_000))[1]["result"]) == 200
    answer = (await read(portal, rows, max_tokens=9_000))[1]
    assert len(answer["result"]) == 200 and "output_tokens = 6000" in answer["notices"][0]
    run = await background(portal, rows)
    assert len((await read(portal, "", run=run, max_tokens=5_000))[1]["result"]) == 200
    for wrong in (0, -1, 1.5, "many"):
        assert (await portal.call("execute_code", code="1", max_tokens=wrong)).is_error


async def test_a_run_that_goes_on_says_what_it_waits_for(portal: Opened) -> None:
    assert (await read(portal, "1", background=True))[0] <= 17
    run = await background(portal, "await portal.approve('Push 3 commits to main?')", to_its_end=False)
    tokens, answer = await read(portal, "", run=run)
    waits = "a person: Push 3 commits to main?"
    assert answer == {"status": "waiting", "for": waits, "run": short_id(run)} and tokens <= 35


def lean(answer: Answer, max_tokens: int = 2_000, output_tokens: int = 6_000) -> dict[str, Any]:
    return fitted(answer, short_id, max_tokens, output_tokens, is_whole=False).text


def test_many_calls_cost_no_more_than_their_functions() -> None:
    ledger = Ledger()
    functions = ["everything.get_sum", "filesystem.read_text_file", "git.git_log", "sqlite.read_query"]
    for seq in range(1, 151):
        ledger.open(seq, functions[seq % 4])
        ledger[seq].end("done")
    for seq in (61, 149):
        ledger[seq].end(
            "failed", CallError("tool_error", f"ENOENT: no such file or directory, open '/{seq}'")
        )
    told = lean(Answer("ok", new_run_id(), result=1100, calls=ledger.rows()))
    assert told["calls"].startswith("everything.get_sum 37, filesystem.read_text_file 38, git")
    assert len(told["not_done"]) == 2 and count_tokens(compact(told)) <= 110
    rows = [row for row in ledger.rows() if row["state"] == "done"][:28]
    assert count_tokens(compact(lean(Answer("ok", new_run_id(), result=1100, calls=rows)))) <= 60


def test_equal_failures_are_one_and_slow_calls_are_named_if_the_run_failed() -> None:
    rows: list[dict[str, Json]] = [
        {"seq": seq, "function": "crm.get", "state": "failed", "ms": 1.0, "error": {"message": "gone"}}
        for seq in range(1, 9)
    ]
    rows += [
        {"seq": seq, "function": "git.git_log", "state": "done", "ms": ms}
        for seq, ms in ((9, 1_300.0), (10, 2_300.0), (11, 900.0))
    ]
    well, told = (lean(Answer(status, new_run_id(), calls=rows)) for status in ("ok", "error"))
    assert well["not_done"] == told["not_done"] == ["crm.get failed #1, #2, #3, #4, #5…: gone"]
    assert told["notices"] == ["git.git_log took 2 s"] and "notices" not in well


VALUES: list[Json] = ["世界" * 100_000, {"k" * 999: [[]] * 9_000}, 10**9_000, "\ud800" * 9_000]


@pytest.mark.parametrize("output_tokens", [400, 6_000])
def test_whatever_a_script_does_its_answer_fits(output_tokens: int) -> None:
    rows: list[dict[str, Json]] = [
        {"seq": n, "function": f"a.f{n}", "state": "failed", "ms": 1.0, "error": {"message": f"é{n}" * 99}}
        for n in range(99)
    ]
    notices = [f"{n}" * 4_000 for n in range(100)]
    failed = Answer("error", new_run_id(), error=RunError("x", "é" * 8_000), stdout="🙂" * 99_999, calls=rows)
    others = (Answer("ok", new_run_id(), each, "🙂" * 9_999, notices=notices) for each in VALUES)
    for answer in (failed, *others):
        told = compact(lean(answer, output_tokens, output_tokens))
        assert is_within(told, output_tokens) and json.loads(told.encode())


def test_what_cannot_be_kept_is_cut_in_place() -> None:
    rows: list[Json] = [{"id": number, "item": "tea"} for number in range(2_800)]
    told = fitted(Answer("ok", new_run_id(), rows), short_id, 500, 6_000, {}, is_whole=False).text
    assert told["result"][0] == rows[0] and told["result"][-1].endswith("more items left out")
    assert 300 < count_tokens(compact(told)) <= 500


async def test_an_answer_is_one_text_unless_the_manifest_wants_its_whole_shape(
    portal: Opened, tmp_path: Path
) -> None:
    answers: list[dict[str, Json]] = [
        *({"name": "execute_code", "code": code} for code in ("1 + 1", "1 / 0", "store.nothing()", 1)),
        {"name": "execute_code", "code": "1", "background": True},
        {"name": "execute_code", "run": "run_0"},
        {"name": "docs_search", "query": "portal.sleep"},
        {"name": "docs_search", "limit": 0},
    ]
    async with opened(tmp_path, server={"structured": False}) as lean:
        for arguments in answers:
            one, whole = await lean.call(**arguments), await portal.call(**arguments)
            assert (len(one.content), one.structured_content) == (1, None)
            assert len(whole.content) == 1 and whole.structured_content is not None
