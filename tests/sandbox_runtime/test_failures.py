"""What a script that fails is told: its own lines, and nothing of ours."""

import pytest

from manifests.grants import Limits
from sandbox_runtime.call_port import Outcome, ToolCall
from tests.sandbox_runtime.running import Runner, answering, where

pytestmark = pytest.mark.anyio

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


async def test_syntax_error_is_told_before_anything_runs(run: Runner) -> None:
    async with run.sandbox.run(Limits(), str) as one:
        prepared = await one.prepare("print('ran')\ndef f(:\n    pass", ())
        assert prepared.error is not None
        assert (prepared.error.code, prepared.error.line) == ("syntax_error", 2)
        result = await one.execute({}, _no_port)
    assert result.error == prepared.error
    assert result.stdout == ""


async def test_uncaught_tool_error_keeps_its_code_and_hint(run: Runner) -> None:
    error = await run.error("x = 1\nawait git.fails()")
    assert (error.code, error.message, error.line, error.hint) == (
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
        ("import asyncio\nawait asyncio.Event().wait()", "script_error"),
        ("input('name? ')", "script_error"),
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


async def test_limit_of_memory_names_itself_its_value_and_its_place(run: Runner) -> None:
    error = await run.error("bytearray(100_000_000)", limits=SMALL)
    assert error.code == "memory_limit"
    assert "memory_mib of 64" in error.message and where("memory_mib") in error.message


async def test_output_is_cut_between_characters_and_the_rest_counted(run: Runner) -> None:
    result = await run("print('é' * 1000)\nprint('later')\n7", limits=Limits(stdout_bytes=101))
    assert (result.value, result.stdout) == (7, "é" * 50)
    assert result.stdout_bytes_dropped == 2000 - 100 + len("\nlater\n")


async def test_endless_message_is_cut(run: Runner) -> None:
    error = await run.error("raise ValueError('x' * 1_000_000)")
    assert len(error.message) < 3000
    assert len(error.traceback) < 6000


async def _no_port(call: ToolCall) -> Outcome:
    raise AssertionError(call)
