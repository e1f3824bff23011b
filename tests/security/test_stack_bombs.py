"""Depth without end exhausts the interpreter's stack, in Python and in C: an error of the script itself."""

import pytest

from tests.security.arena import Arena
from tests.security.attack import Attack, Fate, exceeds, exhausts_stack, raises

pytestmark = pytest.mark.anyio

DEEP = exhausts_stack()
LIST = "deep = []\nfor _ in range(10 ** 5): deep = [deep]"
TUPLE = "deep = ()\nfor _ in range(10 ** 5): deep = (deep,)"


def bomb(
    name: str, attack: str, twin: str = "[[]]", value: object = [[]], setup: str = "", fate: Fate = DEEP
) -> Attack:
    return Attack(name, attack, fate, twin, value, setup)


ATTACKS = [
    bomb("function", "def f(): f()\nf()"),
    bomb("function_without_a_limit", "def f(): f()\nf()", setup="import sys\nsys.setrecursionlimit(10 ** 9)"),
    bomb("coroutine", "async def f(): await f()\nawait f()"),
    bomb("generator", "def f(): yield from f()\nnext(f())"),
    bomb(
        "attribute",
        "A().b",
        "A.__name__",
        "A",
        "class A:\n    def __getattr__(self, name): return getattr(self, name + 'x')",
    ),
    bomb("call", "A.__call__ = A()\nA()()", "A.__name__", "A", "class A: pass"),
    bomb(
        "comparison", "deep == other", setup=LIST + "\nother = []\nfor _ in range(10 ** 5): other = [other]"
    ),
    bomb("text", "repr(deep)", setup=LIST),
    bomb("value", "deep", setup=LIST),
    bomb("argument", "await git.git_log(a=deep)", setup=LIST),
    bomb("block", "portal.emit({'type': 'text', 'text': deep})", setup=LIST),
    bomb("hash", "hash(deep)", "hash(()) is not None", True, TUPLE),
    bomb(
        "instance",
        "isinstance(1.0, deep)",
        "isinstance(1, int)",
        True,
        "deep = int\nfor _ in range(10 ** 5): deep = (deep,)",
    ),
    bomb("json_written", "json.dumps(deep)", "json.dumps([[]])", "[[]]", "import json\n" + LIST),
    bomb("json_read", "json.loads('[' * 10 ** 5)", "json.loads('[[]]')", [[]], "import json"),
    bomb(
        "json_read_in_python",
        "json.loads('[' * 10 ** 5)",
        "json.loads('[[]]')",
        [[]],
        "import json\njson.JSONDecoder.scan_once = None",
    ),
    bomb("pickled", "pickle.dumps(deep)", "len(pickle.dumps([])) > 0", True, "import pickle\n" + LIST),
    bomb("copied", "copy.deepcopy(deep)", "copy.deepcopy([[]])", [[]], "import copy\n" + LIST),
    bomb(
        "marshalled",
        "marshal.loads(b'(\\1\\0\\0\\0' * 10 ** 5)",
        "marshal.loads(marshal.dumps([]))",
        [],
        "import marshal",
        raises("ValueError: recursion limit exceeded"),
    ),
    bomb(
        "iterators",
        "for _ in range(10 ** 5): deep = itertools.chain(deep)\nnext(deep)",
        "next(deep)",
        1,
        "import itertools\ndeep = iter([1])",
    ),
    bomb(
        "maps",
        "for _ in range(10 ** 5): deep = map(abs, deep)\nnext(deep)",
        "next(deep)",
        1,
        "deep = iter([1])",
    ),
    bomb(
        "wrapped_functions",
        "for _ in range(10 ** 5): deep = functools.partial(deep.__call__)\ndeep(1)",
        "deep(1)",
        1,
        "import functools\ndeep = abs",
    ),
    bomb(
        "source",
        "eval('(' * 10 ** 5)",
        "eval('((1))')",
        1,
        "",
        raises("MemoryError: Parser stack overflowed"),
    ),
    bomb("source_of_signs", "eval('-' * 10 ** 5 + '1')", "eval('--1')", 1, "", Fate("script_error")),
    bomb(
        "tree",
        "ast.literal_eval('[' * 10 ** 4 + ']' * 10 ** 4)",
        "ast.literal_eval('[[]]')",
        [[]],
        "import ast",
        Fate("script_error"),
    ),
    bomb(
        "expression", "re.compile('(' * 10 ** 4 + ')' * 10 ** 4)", "re.compile('(a)').groups", 1, "import re"
    ),
    bomb(
        "format",
        "('{0:' * 999 + '}' * 999).format(1)",
        "'{0:{1}}'.format(1, 3)",
        "  1",
        "",
        raises("ValueError: Max string recursion"),
    ),
    bomb(
        "document",
        "ElementTree.tostring(ElementTree.fromstring('<a>' * 10 ** 5 + '</a>' * 10 ** 5))",
        "ElementTree.fromstring('<a><b/></a>')[0].tag",
        "b",
        "from xml.etree import ElementTree",
    ),
    bomb(
        "groups_of_errors",
        "error = ValueError()\nfor _ in range(10 ** 4): error = ExceptionGroup('g', [error])\nraise error",
    ),
    bomb(
        "again_and_again", "def f():\n    try: f()\n    finally: f()\nf()", fate=exceeds("cpu_seconds", 0.2)
    ),
    bomb(
        "formatting_an_error",
        "raise A",
        "str(ValueError(1))",
        "1",
        "class A(Exception):\n    def __str__(self): return str(self)",
        Fate("script_error"),
    ),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_depth_ends_in_an_error_of_the_script(arena: Arena, attack: Attack) -> None:
    await arena.withstands(attack)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_some_depth_goes_through(arena: Arena, attack: Attack) -> None:
    await arena.spares(attack)


@pytest.mark.parametrize("depth", [100, 199])
async def test_values_of_some_depth_come_out(arena: Arena, depth: int) -> None:
    result = await arena.run(f"deep = 0\nfor _ in range({depth}): deep = [deep]\ndeep")
    assert result.error is None
