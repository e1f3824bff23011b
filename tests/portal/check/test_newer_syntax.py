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
