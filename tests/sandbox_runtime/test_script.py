"""A script's value, and that it runs like a module."""

import asyncio
import contextlib
import linecache
import sys
import traceback
import types
from typing import Any

import pytest

from sandbox_runtime.guest.script import Script


def run(text: str, globals: dict[str, Any] | None = None) -> Any:
    return Script.parse(text, frozenset()).run({} if globals is None else globals, asyncio.run)


VALUES = [
    ("", None),
    ("'only a docstring'", "only a docstring"),
    ("if True:\n    5", ...),
    ("import asyncio\n[await asyncio.sleep(0, i) for i in range(3)]", [0, 1, 2]),
    ("import asyncio\nasync def f():\n    return 4\nasyncio.run(f())", 4),
    ("if 0:\n    return 'a'", ...),
    ("for i in range(9):\n    if i == 4:\n        return i", 4),
    ("match {'a': 1, 'b': 2}:\n    case {'a': x, **rest}:\n        return [x, rest]", [1, {"b": 2}]),
    ("done = []\ntry:\n    return done\nfinally:\n    done.append(1)", [1]),
    ("try:\n    return 1\nfinally:\n    return 2", 2),
    ("try:\n    return 1\nexcept:\n    return 2", 1),
    ("import asyncio\nx = await asyncio.sleep(0, 3)\nif x:\n    return x\n5", 3),
    ("x: undefined_name\nreturn 'x' in globals()", False),
    ("x = 1\ndef f():\n    global x\n    x += 1\nf()\nreturn x", 2),
    ("x = 1\ndel x\nreturn 'x' in globals()", False),
    ("def f():\n    return later\nlater = 3\nreturn f()", 3),
    (
        "locals()['q'] = 2\nreturn q, globals() is locals(), 'q' in dir(), 'q' in vars()",
        (2, True, True, True),
    ),
    ("def g():\n    yield 1\n    return 2\nreturn list(g())", [1]),
    ("from __future__ import annotations\ndef f(x: undefined): return 1\nreturn f(1)", 1),
    ("return\nx = 1", None),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_value_is_the_last_expression_or_what_a_return_returns(text: str, value: Any) -> None:
    assert run(text) == value


TASK_GROUP = """
import asyncio
done = []
async def work():
    await asyncio.sleep(0)
    done.append(1)
async with asyncio.TaskGroup() as group:
    group.create_task(work())
    return done
"""


def test_return_from_a_task_group_waits_for_its_tasks() -> None:
    assert run(TASK_GROUP) == [1]


def test_return_passes_through_a_with_statement_as_no_exception() -> None:
    text = "class C:\n  def __enter__(s): pass\n  def __exit__(s, kind, *rest): seen.append(kind)\n"
    globals: dict[str, Any] = {"seen": []}
    assert run(text + "with C():\n  return 1", globals) == 1
    assert globals["seen"] == [None]


RETURNING = (
    "import json\nx = 1\ny: int = 2\ndef f(): return x\nclass A: pass\nfor i in range(2): pass\nreturn f()"
)


def test_names_assigned_beside_a_return_are_real_globals() -> None:
    globals: dict[str, Any] = {}
    run(RETURNING, globals)
    assert {"json", "x", "y", "f", "A", "i"} <= set(globals)
    assert run("x + y + i, A.__name__", globals) == (4, "A")


def test_a_name_bound_only_in_dead_code_is_still_the_sessions() -> None:
    assert run("if 0:\n    x = 1\nreturn x", {"x": 5}) == 5


def test_a_value_leaves_no_name_behind() -> None:
    globals: dict[str, Any] = {}
    run("x = 1\nx", globals)
    run("if x: return x", globals)
    assert set(globals) == {"x", "__builtins__"}


def test_plain_script_runs_its_own_event_loop() -> None:
    def refuse(coroutine: Any) -> Any:
        coroutine.close()
        raise AssertionError("no loop was needed")

    text = "import asyncio\nasync def main():\n    return 3\nasyncio.run(main())"
    assert Script.parse(text, frozenset()).run({}, refuse) == 3


MISTAKES = [
    ("x = (1,\ny = 2", 1),
    ("class A:\n    return 1", 2),
    ("def f():\n    await g()", 2),
    ("nonlocal x\nreturn 1", 1),
    ("try:\n    pass\nexcept* ValueError:\n    return 1", 4),
]


@pytest.mark.parametrize(("text", "line"), MISTAKES)
def test_syntax_error_stands_at_the_users_line(text: str, line: int) -> None:
    with pytest.raises(SyntaxError) as caught:
        Script.parse(text, frozenset())
    assert caught.value.lineno == line


@pytest.mark.parametrize("text", ["def f():\n    return 1 / 0\n\nif True:\n    return f()", "x = 1\n1 / 0\n"])
def test_traceback_shows_the_scripts_lines(text: str) -> None:
    try:
        run(text)
    except ZeroDivisionError as error:
        frames = [
            frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "script.py"
        ]
    lines = text.split("\n")
    assert frames[0].name == "<module>"
    assert all(frame.lineno and frame.line == lines[frame.lineno - 1].strip() for frame in frames)
    assert "1 / 0" in str(frames[-1].line)


def test_later_run_shows_its_own_lines() -> None:
    run("x = 1")
    run("y = 2\ny")
    assert linecache.getline("script.py", 1) == "y = 2\n"


def test_classes_of_a_returning_script_can_be_pickled() -> None:
    module = types.ModuleType("scripted")
    sys.modules["scripted"] = module
    module.__dict__["__name__"] = "scripted"
    text = "import pickle\nclass A:\n    pass\nreturn type(pickle.loads(pickle.dumps(A()))) is A"
    assert run(text, module.__dict__) is True
    del sys.modules["scripted"]


@pytest.mark.parametrize(
    "text", ["\ufeff1", "x = 1\r\nx\r\n", "x = 1\rx", "'''a\r\nb'''", "x = '\x0c'\n\x0cx"]
)
def test_line_ends_and_marks_of_editors_do_no_harm(text: str) -> None:
    run(text)


@pytest.mark.parametrize(
    "before", ['body = """', "body = '''", '# in """\nbody = """', 'a = \'"""\'\nb = """']
)
def test_code_in_a_text_of_a_script_with_a_mistake_is_not_run_instead(before: str) -> None:
    text = f"{before}\n```python\nawait git.reset()\n```\n{before[-3:]}\nprint(body\n"
    with pytest.raises(SyntaxError):
        Script.parse(text, frozenset({"git"}))


HOSTILE = [
    "\x00",
    "x = '\ud800'",
    "(" * 5000,
    "x" + ".y" * 50_000,
    "1" + "+1" * 50_000,
    "\\",
    "'''",
    "git" + ".f()" * 20_000,
    "print(" * 90 + "git.f()" + ")" * 90,
    "if 1:\n    pass\n" + "elif git.f():\n    pass\n" * 3000,
    "\t x",
    "git." + "ß" * 100_000 + "()",
    "global git\ngit.f()\nnonlocal git",
    "def f[T: git.f()](x: git.f() = git.f()) -> git.f(): pass" if sys.version_info >= (3, 12) else "1",
    "a = b = c = a; a.f(); from a import b; import c as a",
    "class git(git.f()): git = git.f()\ngit.f()",
]


# CPython's gh-106905: this Python, unlike the guest's, counts depth wrongly after an earlier RecursionError.
OWN_ERRORS = (SystemError,) if sys.version_info < (3, 11, 5) else ()


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_breaks_the_parser(text: str) -> None:
    with contextlib.suppress(SyntaxError, RecursionError, MemoryError, ValueError, *OWN_ERRORS):
        Script.parse(text, frozenset({"git"}))
