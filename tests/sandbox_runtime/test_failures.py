"""What a script that fails is told: its own lines, and nothing of ours."""

import pytest

from manifests.grants import Limits
from sandbox_runtime.calls import Outcome, ToolCall
from tests.sandbox_runtime.running import Runner, answering

pytestmark = pytest.mark.anyio

SMALL = Limits(memory_mib=64)


async def test_error_names_the_innermost_line_of_the_script(run: Runner) -> None:
    result = await run("def divide(a):\n    return a / 0\n\ndivide(1)\n")
    assert result.error is not None
    assert (result.error.code, result.error.message, result.error.line) == (
        "script_error",
        "ZeroDivisionError: division by zero",
        2,
    )
    assert "    return a / 0" in result.error.traceback
    assert "    divide(1)" in result.error.traceback


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


async def test_abort_is_no_lack_of_memory_however_little_there_is(run: Runner) -> None:
    little = Limits(memory_mib=32)
    assert await run.code("import os\nos.abort()", limits=little) == "script_error"
    assert await run.code("x = [bytes(1 << 16) for _ in range(1000)]", limits=little) == "memory_limit"
    assert await run.code("import os\nx = bytes(10 << 20)\nos.abort()", limits=SMALL) == "script_error"


@pytest.mark.parametrize("memory_mib", [32, 64])
async def test_abort_where_no_memory_is_left_is_lack_of_it(run: Runner, memory_mib: int) -> None:
    full = "x = None\ntry:\n    while True: x = [x]\nexcept MemoryError: pass"
    assert await run.code(full, limits=Limits(memory_mib=memory_mib)) == "memory_limit"


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


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("gti.git_log()", "git"),
        ("import numpy", "PyYAML"),
        ("import ssl", "does not have"),
        ("open('/etc/passwd')", "files"),
        ("from tools import svn", "files, git"),
        ("import threading\nthreading.Thread(target=print).start()", "asyncio.gather"),
    ],
)
async def test_frequent_mistakes_get_a_hint(run: Runner, script: str, told: str) -> None:
    result = await run(script)
    assert result.error is not None
    assert told in result.error.hint


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "class E(Exception):\n    def __str__(self): raise KeyError\nraise E",
            "E: <exception str() failed>",
        ),
        (
            "e = ValueError()\nfor _ in range(10_000):\n    e = ExceptionGroup('g', [e])\nraise e",
            "RecursionError",
        ),
        ("import sys\nsys.modules.clear()\nimport decimal", "AttributeError"),
        ("getattr(git, 'a\\ud800')", "AttributeError"),
        ("compile('(' * 10_000, 'x', 'eval')", "MemoryError: Parser stack overflowed"),
    ],
)
async def test_error_that_is_hard_to_explain_is_still_told(run: Runner, script: str, message: str) -> None:
    result = await run(script)
    assert result.error is not None
    assert (result.error.code, result.stdout) == ("script_error", "")
    assert result.error.message.startswith(message)


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


async def test_a_warning_shows_the_line_of_the_script_and_no_place_of_ours(run: Runner) -> None:
    result = await run("import warnings\nwarnings.warn('old')\nasync def f(): pass\nf()\nNone")
    assert "script.py:2: UserWarning: old" in result.stdout
    assert "sandbox_runtime" not in result.stdout
