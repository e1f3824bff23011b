"""What a script that fails is told: its own lines, and nothing of ours."""

import pytest

from manifests.grants import Limits
from sandbox_runtime.call_port import Outcome, ToolCall
from tests.sandbox_runtime.running import Runner, answering

pytestmark = pytest.mark.anyio

SMALL = Limits(memory_mib=64)


async def test_traceback_shows_files_of_the_script_only(run: Runner) -> None:
    result = await run("import json\nawait git.git_log()\njson.loads('{')")
    assert result.error is not None
    files = {
        line.split('"')[1] for line in result.error.traceback.splitlines() if line.startswith('  File "')
    }
    assert files == {"script.py"}
    assert result.error.line == 3


async def test_causes_and_notes_are_kept(run: Runner) -> None:
    result = await run(
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    e.add_note('seen')\n    raise KeyError('k') from e"
    )
    assert result.error is not None
    assert "seen" in result.error.traceback
    assert "direct cause" in result.error.traceback
    assert result.error.message == "KeyError: 'k'"


async def test_group_of_exceptions_names_its_leaves(run: Runner) -> None:
    result = await run(
        "import asyncio\nasync def a():\n    raise ValueError('first')\n"
        "async with asyncio.TaskGroup() as group:\n    group.create_task(a())\n    group.create_task(git.fails())"
    )
    assert result.error is not None
    assert "ValueError: first" in result.error.message
    assert "Exception Group Traceback" in result.error.traceback


async def test_syntax_error_is_told_before_anything_runs(run: Runner) -> None:
    async with run.sandbox.run(Limits(), str) as one:
        prepared = await one.prepare("print('ran')\ndef f(:\n    pass", ())
        assert prepared.error is not None
        assert (prepared.error.code, prepared.error.line) == ("syntax_error", 2)
        result = await one.execute({}, _no_port)
    assert result.error == prepared.error
    assert result.stdout == ""


async def test_uncaught_tool_error_keeps_its_code_and_hint(run: Runner) -> None:
    result = await run("x = 1\nawait git.fails()")
    assert result.error is not None
    assert (result.error.code, result.error.message, result.error.line, result.error.hint) == (
        "upstream_down",
        "git is down",
        2,
        "Try again later.",
    )


async def test_code_that_no_call_gave_is_not_believed(run: Runner) -> None:
    assert await run.code("raise ToolError('I am gone', code='worker_lost')") == "script_error"


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("import sys\nprint('x')\nsys.exit(3)", "script_exit"),
        ("exit('stopping')", "script_exit"),
        ("import os\nos._exit(1)", "script_exit"),
        ("import os\nos.abort()", "script_error"),
        ("def f():\n    return f()\nf()", "script_error"),
        ("a = []\nfor _ in range(50_000):\n    a = [a]\nrepr(a)", "script_error"),
        ("import asyncio\nawait asyncio.Event().wait()", "script_error"),
        ("input('name? ')", "script_error"),
        ("import asyncio\nraise asyncio.CancelledError", "script_error"),
        ("raise KeyboardInterrupt", "script_error"),
    ],
)
async def test_every_other_end_has_its_code(run: Runner, script: str, code: str) -> None:
    assert await run.code(script) == code


@pytest.mark.parametrize(("used_mib", "code"), [(2, "ok"), (16, "memory_limit"), (26, "memory_limit")])
async def test_answer_for_which_no_memory_is_left_is_lack_of_it(
    run: Runner, used_mib: int, code: str
) -> None:
    script = f"x = bytes({used_mib} << 20)\nlen(await git.git_log())"
    result = await run(script, port=answering("y" * (9 << 20)), limits=SMALL)
    assert (result.error.code if result.error else "ok") == code


@pytest.mark.parametrize(
    "script", ["import sys\nsys.exit()", "exit(0)", "raise SystemExit", "import os\nos._exit(0)"]
)
async def test_clean_exit_is_a_good_end(run: Runner, script: str) -> None:
    assert await run.value(script) is None


async def test_endless_message_is_cut(run: Runner) -> None:
    result = await run("raise ValueError('x' * 1_000_000)")
    assert result.error is not None
    assert len(result.error.message) < 3000
    assert len(result.error.traceback) < 6000


async def test_worker_serves_the_next_run_after_every_bad_end(run: Runner) -> None:
    for script in (
        "import os\nos.abort()",
        "import os\nos._exit(1)",
        "1 / 0",
        "import builtins\nbuiltins.__dict__.clear()",
    ):
        await run(script)
        assert await run.value("1 + 1") == 2


async def _no_port(call: ToolCall) -> Outcome:
    raise AssertionError(call)
