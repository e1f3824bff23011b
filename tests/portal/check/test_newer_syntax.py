"""Scripts with newer statements, made readable for older Pythons."""

import ast
import subprocess
import sys

import pytest

from portal.check.newer_syntax import with_older_syntax

OLDER = [
    ("x = [1]", "x = [1]"),
    ("def f[T](x: T) -> T: pass", "def f   (x: T) -> T: pass"),
    ("async def f[T: (int, str), *Ts, **P](x): pass", "async def f                         (x): pass"),
    ("class A[T = list[int]](B): pass", "class A               (B): pass"),
    ("class A[T]: pass", "class A   : pass"),
    ("type X = int", "X=lambda:int"),
    ("type Pair[A] = tuple[A, A]", "Pair=lambda:   tuple[A, A]"),
    ("if x:\n    type X = int", "if x:\n    X=lambda:int"),
    ("try: pass\nexcept A, B:\n    pass", "try: pass\nexcept(A,B):\n    pass"),
    ("try: pass\nexcept* a.A, B, C: pass", "try: pass\nexcept*(a.A,B,C) : pass"),
    ("type = 5", "type = 5"),
    ("type(x) == int", "type(x) == int"),
    ("'''\ndef f[T](x): pass\ntype X = int\n'''", "'''\ndef f[T](x): pass\ntype X = int\n'''"),
    ("# class A[T]: pass", "# class A[T]: pass"),
    ("def f(x='def g[T]'): pass", "def f(x='def g[T]'): pass"),
]


@pytest.mark.parametrize(("text", "older"), OLDER)
def test_newer_statements_become_older_ones(text: str, older: str) -> None:
    assert with_older_syntax(text) == older


@pytest.mark.parametrize("text", [text for text, _ in OLDER])
def test_every_python_can_read_them(text: str) -> None:
    ast.parse(with_older_syntax(text))


@pytest.mark.parametrize("text", ["def f[", "class A[(]", "type X[ = ", "except A, B", "'''", "def f[" * 300])
def test_what_is_no_python_is_left_or_changed_and_never_fails(text: str) -> None:
    assert with_older_syntax(text).count("\n") == text.count("\n")


@pytest.mark.parametrize("quote", ['"""', "'''", '"', "'"])
def test_text_that_never_ends_is_read_once(quote: str) -> None:
    """Each of its backslashes once doubled the time: behind a hundred of them it would never end."""
    source = "x = " + quote + "\\\\" * 100
    code = (
        "from portal.check.newer_syntax import with_older_syntax\n"
        f"print(with_older_syntax({source!r}) == {source!r})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "True\n"


LONG = {
    "spaces behind except": "'except' + ' ' * n + '!'",
    "spaces behind exceptions": "'except A, B' + ' ' * n + '!'",
    "spaces behind an alias": "'type X' + ' ' * n + '!'",
    "spaces behind its parameters": "'type X[T]' + ' ' * n + '!'",
    "brackets that stay open": "'def f[' * (n // 6)",
    "brackets in one another": "'def f[' * (n // 7) + ']' * (n // 7)",
    "quotes that are escaped": "'\"' + '\\\\\"' * (n // 2) + chr(10)",
    "texts that never end": "3 * chr(39) + ('\\\\' + 3 * chr(39) + chr(10)) * (n // 5)",
    "a word before a quote": "'a' * n + chr(34)",
    "a format of one sign": "'f\"{x:' + '#' * n",
    "an expression of one sign": "'f\"{' + '#' * n",
    "an expression of digits": "'f\"{' + '1' * n",
    "an expression of brackets": "'f\"' + '{(' * (n // 2)",
}


@pytest.mark.parametrize("source", LONG.values(), ids=LONG.keys())
def test_long_text_is_read_about_once(source: str) -> None:
    """With the square of its length it would take minutes, in which nobody else is served."""
    code = (
        "from portal.check.f_strings import without_f_strings\n"
        "from portal.check.newer_syntax import with_older_syntax\n"
        "n = 1_000_000\n"
        f"text = {source}\n"
        "print(len(with_older_syntax(text)) == len(without_f_strings(text)) == len(text))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "True\n"
