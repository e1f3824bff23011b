"""A failing script's error: its own lines, a hint, and none of our frames."""

import pytest

from manifests.grants import Limits
from tests.sandbox_runtime.running import Runner, answering

SMALL = Limits(memory_mib=64)


async def test_causes_and_notes_are_kept(run: Runner) -> None:
    error = await run.error(
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    e.add_note('seen')\n    raise KeyError('k') from e"
    )
    assert "seen" in error.traceback
    assert "direct cause" in error.traceback
    assert error.message == "KeyError: 'k'"


async def test_group_of_exceptions_names_its_leaves(run: Runner) -> None:
    error = await run.error(
        "import asyncio\nasync def a():\n    raise ValueError('first')\n"
        "async with asyncio.TaskGroup() as group:\n    group.create_task(a())\n    group.create_task(git.fails())"
    )
    assert "ValueError: first" in error.message
    assert "Exception Group Traceback" in error.traceback


async def test_code_that_no_call_gave_is_not_believed(run: Runner) -> None:
    assert await run.code("raise ToolError('I am gone', code='worker_lost')") == "script_error"


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("import sys\nprint('x')\nsys.exit(3)", "script_exit"),
        ("exit('stopping')", "script_exit"),
        ("import asyncio\nraise asyncio.CancelledError", "script_error"),
        ("raise KeyboardInterrupt", "script_error"),
    ],
)
async def test_every_other_end_has_its_code(run: Runner, script: str, code: str) -> None:
    assert await run.code(script) == code


@pytest.mark.parametrize(("used_mib", "code"), [(2, "ok"), (16, "memory_limit"), (26, "memory_limit")])
async def test_answer_for_which_no_memory_is_left_says_so(run: Runner, used_mib: int, code: str) -> None:
    script = f"x = bytes({used_mib} << 20)\nlen(await git.git_log())"
    result = await run(script, port=answering("y" * (9 << 20)), limits=SMALL)
    assert (result.error.code if result.error else "ok") == code


@pytest.mark.parametrize("script", ["exit(0)", "raise SystemExit"])
async def test_clean_exit_is_a_good_end(run: Runner, script: str) -> None:
    assert await run.value(script) is None


async def test_endless_message_is_cut(run: Runner) -> None:
    error = await run.error("raise ValueError('x' * 1_000_000)")
    assert len(error.message) < 3000
    assert len(error.traceback) < 6000


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("x = 1\nawait gti.git_log(\n    a=1)", "namespace git?"),
        ("docs_search()", "await portal.search("),
        ("from tools import gti", "files, git"),
        ("import fiels", "namespace files?"),
        ("await portal.approve(text='x')", "It takes: portal.approve(question: str)"),
        ("await portal.resources('a', 'b')", "It takes: portal.resources(upstream: Any = None)"),
        ("import urllib.request\nurllib.request.urlopen('https://example.com')", "portal.fetch"),
        ("import socket\nsocket.create_connection(('example.com', 443))", "portal.fetch"),
        ("await asyncio.gather(await git.git_log())", "asyncio.gather(*calls)"),
        ("t = asyncio.create_task(git.git_log())\n1", "Write `await`"),
    ],
)
async def test_hint_leads_to_what_works(run: Runner, script: str, told: str) -> None:
    assert told in (await run.error(script)).hint


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (
            "data = await git.git_log(rows=[{'a': 1}])\ndata['cells']",
            'data is {rows: list[dict]}, from git.git_log; write data["rows"]',
        ),
        ("[row['a'] for row in await git.git_log(a=1, b=2)]", "git.git_log returned {a: int, b: int}"),
        ("def f(page):\n    return page.items.total\nf({'items': 1})", "page is {items: int}"),
        ("x = []\nx[3]", "x is list"),
        ("x = '{\"id\": 7}'\nx['id']", "x is str, of which json.loads makes {id: int}"),
        (
            "rows = [{'id': 1, 'n': 1.5}, {'id': 2, 'n': '1', 'by': None}]\nrows[0]['by']",
            "rows is list[{id: int, n: float | str, by?: None}]",
        ),
        ("rows = ['[1]', '[2]']\nrows['id']", "rows is list[str, of which json.loads makes list[int]]"),
        ("rows = ['2 rows', {'id': 1}]\nrows['id']", "rows is list[str | {id: int}]"),
        ("row = {'\\ufeffday': 1, 2: {}}\nrow['day']", "row is {'\\ufeffday': int, 2: dict}"),
        ("int('a')", ""),
        (
            "try:\n    x = input()\nfinally:\n    pass",
            "Write the value into the script, or ask with portal.approve.",
        ),
    ],
)
async def test_error_about_a_value_tells_what_it_is(run: Runner, script: str, told: str) -> None:
    assert (await run.error(script)).hint == told
