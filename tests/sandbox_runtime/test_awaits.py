"""Where an `await` is put in, where none is, and what is told about it."""

import ast
import asyncio
import contextlib
import sys
import types
from typing import Any

import pytest

from sandbox_runtime.guest.script import Script
from tests.sandbox_runtime.awaits import FORGOTTEN, FORGOTTEN_LINES, RIGHT

NAMESPACES = frozenset({"git", "github", "weather"})


def scripts(table: str) -> list[str]:
    return table.strip("\n").split("\n---\n")


def mended(text: str) -> str:
    return Script.parse(text, NAMESPACES).source


def forgotten(marked: str) -> str:
    return marked.replace("~", "").replace("«", "").replace("»", "")


def awaited(marked: str) -> str:
    return marked.replace("~", "await ").replace("«", "(await ").replace("»", ")")


class Unawaited(ast.NodeTransformer):
    def visit_Await(self, node: ast.Await) -> ast.AST:
        self.generic_visit(node)
        return node.value


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("script", [*FORGOTTEN_LINES.split("\n")[1:-1], *scripts(FORGOTTEN)])
def test_forgotten_await_is_inserted_and_nothing_else(script: str) -> None:
    assert mended(forgotten(script)) == awaited(script)
    assert mended(awaited(script)) == awaited(script)
    before, after = (Unawaited().visit(ast.parse(text)) for text in (forgotten(script), awaited(script)))
    assert ast.dump(before) == ast.dump(after)


class Git(types.ModuleType):
    """Stands for a namespace of the library: every function gives its arguments back."""

    def __getattr__(self, name: str) -> Any:
        async def function(**arguments: Any) -> dict[str, Any]:
            return arguments

        return function


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("text", scripts(RIGHT))
def test_right_script_is_not_changed(text: str) -> None:
    script = Script.parse(text, frozenset({"git"}))
    assert script.source == text
    assert script.notices == []
    assert script.usage is None or script.usage.problems == []
    git, tools = Git("git"), types.ModuleType("tools")
    tools.git = git  # type: ignore[attr-defined]
    own = {"git": git, "tools": tools, "asyncio": asyncio, "types": types, "contextlib": contextlib}
    with pytest.MonkeyPatch.context() as modules:
        modules.setitem(sys.modules, "tools", tools)
        modules.setitem(sys.modules, "tools.git", git)
        script.run(own, asyncio.run)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("await git.f()['x']", "(await git.f())['x']"),
        ("x = await git.f().get('a', git.g())", "x = (await git.f()).get('a', await git.g())"),
        ("await  git.f()['x'].y[0]", "(await  git.f())['x'].y[0]"),
    ],
)
def test_await_of_a_part_of_the_result_is_moved(text: str, source: str) -> None:
    assert mended(text) == source


def test_insertions_are_told_in_one_notice() -> None:
    told = Script.parse("x = 1\ngit.f(a=git.g())\ngit.f()", NAMESPACES).notices
    assert told == ["`await` was inserted: line 2, 3"]


def test_many_insertions_are_summarised() -> None:
    told = Script.parse("\n".join(["git.f()"] * 200), NAMESPACES).notices
    assert told == ["`await` was inserted: line 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …"]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("f = lambda: git.f()['x']", "a lambda"),
        ("def f():\n    return git.f()['x']\nf()", "`def f`"),
        ("sum(git.f(x=x)['n'] for x in xs)", "a generator expression"),
        ("class A:\n    x = git.f()['n']", "a class body"),
    ],
)
def test_call_that_can_have_no_await_is_a_problem(text: str, where: str) -> None:
    script = Script.parse(text, NAMESPACES)
    assert (script.source, script.notices) == (text, [])
    assert script.usage is not None
    assert [(code, where in message) for _, code, message, _ in script.usage.problems] == [
        ("not_awaited", True)
    ]
