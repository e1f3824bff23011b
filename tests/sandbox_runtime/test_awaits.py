"""Inserted `await`s, calls that get none, and the notices about both."""

import ast
import asyncio
import contextlib
import sys
import types
from typing import Any

import pytest

from sandbox_runtime.guest.script import Script

NAMESPACES = frozenset({"git", "github", "weather"})

FORGOTTEN_LINES = r"""
x = ~git.f()
a, *b = ~git.f()
if ~git.f(): pass
with ~git.f() as x: pass
«git.f()»['x']
(«git.f()»)['x']
~git.f() if a else ~git.g()
print(*~git.f(), **~git.g())
«git.f(x=«git.g()»['id'])»['y']
(y := ~git.f())['x']
print('äöü€😀', «git.f()»['ß'])
é = ~git.f(); ü = «git.g()».x
x = 1if ~git.f()else 2
[[~git.f(x=y) for y in x] for x in xs]
[x for x in xs if ~git.f()]
sum(x['n'] for x in ~git.f())
for n in ~git.f(): ~git.g(n=n)
x = «portal.search('a')»['functions']
from portal import approve; ~approve('now?')
"""
"""One script a line. `~` stands for an inserted `await `, `«` and `»` for the `(await ` and `)` around a call."""

FORGOTTEN = r"""
x = y = ~git.f()
x['a']
---
rows = [~git.f(x=x) for x in xs]
for x, row in zip(xs, rows): print(x, row['n'])
---
match ~git.f():
    case {'a': x}: print(x)
---
x = «git.f( # c
)»['y'] # d
---
if 1:
	~git.f()
---
'''
'''; ~git.f()
---
from tools.git import f
~f()
---
from git import *
~git.f()
---
~git.f()
git = «git.g()»['x']
git.h()
---
def f(git): git.f()
~git.g()
---
import asyncio
async def one(x): return ~git.f(x=x)
rs = await asyncio.gather(*(one(x) for x in xs))
rs[0]['n']
---
issues = ~git.f()
await asyncio.gather(*[git.g(n=issue['n']) for issue in issues])
"""

RIGHT = r"""
c = git.f(x=1)
(await c)["x"]
---
async with asyncio.TaskGroup() as tg:
    t = tg.create_task(git.f(x=1))
t.result()["x"]
---
calls = []
calls += [git.f(x=1)]
calls.extend([git.f(x=2)])
calls.insert(0, git.f(x=3))
calls = calls + [git.f(x=4)]
[await c for c in calls]
---
calls = [("a", git.f(x=1)), ("b", git.f(x=2))]
out = {}
for name, call in calls:
    out[name] = await call
---
c = git.f(x=1) if True else None
if c is not None:
    await c
---
calls = (git.f(x=x) for x in range(2))
out = []
for call in calls:
    out.append(await call)
---
from typing import Any, cast
await cast(Any, git.f(x=1))
---
class Calls(list):
    async def __aiter__(self):
        for call in list.__iter__(self): yield call
calls = Calls()
calls += [git.f(x=1)]
async for call in calls: await call
---
async def build(): return [git.f(x=x) for x in range(2)]
await asyncio.gather(*(await build()))
---
match [git.f(x=1)]:
    case [call]: await call
---
def call(git):
    return git.f(1)
call(types.SimpleNamespace(f=lambda x: x))
---
from tools.git import f
def f(x):
    return x
f(1)
"""
"""`git.f(x=1)` gives `{"x": 1}`."""


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
        ("print(await git.f().strip())", "print((await git.f()).strip())"),
    ],
)
def test_await_of_a_part_of_the_result_is_moved(text: str, source: str) -> None:
    assert mended(text) == source


def test_insertions_are_told_in_one_notice_and_many_are_summarised() -> None:
    told = Script.parse("x = 1\ngit.f(a=git.g())\ngit.f()", NAMESPACES).notices
    assert told == ["`await` was inserted: line 2, 3"]
    told = Script.parse("\n".join(["git.f()"] * 200), NAMESPACES).notices
    assert told == ["`await` was inserted: line 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …"]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("f = lambda: git.f()['x']", "a lambda"),
        ("def f():\n    return git.f()['x']\nf()", "`def f`"),
        ("sum(git.f(x=x)['n'] for x in [1])", "a generator expression"),
        ("any(x for x in [1] if git.f(x=x)['n'])", "a generator expression"),
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
