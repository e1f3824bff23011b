"""Where an `await` is put in, and what is told about it."""

import ast
import sys

import pytest

from sandbox_runtime.guest.script import Script
from tests.sandbox_runtime.forgotten_awaits import COMPREHENSIONS, DATA, F_STRINGS, NAMES, PLACES, PRECEDENCE

NAMESPACES = frozenset({"git", "github", "weather"})
EXACT_IN_F_STRINGS = sys.version_info >= (3, 12)  # before, nothing in an f-string has a true position


def mended(text: str) -> str:
    return Script.parse(text, NAMESPACES).source


def scripts(table: str) -> list[str]:
    return table.strip("\n").split("\n---\n")


TABLES = [PLACES, PRECEDENCE, COMPREHENSIONS, NAMES, DATA, *([F_STRINGS] if EXACT_IN_F_STRINGS else [])]
TABLE = [script for table in TABLES for script in scripts(table)]


def forgotten(marked: str) -> str:
    return marked.replace("~", "").replace("«", "").replace("»", "")


def awaited(marked: str) -> str:
    return marked.replace("~", "await ").replace("«", "(await ").replace("»", ")")


def test_table_is_long() -> None:
    assert len(TABLE) > 120


@pytest.mark.parametrize("script", TABLE)
def test_forgotten_await_is_inserted(script: str) -> None:
    assert mended(forgotten(script)) == awaited(script)


@pytest.mark.parametrize("script", TABLE)
def test_mended_script_needs_no_mending(script: str) -> None:
    assert mended(awaited(script)) == awaited(script)


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("script", TABLE)
def test_insertion_adds_awaits_and_nothing_else(script: str) -> None:
    class Unawaited(ast.NodeTransformer):
        def visit_Await(self, node: ast.Await) -> ast.AST:
            self.generic_visit(node)
            return node.value

    before, after = (Unawaited().visit(ast.parse(text)) for text in (forgotten(script), awaited(script)))
    assert ast.dump(before) == ast.dump(after)


@pytest.mark.parametrize("script", scripts(F_STRINGS))
def test_f_string_without_true_positions_is_left_alone(script: str) -> None:
    text = forgotten(script)
    assert mended(text) == (awaited(script) if EXACT_IN_F_STRINGS else text)


def notices(text: str) -> list[str]:
    return Script.parse(text, NAMESPACES).notices


def test_insertion_is_told_once_a_line() -> None:
    assert notices("x = 1\ngit.f(a=git.g())") == [
        "line 2: `await` was inserted before git.f(...) and git.g(...)"
    ]


def test_many_insertions_are_summarised() -> None:
    told = notices("\n".join(["git.f()"] * 200))
    assert len(told) == 5
    assert "200 library calls" in told[-1]
    assert sum(map(len, told)) < 1000


def test_right_script_is_told_nothing() -> None:
    assert notices("await git.f()\nimport asyncio\nawait asyncio.gather(git.g())") == []


BARRED = [
    ("f = lambda: git.f()['x']", "a lambda"),
    ("def f():\n    return git.f()['x']\nf()", "`def f`"),
    ("sum(git.f(x=x)['n'] for x in xs)", "a generator expression"),
    ("class A:\n    x = git.f()\nA.x['n']", "a class body"),
]


@pytest.mark.parametrize(("text", "where"), BARRED)
def test_call_that_can_have_no_await_is_told(text: str, where: str) -> None:
    assert mended(text) == text
    assert [where in notice for notice in notices(text)] == [True]
